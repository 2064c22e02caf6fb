// HangWatch tells a process that hangs from one that only waits for a processor. On a busy machine
// a case may take many times as long as its limit allows.
//
// The time for which the threads of a process group could have run, but had no processor, does not
// count towards the limit; it is that of the thread that waited longest, measured since half of the
// limit was over. A process in a deadlock waits for no processor, and so it counts as hung at its
// limit. A case that takes four times its limit because it waited is inconclusive.
//
// Threads: one caller. Failure: none; where the system does not count (no
// /proc/PID/task/*/schedstat), every limit is as it is.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "properties/process/case_timer.h"

namespace lockstep::properties {

class HangWatch {
 public:
  enum class Found : std::uint8_t { kNothing, kHung, kStarved };

  explicit HangWatch(std::string processes = "/proc") : processes_(std::move(processes)) {}

  // Call it some times a second while the case runs in this process group, at first before half of
  // its limit is over. It notices when another case has begun.
  Found look(pid_t group, CaseTimer::Running running);

 private:
  using Waits = std::map<std::string, double>;  // in seconds, by thread
  Waits waits_of(pid_t group) const;

  struct HalfWay {
    CaseTimer::Milliseconds taken;
    Waits waits;
  };
  std::string processes_;            // a folder as /proc
  std::optional<HalfWay> half_way_;  // how it was when half of the limit was over
};

}  // namespace lockstep::properties
