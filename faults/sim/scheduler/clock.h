// Clock: the virtual time, and the timers that wait for it.
//
// Time stands still while anything can run; the scheduler calls advance() when nothing can. There
// is one timer per index: the fibers have the first indices, the groups the next ones (a paused
// group waits to go on). Threads: the caller serializes all calls. Cost: arming and cancelling set
// one bit; advance() looks at every armed timer, and there are few.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "faults/sim/scheduler/index_set.h"

namespace lockstep::simulation {

using Duration = std::chrono::nanoseconds;
constexpr Duration kNever = Duration::max();

constexpr std::uint32_t kMaxFibers = 4096;  // the most that can be alive at a time
constexpr std::uint32_t kMaxGroups = 1024;

class Clock {
 public:
  void reset() {
    now_ = Duration(0);
    armed_.clear();
  }
  Duration now() const { return now_; }
  bool idle() const { return armed_.empty(); }

  // `timer` must not be armed. A time in the past expires at the next advance(), and the clock does
  // not go back for it.
  void arm(std::uint32_t timer, Duration at) {
    at_[timer] = at;
    armed_.insert(timer);
  }
  bool is_armed(std::uint32_t timer) const { return armed_.contains(timer); }
  void cancel(std::uint32_t timer) { armed_.erase(timer); }
  Duration at(std::uint32_t timer) const { return at_[timer]; }

  // Advances to the earliest armed time. Disarms every timer that expires then, and calls
  // expired(timer) for each, in ascending order. The clock must not be idle.
  template <class Expired>
  void advance(Expired expired) {
    Duration next = kNever;
    armed_.for_each([&](std::uint32_t timer) {
      if (at_[timer] < next) next = at_[timer];
    });
    if (next > now_) now_ = next;
    armed_.for_each([&](std::uint32_t timer) {
      if (at_[timer] > now_) return;
      armed_.erase(timer);
      expired(timer);
    });
  }

 private:
  Duration now_{0};
  IndexSet<(kMaxFibers + kMaxGroups) / 64> armed_;
  std::array<Duration, kMaxFibers + kMaxGroups> at_{};
};

}  // namespace lockstep::simulation
