// NcclGroups: creates the NCCL groups of one rank, and remembers the last group of each series. A
// series is the groups that follow one another in the recoveries of one reducer. The case's
// environment says what is made of a group that has fewer ranks than its predecessor: either the
// predecessor is shrunk (F4), or the ranks connect anew. It also says which ranks keep
// communicators for this: if every other rank alone does, those who remain have to agree on a new
// one.
//
// A job may also continue with fewer ranks although nothing has failed. Where the environment says
// so, all last groups do so at the end, without the last rank of each. Either nobody waits for that
// rank, or it starts one more collective when the others have gone. A rank that leaves may be named
// twice, which means the same. If the first two ranks have an NCCL without ncclCommShrink, all of
// their group connect anew.
//
// All remaining ranks must call shrink() together. Each rank writes into the store of a group that
// it has created the group, and all ranks see the same keys for the last group, because they have
// met since.
//
// Threads: the rank's own. Ownership: the GPU outlives it; it shares ownership of the last groups.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "properties/case/environment.h"
#include "reducer/comm/nccl/nccl_process_group.h"
#include "reducer/comm/store.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclGroups {
 public:
  NcclGroups(const NcclApi& api, Device& gpu, const properties::Environment& environment,
             std::uint32_t rank)
      : api_(api), gpu_(gpu), environment_(environment), keeps_(keeps(environment, rank)) {
    if (environment.lacks_shrink && rank < 2) api_.comm_shrink = nullptr;
  }

  struct Place {
    std::int64_t series = 0;
    std::uint32_t generation = 0;
    std::vector<std::uint32_t> members;  // original ranks, ascending
    int rank = 0;                        // its position in `members`
    std::shared_ptr<Store> store;
  };
  // make() sets the options' keeps_for_shrink.
  Result<std::shared_ptr<NcclProcessGroup>> make(const Place& place, NcclOptions options);

  // Creates the smaller groups of a program that scales down, and runs an all-reduce in each. The
  // ranks that leave have ended their last step, or are in it.
  Status scale_down(NcclOptions options);

  std::uint32_t scaled_down() const { return scaled_down_; }
  // Return how many groups shrink() created, and how many of those ncclCommShrink created.
  std::uint32_t shrunk() const { return shrunk_; }
  std::uint32_t shrunk_by_nccl() const { return shrunk_by_nccl_; }

 private:
  struct Last {
    std::shared_ptr<NcclProcessGroup> group;
    std::string name;
    Place place;
  };
  static bool keeps(const properties::Environment& environment, std::uint32_t rank) {
    using enum properties::Environment::Keeps;
    return environment.keeps == kAllRanks || (environment.keeps == kEvenRanks && rank % 2 == 0);
  }
  static bool can_shrink(const Last& last, const Place& place);
  static Status start_in_the_old_one(ProcessGroup& old);
  Status make_smaller(const Last& last, const NcclOptions& options);
  static Status start_one_more(const Last& last, const NcclOptions& options);
  static std::string key_of(const std::string& name, std::size_t rank) {
    return name + "/made/" + std::to_string(rank);
  }

  NcclApi api_;
  Device& gpu_;
  const properties::Environment environment_;
  const bool keeps_;                   // whether this rank keeps its communicators
  std::map<std::int64_t, Last> last_;  // by series
  std::uint32_t shrunk_ = 0;
  std::uint32_t shrunk_by_nccl_ = 0;
  std::uint32_t scaled_down_ = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
