// NcclPeers is what the ranks of a group tell each other through the store, as NCCL tells them
// little: who has come, the id of the communicator, why a rank failed, which ranks leave or shrink
// the group, and after how many collectives.
//
//   here/R              rank R has come to connect
//   id                  the communicator's id, or why rank 0 has none
//   failure             the first failure of the group
//   shrinks             R N: rank R makes a smaller group, and has entered N collectives
//   shrinks/R           what rank R can do about a smaller group
//   left/R              the number of collectives that rank R had entered when it left
//
// Threads: the thread that connects; after that the watchdog. announce_departure() by any thread.
// Failure: a group does not depend on its store once it is connected. A store that fails then is
// ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "reducer/base/status.h"
#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/comm/nccl/nccl_process_group.h"
#include "reducer/comm/store.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclPeers {
 public:
  // `options` outlives this object.
  NcclPeers(std::shared_ptr<Store> store, int rank, int size, const NcclOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Connecting.

  void announce_presence();
  // Rank 0 gives the others the id, or the error that it has instead, which this returns then.
  Status send_id(const NcclUniqueId& id, const Status& error);
  Result<NcclUniqueId> receive_id(platform::Deadline deadline);
  // Returns an error if the attempt must end: a peer has failed, or the deadline has passed.
  Status check_connecting(platform::Deadline deadline);
  // Notifies the other ranks that this one could not connect, so that they do not wait for it.
  // Returns the first cause. Call it before the communicator ends, as other ranks may have theirs
  // already, and would otherwise see a peer leave that has named no cause.
  Status report_unconnected(Status status);

  // What can be used again of a group that is to be shrunk.
  struct Remains {
    bool can_be_shrunk = false;  // Whether NCCL can shrink it.
    bool is_healthy = false;
  };
  // Returns what all remaining ranks have. All must choose the same way, so each announces what it
  // can do, once it has nothing in flight on the parent any more. After this, all remaining ranks
  // have completed the parent's collectives.
  Result<Remains> remains_of_all(Remains own, platform::Deadline deadline);

  // Failures.

  // Returns an error if another rank has failed, or if it makes a smaller group and does not enter
  // the collective with this sequence number. It asks the store once in each NcclOptions::notice.
  Status check(std::int64_t sequence);
  // Writes why this rank failed, and returns the first cause. If another rank has written before,
  // that is its failure, unless it is not definite and `own` is.
  Status publish(Status own, const Failure& for_peers);

  // Leaving.

  // Says that this rank shrinks the healthy group, and has completed so many collectives; its last
  // messages of these may still be in flight. It enters no later collective.
  void announce_shrink(std::int64_t entered);
  void announce_departure(std::int64_t entered);
  // The lowest rank that has left the group and never entered this collective, or kNone.
  int first_gone_before(std::int64_t sequence);

 private:
  std::string key(const char* of) const { return options_.name + "/" + of; }
  std::string key(const char* of, int rank) const { return key(of) + std::to_string(rank); }
  Status look_for_failure();
  Status look_for_shrink(std::int64_t sequence);
  Failure late();
  bool has_left_before(std::int64_t sequence, int peer);
  Failure told(const std::string& bytes) const;

  const std::shared_ptr<Store> store_;
  const int rank_;
  const int size_;
  const NcclOptions& options_;
  const std::string failure_key_;
  platform::Duration next_notice_{0};  // When the store is asked next for a failure.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
