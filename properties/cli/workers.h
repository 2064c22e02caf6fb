// Workers: child processes that generate and run cases until time, number or a failure ends them.
//
// Case i of a seed is the same whoever runs it: worker k of n takes the indices k, k + n, k + 2n,
// ... What a worker does is seen through shared memory, so that the case at hand is known when the
// worker crashes or hangs.
//
// Threads: one caller, in a process without other threads (it forks).
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "properties/generate/generate.h"
#include "properties/lane/lane.h"
#include "properties/report/outcome.h"

namespace lockstep::properties {

struct WorkerPlan {
  LaneKind lane = LaneKind::kSim;
  Subject subject;
  GenerateOptions generate;
  std::uint64_t seed = 1;
  std::uint64_t cases = 0;  // 0: until stopped
  int jobs = 1;
};

struct Totals {
  std::uint64_t cases = 0;
  std::uint64_t ok = 0;          // without a fault that fired
  std::uint64_t faulted_ok = 0;  // with one
  std::uint64_t pairs = 0;       // run twice and compared
  std::uint64_t mismatches = 0;
  std::uint64_t compared = 0;        // with another subject, those that both ran
  std::uint64_t compared_whole = 0;  // and of these, to the last step
  std::uint64_t coverage_cases = 0;  // the share of cases whose features were counted
  std::array<std::uint64_t, faults::kKinds> fired{};
  PlantedBug planted;
  std::map<std::string, std::uint64_t> coverage;
};

struct Found {
  std::uint64_t index = 0;
  Outcome outcome;
};

class Workers {
 public:
  explicit Workers(WorkerPlan plan);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  Status start();
  // Waits for news up to `limit`: a failing case, or nothing. A worker that ended or hung is
  // replaced.
  std::optional<Found> wait(std::chrono::milliseconds limit);
  bool all_done() const;
  void stop();  // after the case at hand; kills what does not come back
  Totals totals() const;

 private:
  struct Shared;
  struct Slot {
    pid_t pid = -1;
    int fd = -1;
    bool done = false;
  };
  Status launch(int worker, std::uint64_t first);
  [[noreturn]] void work(int worker, std::uint64_t first, int fd);
  std::optional<Found> collect(int worker);
  std::optional<Found> find_hung();
  Found lost(int worker, Verdict verdict);
  void reap(int worker);

  WorkerPlan plan_;
  Shared* shared_ = nullptr;
  std::vector<Slot> slots_;
};

}  // namespace lockstep::properties
