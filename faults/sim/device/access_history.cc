#include "faults/sim/device/access_history.h"

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

void AccessHistory::add(const Access& access, const VectorClock& clock,
                        const std::function<void(const Access& earlier)>& conflict) {
  LOCKSTEP_CHECK_LT(access.begin, access.end);
  next_.clear();
  for (Access& earlier : kept_) {
    if (earlier.end <= access.begin || access.end <= earlier.begin) {
      next_.push_back(std::move(earlier));
      continue;
    }
    const bool is_same = earlier.actor == access.actor;
    const bool is_before = is_same || clock.at(earlier.actor->line) >= earlier.actor->sequence;
    if (!is_before && (earlier.is_write || access.is_write)) conflict(earlier);
    if (!is_before || (earlier.is_write && !access.is_write)) {
      next_.push_back(std::move(earlier));
      continue;
    }
    // The part outside of the new access remains.
    if (earlier.begin < access.begin) {
      next_.push_back(earlier);
      next_.back().end = access.begin;
    }
    if (access.end < earlier.end) {
      next_.push_back(std::move(earlier));
      next_.back().begin = access.end;
    }
  }
  next_.push_back(access);
  kept_.swap(next_);
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
