#include "reducer/usage_tracker.h"

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void UsageTracker::start() {
  LOCKSTEP_CHECK(map_.empty());
  map_.resize(replicas_.size());
  for (std::size_t i = 0; i < replicas_.gradient_count(); ++i)
    search_.add(replicas_.gradient(i).parameter.get());
}

void UsageTracker::note_all_uses(bool is_shadowing) const {
  LOCKSTEP_CHECK(mode_ == core::Mode::kStatic);
  for (ReducedParameter& reduced : replicas_) {
    reduced.used = false;
    replicas_.each_replica(reduced, [&](const ReplicaGradient& replica) {
      reduced.used = reduced.used || (!is_shadowing && replica.parameter->used());
    });
  }
}

Collective UsageTracker::map() {
  LOCKSTEP_CHECK(tracks_use());
  LOCKSTEP_CHECK_EQ(map_.size(), replicas_.size());
  for (std::size_t i = 0; i < replicas_.size(); ++i) map_[i] = replicas_[i].used ? 1 : 0;
  Collective collective;
  collective.dtype = DType::kInt32;
  collective.count = map_.size();
  collective.data = reinterpret_cast<std::byte*>(map_.data());
  return collective;
}

void UsageTracker::keep_map() const {
  LOCKSTEP_CHECK(mode_ == core::Mode::kStatic);
  LOCKSTEP_CHECK_EQ(map_.size(), replicas_.size());
  for (std::size_t i = 0; i < replicas_.size(); ++i) replicas_[i].in_use = map_[i] != 0;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
