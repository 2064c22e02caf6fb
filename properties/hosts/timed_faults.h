// TimedFaults: the faults that a host carries out just now, and what became of those that are over.
// `Active` has the fault as `fault`, and when it ends as `end`.
//
// Threads: one caller.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "faults/plan.h"
#include "properties/hosts/fault_report.h"
#include "properties/hosts/line.h"
#include "reducer/base/status.h"

namespace lockstep::properties::hosts {

template <class Active>
class TimedFaults {
 public:
  // When a fault ends that begins now; Clock::time_point::max() for one that does not by itself.
  static Clock::time_point end_of(const faults::Fault& fault) {
    return fault.duration_us == 0 ? Clock::time_point::max()
                                  : Clock::now() + std::chrono::microseconds(fault.duration_us);
  }

  // A fault has begun, or was refused.
  void add(Active active, const Status& begun) {
    if (begun.ok())
      active_.push_back(std::move(active));
    else
      reports_.push_back({active.fault.kind, 0, begun.failure().detail});
  }

  // Ends those whose time is over with `end`, which returns a FaultReport, and returns when the
  // next one is over; Clock::time_point::max(): never.
  template <class End>
  Clock::time_point end_those_due(const End& end) {
    const Clock::time_point now = Clock::now();
    Clock::time_point next = Clock::time_point::max();
    for (const Active& each : active_) {
      if (each.end <= now)
        reports_.push_back(end(each));
      else
        next = std::min(next, each.end);
    }
    std::erase_if(active_, [&](const Active& each) { return each.end <= now; });
    return next;
  }

  // Ends all, and returns the reports since the last call.
  template <class End>
  std::vector<FaultReport> end_all(const End& end) {
    for (const Active& each : active_) reports_.push_back(end(each));
    active_.clear();
    return std::exchange(reports_, {});
  }

 private:
  std::vector<Active> active_;
  std::vector<FaultReport> reports_;
};

}  // namespace lockstep::properties::hosts
