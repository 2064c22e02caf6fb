// CasePool: runs cases on several subjects, several at once, each in a child process (CaseServer).
// A subject that crashes or hangs costs its case alone. A process runs case after case of one
// subject, and is replaced when cases of another one wait.
//
// Threads: one caller, in a process without other threads (it forks). The cases must outlive their
// jobs. After Ctrl-C (interrupt.h) the results prove nothing; the destructor ends all processes.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "properties/cli/server.h"

namespace lockstep::properties {

// A turn for CasePool::wait() in which Ctrl-C is answered soon.
inline constexpr std::chrono::milliseconds kTurnOfPool{100};

// Where cases run.
struct PoolStation {
  LaneKind lane = LaneKind::kSim;
  Subject subject;
};

struct PoolJob {
  std::size_t station = 0;
  std::size_t id = 0;  // the caller's
  const Case* value = nullptr;
};

struct PoolResult {
  PoolJob job;
  Outcome outcome;
};

class CasePool {
 public:
  CasePool(std::vector<PoolStation> stations, int jobs);

  void add(const PoolJob& job);
  // Begins as many jobs as may run at once, and waits up to `turn` for results.
  std::vector<PoolResult> wait(std::chrono::milliseconds turn);
  bool is_done() const;  // nothing waits, and nothing runs

 private:
  struct Slot {
    std::size_t station = 0;
    std::unique_ptr<CaseServer> server;
    std::optional<PoolJob> job;
  };
  void begin_next(Slot& slot);

  const std::vector<PoolStation> stations_;
  std::vector<std::deque<PoolJob>> waiting_;  // for each station
  std::vector<Slot> slots_;
};

}  // namespace lockstep::properties
