// CaseServer: a child process that runs cases on request, so that a subject that crashes or hangs
// takes nothing else with it. The child keeps its lane (stacks, connections) from case to case;
// after a crash or a hang a new one is started.
//
// Threads: one caller, in a process without other threads (it forks).
#pragma once

#include <chrono>
#include <string>

#include "properties/lane/child.h"
#include "properties/lane/lane.h"
#include "properties/report/outcome.h"

namespace lockstep::properties {

class CaseServer {
 public:
  CaseServer(LaneKind kind, Subject subject) : kind_(kind), subject_(std::move(subject)) {}
  CaseServer(const CaseServer&) = delete;
  CaseServer& operator=(const CaseServer&) = delete;

  struct Request {
    bool twice = false;     // check determinism, too
    bool events = false;    // bring the trace events
    bool detailed = false;  // and, of a failure, what the ranks tell
  };
  // Runs the case. A crash, or no answer within `limit`, is an Outcome as well (68, 66). After
  // Ctrl-C (interrupt.h) it does not wait: the child is killed, and the Outcome is inconclusive.
  Outcome run(const Case& c, Request request, std::chrono::milliseconds limit);
  // With the limit of the case (time_limit.h).
  Outcome run(const Case& c, Request request);
  Outcome run(const Case& c) { return run(c, Request()); }

 private:
  Outcome lost() const;
  Child::Received receive_unless_interrupted(std::string& answer, std::chrono::milliseconds limit);
  void serve(ChildLine& line);

  LaneKind kind_;
  Subject subject_;
  Child child_;
};

// The verdict of a case whose process was lost, or hung.
Verdict crash_of(const Child& child);
Verdict hang_of(std::chrono::milliseconds limit);
// Of a run that could not be: `what` is missing, and what to do.
Verdict not_run(const std::string& what);

}  // namespace lockstep::properties
