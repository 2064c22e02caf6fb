// PassClock takes the times of a pass (T3): when each gradient and each bucket was ready, when
// buckets were launched and complete, and when backward ended. All times count from the moment at
// which the pass was armed.
//
// Threads: one call at a time; the reducer's mutex sees to that while a backward runs.
// Memory: reserve() takes all of it, so that no pass allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reducer/statistics.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class PassClock {
 public:
  void reserve(std::size_t gradients, std::size_t buckets);

  void arm() { armed_ = platform::now(); }
  void begin_pass(std::size_t gradients, std::size_t buckets);
  void gradient_ready(std::size_t gradient) { times_.gradients[gradient] = platform::now(); }
  void bucket_ready(std::size_t bucket) { times_.buckets[bucket].ready = platform::now(); }
  void bucket_launched(std::size_t bucket) { times_.buckets[bucket].launched = platform::now(); }
  void bucket_completed(std::size_t bucket, platform::Duration when) {
    times_.buckets[bucket].completed = when;
  }
  void backward_ended() { times_.backward_ended = platform::now(); }
  // The pass is complete, and becomes the last one.
  void end_pass(std::int64_t pass);

  void forget_last() { last_.pass = kNone; }
  const PassStatistics& last() const { return last_; }

 private:
  platform::Duration armed_{};  // On the platform's clock.
  PassStatistics times_;        // The times of the running pass, on the platform's clock.
  PassStatistics last_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
