// CaseServer: a child process that runs cases on request, so that a subject that crashes or hangs
// takes nothing else with it. The child keeps its lane (stacks, connections) from case to case;
// after a crash or a hang a new one is started.
//
// Threads: one caller, in a process without other threads (it forks).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "properties/lane/lane.h"
#include "properties/report/outcome.h"

namespace lockstep::properties {

class CaseServer {
 public:
  CaseServer(LaneKind kind, Subject subject) : kind_(kind), subject_(std::move(subject)) {}
  ~CaseServer();
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
  Outcome run(const Case& c) { return run(c, Request(), default_limit()); }

  std::chrono::milliseconds default_limit() const;

 private:
  Status start();
  void stop();
  Outcome ended();
  bool is_interrupted_before_answer(std::chrono::milliseconds& limit) const;
  [[noreturn]] void serve(int fd);

  LaneKind kind_;
  Subject subject_;
  pid_t child_ = -1;
  int fd_ = -1;
};

// "killed by signal 11 (Segmentation fault)", "exited with status 3": what waitpid() says of a
// child.
std::string describe_end(int wait_status);

}  // namespace lockstep::properties
