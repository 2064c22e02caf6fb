// HangWatch tells a process that hangs from one that only waits for a processor. On a busy machine
// a case may take many times as long as its limit allows.
//
// The time for which the threads of a process group could have run, but had no processor, does not
// count towards the limit; it is that of the thread that waited longest, measured since half of the
// limit was over. A process in a deadlock waits for no processor, and so it counts as hung at its
// limit. A case that takes four times its limit because it waited is inconclusive.
//
// A case of the simulator waits for nothing outside of its process: one that neither computes nor
// waits for a processor for some seconds hangs, long before its limit.
//
// Threads: one caller. Failure: none; where the system does not count (no
// /proc/PID/task/*/schedstat), every limit is as it is.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "properties/process/case_timer.h"
#include "properties/process/processor_time.h"

namespace lockstep::properties {

class HangWatch {
 public:
  enum class Found : std::uint8_t {
    kNothing,
    kHung,
    kIdle,  // it hung, and has used no processor for the idle limit
    kStarved
  };

  explicit HangWatch(std::string processes = "/proc") : processes_(std::move(processes)) {}

  // Call it some times a second while the case runs in this process group, at first before half of
  // its limit is over. It notices when another case has begun. A case of which nothing waits for
  // time may be idle for no longer than `idle_limit`; 0: for ever.
  Found look(pid_t group, CaseTimer::Running running,
             CaseTimer::Milliseconds idle_limit = CaseTimer::Milliseconds(0));

 private:
  using Times = std::map<std::string, ProcessorTime>;  // by thread
  Times times_of(pid_t group) const;
  bool is_idle(pid_t group, CaseTimer::Milliseconds taken, CaseTimer::Milliseconds limit);

  struct HalfWay {
    CaseTimer::Milliseconds taken;
    Times times;
  };
  struct Work {  // how much the group had computed, or wanted to, by a time
    CaseTimer::Milliseconds taken;
    double seconds = 0;
  };
  std::string processes_;            // a folder as /proc
  std::optional<HalfWay> half_way_;  // how it was when half of the limit was over
  std::optional<Work> work_;         // when it was last seen to compute
};

}  // namespace lockstep::properties
