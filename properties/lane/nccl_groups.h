// NcclGroups: creates the NCCL groups of one rank, and remembers the last group of each series. A
// series is the groups that follow one another in the recoveries of one reducer. If a group has
// fewer ranks than its predecessor, half of the programs shrink the predecessor (F4) and the others
// connect anew; half of them keep communicators for this, in a part of them on every other rank
// alone: then those who remain have to agree on a new one. The program's key decides.
//
// A job may also continue with fewer ranks although nothing has failed. In half of the programs all
// last groups do so at the end, without the last rank of each. In half of these nobody waits for
// that rank; in the others it starts one more collective when the others have gone. Half of the
// programs name a rank that leaves twice, which means the same. In one program of eight the first
// two ranks have an NCCL without ncclCommShrink: then all of their group connect anew.
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

#include "reducer/comm/nccl/nccl_process_group.h"
#include "reducer/comm/store.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclGroups {
 public:
  NcclGroups(const NcclApi& api, Device& gpu, std::uint32_t key, std::uint32_t rank)
      : api_(api),
        gpu_(gpu),
        shrinks_((key >> 8 & 1) != 0),
        keeps_((key >> 9 & 1) != 0 && ((key >> 11 & 1) != 0 || rank % 2 == 0)),
        scales_down_((key >> 10 & 1) != 0),
        is_late_((key >> 23 & 1) != 0),
        names_twice_((key >> 24 & 1) != 0),
        cannot_all_shrink_((key >> 25 & 7) == 1) {
    if (cannot_all_shrink_ && rank < 2) api_.comm_shrink = nullptr;
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
  static bool can_shrink(const Last& last, const Place& place);
  static Status start_in_the_old_one(ProcessGroup& old);
  Status make_smaller(const Last& last, const NcclOptions& options);
  static Status start_one_more(const Last& last, const NcclOptions& options);
  static std::string key_of(const std::string& name, std::size_t rank) {
    return name + "/made/" + std::to_string(rank);
  }

  NcclApi api_;
  Device& gpu_;
  const bool shrinks_;
  const bool keeps_;
  const bool scales_down_;
  const bool is_late_;                 // whether the rank that leaves starts one more collective
  const bool names_twice_;             // whether a rank that leaves is excluded twice
  const bool cannot_all_shrink_;       // whether the first two ranks have no ncclCommShrink
  std::map<std::int64_t, Last> last_;  // by series
  std::uint32_t shrunk_ = 0;
  std::uint32_t shrunk_by_nccl_ = 0;
  std::uint32_t scaled_down_ = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
