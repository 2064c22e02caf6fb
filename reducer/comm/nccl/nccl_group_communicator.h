// NcclGroupCommunicator is the life of a group's communicator: all ranks meet and make it, or make
// it out of that of an older group, and it ends with the group.
//
// Threads: connect() and shrink() by the thread that connects; after that link() as NcclLink says,
// and end(), finish_end() and leave() by the closer.
// Failure: what connect() and shrink() return is the first cause that any rank has reported. After
// an error no communicator is left.
#pragma once

#include <cstdint>
#include <vector>

#include "reducer/comm/nccl/nccl_link.h"
#include "reducer/comm/nccl/nccl_peers.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclGroupCommunicator {
 public:
  // `gpu` is CUDA's number of the GPU. `peers` and `options` outlive this object.
  NcclGroupCommunicator(const NcclApi& api, int gpu, NcclPeers& peers, const NcclOptions& options)
      : peers_(peers), options_(options), link_(api, options.poll, gpu) {}

  // Makes a new communicator. A collective operation.
  Status connect(platform::Deadline deadline);
  // Makes it out of the parent's, whose owner does nothing with that meanwhile. A collective
  // operation of the ranks that are not excluded; see NcclLink::init_from().
  Status shrink(NcclGroupCommunicator& parent, NcclLink::Parent state,
                const std::vector<int>& excluded, platform::Deadline deadline);

  NcclLink& link() { return link_; }
  const NcclApi& api() const { return link_.api(); }
  // How it was made: "ncclCommInitRankConfig" or "ncclCommShrink".
  const char* origin() const { return origin_; }
  // A number that is equal on all ranks, and as good as never that of another group.
  std::uint64_t id() const { return id_; }

  // After a failure: ends what is in flight. The communicator is revoked, for shrink(), if the
  // options want that and the library can do it; otherwise it is aborted.
  void end();
  // Aborts what end() has revoked.
  void finish_end() { link_.abort(platform::Duration(0)); }
  // Nothing failed: finalizes and destroys the communicator.
  void leave() { link_.leave(platform::Deadline::in(options_.end_timeout)); }

 private:
  Result<NcclUniqueId> meet(platform::Deadline deadline);

  NcclPeers& peers_;
  const NcclOptions& options_;
  NcclLink link_;
  const char* origin_ = "";
  std::uint64_t id_ = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
