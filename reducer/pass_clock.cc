#include "reducer/pass_clock.h"

#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void PassClock::reserve(std::size_t gradients, std::size_t buckets) {
  for (PassStatistics* each : {&times_, &last_}) {
    each->gradients.reserve(gradients);
    each->buckets.reserve(buckets);
  }
}

void PassClock::begin_pass(std::size_t gradients, std::size_t buckets) {
  LOCKSTEP_CHECK_LE(gradients, times_.gradients.capacity());  // reserve() has taken the memory.
  LOCKSTEP_CHECK_LE(buckets, times_.buckets.capacity());
  times_.gradients.assign(gradients, {});
  times_.buckets.assign(buckets, {});
}

// A frozen parameter has no time, and keeps 0.
void PassClock::end_pass(std::int64_t pass) {
  times_.pass = pass;
  times_.armed = armed_;
  times_.finished = platform::now();
  for (platform::Duration& ready : times_.gradients)
    if (ready != platform::Duration()) ready -= armed_;
  for (PassStatistics::Bucket& bucket : times_.buckets) {
    bucket.ready -= armed_;
    if (bucket.launched == platform::Duration()) continue;  // It was skipped.
    bucket.launched -= armed_;
    bucket.completed -= armed_;
  }
  LOCKSTEP_CHECK(times_.backward_ended >= armed_);
  LOCKSTEP_CHECK(times_.finished >= times_.backward_ended);
  times_.backward_ended -= armed_;
  times_.finished -= armed_;
  std::swap(times_, last_);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
