// HostSideCheck: whether a group that goes through host memory (reducer/comm/staged_group.h) keeps
// to what the group below it promises: it gives that group no memory of a device, and does not end
// it where it was destroyed itself with nothing in flight (F5). Where nothing fails it takes no
// more pinned memory than its collectives need (F8).
//
// Threads: as ProcessGroup says; the sentence is written by one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "faults/sim/device/sim_device.h"
#include "reducer/base/check.h"
#include "reducer/comm/forwarding_group.h"
#include "reducer/device/grow.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The collectives that a rank starts, and the pinned memory by which they go.
class StagedUses {
 public:
  explicit StagedUses(simulated::SimDevice& gpu) : gpu_(gpu) {}
  // Returns the number of a group, which has memory of its own.
  std::size_t add_group() {
    counts_.emplace_back();
    return counts_.size() - 1;
  }
  void add(std::size_t group, const Collective& collective) {
    LOCKSTEP_CHECK_LT(group, counts_.size());
    Count& count = counts_[group];
    count.most = std::max(count.most, ++count.now);
    const std::uint64_t allocation = gpu_.pinned_allocation(collective.data);
    if (allocation == 0) return;
    allocations_.insert(allocation);
    sizes_.insert(grown_size(collective.count * size_of(collective.dtype)));
  }
  void begin_step() {
    for (Count& count : counts_) count.now = 0;
  }

  // Each collective in flight has memory for what it sends, which later ones use again, and only a
  // larger one takes other memory in its place (F8). A step waits for all that it starts. Returns a
  // sentence about memory beyond that, or an empty text.
  std::string flaw() const {
    std::size_t most = 0;
    for (const Count& count : counts_) most += count.most;
    if (allocations_.size() <= most * sizes_.size()) return {};
    return "pinned memory was taken " + std::to_string(allocations_.size()) + " times, and " +
           std::to_string(counts_.size()) + " groups had no more than " + std::to_string(most) +
           " collectives in a step, of " + std::to_string(sizes_.size()) + " sizes";
  }

 private:
  struct Count {
    std::size_t now = 0;   // collectives of this step
    std::size_t most = 0;  // of one step
  };

  simulated::SimDevice& gpu_;
  std::vector<Count> counts_;  // by group
  std::set<std::uint64_t> allocations_;
  std::set<std::size_t> sizes_;
};

class HostSideCheck final : public ForwardingGroup {
 public:
  // The first sentence about what is wrong goes to `wrong`, which outlives the group.
  HostSideCheck(std::shared_ptr<ProcessGroup> inner, StagedUses& uses, std::string& wrong)
      : ForwardingGroup(std::move(inner)), uses_(uses), group_(uses.add_group()), wrong_(wrong) {}
  Status start(const Collective& collective, Work& work) override {
    const bool is_reached = collective.device == nullptr || can_reach(*collective.device);
    if (!is_reached) note("a group is given memory of a device that it cannot reach");
    uses_.add(group_, collective);
    last_ = &work;
    return ForwardingGroup::start(collective, work);
  }
  void abort(const Status& cause) override {
    const bool is_let_go = cause.failure().detail == "the process group was destroyed";
    if (is_let_go && (last_ == nullptr || last_->done()))
      note("a group that was destroyed with nothing in flight has ended the one below it");
    ForwardingGroup::abort(cause);
  }

 private:
  void note(const char* what) {
    if (wrong_.empty()) wrong_ = what;
  }

  StagedUses& uses_;
  const std::size_t group_;
  std::string& wrong_;
  Work* last_ = nullptr;  // collectives end in the order in which they were started
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
