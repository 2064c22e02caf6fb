// Workers: child processes that generate and run cases until time, number or a failure ends them.
//
// Case i of a seed is the same whoever runs it: worker k of n takes the indices k, k + n, k + 2n,
// ... What a worker does is seen through shared memory, so that the case at hand is known when the
// worker crashes or hangs. A worker is done only when it has said so (child.h); each case has a
// limit (time_limit.h), at the end of the run, too.
//
// Threads: one caller, in a process without other threads (it forks).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "properties/generate/generate.h"
#include "properties/lane/child.h"
#include "properties/lane/lane.h"
#include "properties/report/outcome.h"

namespace lockstep::properties {

class CaseRunner;

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
  // Waits for news up to `limit`: a failing case, or nothing. A worker that crashed or hung is
  // replaced. The verdict "inconclusive" is of a worker that could not go on: the run has to end.
  std::optional<Found> wait(std::chrono::milliseconds limit);
  bool all_done() const;

  // No more cases are begun. Those in flight still have their limits: go on with wait().
  void finish();
  // A case in flight, by worker.
  struct InFlight {
    std::uint64_t index = 0;
    std::chrono::milliseconds since{0};
    std::chrono::milliseconds left{0};  // until it counts as hung
  };
  std::vector<InFlight> in_flight() const;

  // Gives the cases in flight two seconds, then kills the workers.
  struct Stopped {
    std::vector<Found> found;          // in these two seconds
    std::vector<InFlight> unanswered;  // cases that gave no answer
  };
  Stopped stop();
  // Why a worker that was lost could not be replaced; empty: none.
  const std::string& problem() const { return problem_; }
  Totals totals() const;

 private:
  struct Shared;
  struct Slot {
    std::unique_ptr<Child> child;
    bool done = false;
  };
  Status launch(int worker, std::uint64_t first);
  void work(int worker, std::uint64_t first, ChildLine& line);
  void count(int worker, const Case& c, const CaseRunner& runner, const Verdict& verdict);
  std::optional<Found> collect(int worker);
  std::optional<Found> read(int worker, const std::string& text);
  std::optional<Found> find_hung();
  Found lost(int worker, std::uint64_t index, Verdict verdict);

  WorkerPlan plan_;
  Shared* shared_ = nullptr;
  std::vector<Slot> slots_;
  std::string problem_;
};

}  // namespace lockstep::properties
