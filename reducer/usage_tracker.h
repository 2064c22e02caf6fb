// UsageTracker knows which parameters a pass uses: on this rank (G6), and on any rank, by the usage
// map, which is summed over all ranks (G5, T2).
//
// In dynamic mode (find_unused_parameters) every pass has a usage map; a rank waits for the sum
// only if there is a parameter that it did not use itself. In static mode the first pass has one,
// and the parameters that some rank used in it are those that are reduced from then on (P11). In
// plain mode there is no map, and every parameter counts as used.
//
// Threads: map() and is_surely_used() by hooks too, as the reducer's mutex and the order of hooks
// allow. All else belongs to the thread that trains, while no hook runs.
// Memory: start() allocates all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "reducer/comm/process_group.h"
#include "reducer/core/pass_core.h"
#include "reducer/gradient_search.h"
#include "reducer/replica_set.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class UsageTracker {
 public:
  UsageTracker(core::Mode mode, ReplicaSet& replicas) : mode_(mode), replicas_(replicas) {}

  // Call it once, when the replicas are built.
  void start();

  bool tracks_use() const { return mode_ != core::Mode::kPlain; }
  // Static mode: notes for all parameters whether this rank uses them. The hook of a parameter
  // notes it otherwise, when the gradients of all replicas are ready.
  void note_all_uses(bool is_shadowing) const;
  // Whether some rank is known to use the parameter.
  bool is_surely_used(const ReducedParameter& reduced) const {
    if (mode_ == core::Mode::kPlain) return true;
    return mode_ == core::Mode::kStatic ? reduced.in_use : reduced.used;
  }

  // The sum that tells each rank how many ranks used each parameter. Its data belongs to this.
  Collective map();
  // Static mode: the sum is complete, and says what is reduced from now on.
  void keep_map() const;

  // While sums are copied back: whether this parameter's sum is wanted as far as is known, whether
  // the map must be complete to say so, and what the map says.
  bool is_reduced(const ReducedParameter& reduced) const {
    return mode_ != core::Mode::kStatic || reduced.in_use;
  }
  void begin_unpack() { is_map_pending_ = mode_ == core::Mode::kDynamic && !replicas_.empty(); }
  bool needs_map(const ReducedParameter& reduced) const {
    return mode_ == core::Mode::kDynamic && !reduced.used;
  }
  // Whether nobody has waited for the map yet. Whoever asks has to wait for it then.
  bool take_pending_map() { return std::exchange(is_map_pending_, false); }
  bool is_used_by_some(std::size_t parameter) const { return map_[parameter] != 0; }
  // The last sum that is complete; zeros in plain mode.
  std::span<const std::int32_t> counts() const { return map_; }

  GradientSearch& search() { return search_; }

 private:
  const core::Mode mode_;
  ReplicaSet& replicas_;
  GradientSearch search_;          // Finds what the outputs of a pass lead to.
  std::vector<std::int32_t> map_;  // One entry for each reduced parameter.
  bool is_map_pending_ = false;    // True if a sum is awaited of which nobody has waited yet.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
