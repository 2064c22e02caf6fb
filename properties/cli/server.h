// CaseServer: a child process that runs cases on request, so that a subject that crashes or hangs
// does not take the caller with it. The child reuses its lane (stacks, connections) from case to
// case. After a crash or a hang a new child is started.
//
// Threads: one caller, in a process without other threads (it forks).
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "properties/lane/lane.h"
#include "properties/lane/nccl_lane.h"
#include "properties/process/child.h"
#include "properties/process/hang_watch.h"
#include "properties/report/outcome.h"

namespace lockstep::properties {

class CaseServer {
 public:
  CaseServer(LaneKind kind, Subject subject) : kind_(kind), subject_(std::move(subject)) {}
  CaseServer(const CaseServer&) = delete;
  CaseServer& operator=(const CaseServer&) = delete;

  struct Request {
    bool twice = false;      // also check determinism
    bool events = false;     // return the trace events
    bool detailed = false;   // and, for a failure, the flight records of the ranks
    bool gradients = false;  // return what the gradients came to
  };
  // Runs the case. A crash, or no answer within `limit`, is an Outcome as well (68, 66); for what
  // the process waits for a processor it has more time (hang_watch.h). After
  // Ctrl-C (interrupt.h) it does not wait: it kills the child, and the Outcome is inconclusive.
  Outcome run(const Case& c, Request request, std::chrono::milliseconds limit);
  // Like the above, with the limit of the case (time_limit.h).
  Outcome run(const Case& c, Request request);
  Outcome run(const Case& c) { return run(c, Request()); }

  // The same in two calls, for a caller with several servers: begin(), then wait() until it returns
  // the Outcome. The limit counts from begin(). One case at a time.
  void begin(const Case& c, Request request, std::chrono::milliseconds limit);
  void begin(const Case& c, Request request);
  // Waits for up to `turn`. Returns nothing while the case runs.
  std::optional<Outcome> wait(std::chrono::milliseconds turn);
  int fd() const { return child_.fd(); }  // for poll(), between the two; -1 without a child

 private:
  using Clock = std::chrono::steady_clock;
  Outcome lost();
  Outcome given_up(Verdict verdict);
  void serve(ChildLine& line);

  LaneKind kind_;
  Subject subject_;
  Child child_{remove_net_plan_of};
  std::chrono::milliseconds limit_{0};  // of the case that runs
  Clock::time_point start_;             // when it began
  HangWatch watch_;
  std::string not_started_;  // why the case could not begin; empty if it could
};

// Runs the case in this process, for a debugger: there is no limit, and a crash is one of this
// process. It opens the subject's library here.
Outcome run_in_this_process(const Case& c, CaseServer::Request request, LaneKind lane,
                            Subject subject);

// The verdict on a case whose process was lost, hung, or waited for a processor for too long.
// The stacks are the process's (Child::take_stacks); `taken` is how long it had run.
Verdict crash_of(Child& child, const Subject& subject);
Verdict hang_of(HangWatch::Found found, std::chrono::milliseconds taken, LaneKind lane,
                const std::string& stacks);
Verdict starved_of(std::chrono::milliseconds limit);
// The verdict on a run that was impossible: `what` says what is missing, and what to do.
Verdict not_run(const std::string& what);
// A failure proves nothing if the machine has run out of what the lane with so many jobs needs:
// then the verdict is that the case was not run.
Outcome unless_machine_lacks(Outcome outcome, LaneKind lane, const Subject& subject, int jobs);

}  // namespace lockstep::properties
