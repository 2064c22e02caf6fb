// Workers: child processes that generate and run cases until the time, the number of cases or a
// failure ends them.
//
// Case i of a seed is the same whichever worker runs it. Each worker takes the next case when it
// has ended one, so that the cases that have begun always are the first ones of the run. Shared
// memory shows what a worker does, so that the current case is known when the worker crashes or
// hangs. A worker is done only when it has reported so (child.h). Each case has a limit
// (time_limit.h), also at the end of the run.
//
// A part of a campaign (campaign/) runs every n-th case of a seed. The n-th case of a run is at a
// position, which WorkerPlan::index_at() turns into the index of the case under the seed.
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

#include "properties/case/switched.h"
#include "properties/generate/generate.h"
#include "properties/lane/lane.h"
#include "properties/oracle/metamorphic.h"
#include "properties/process/child.h"
#include "properties/process/hang_watch.h"
#include "properties/report/outcome.h"
#include "properties/shrink/size.h"

namespace lockstep::properties {

class CaseRunner;

struct WorkerPlan {
  LaneKind lane = LaneKind::kSim;
  Subject subject;
  GenerateOptions generate;
  std::uint64_t seed = 1;
  std::uint64_t cases = 0;  // 0: until stopped
  int jobs = 1;
  std::optional<Case> around;  // if set, the cases are its neighbours (neighbour.h)
  // Every `stride`-th index, from `offset` on; positions from `first` on.
  std::uint64_t stride = 1;
  std::uint64_t offset = 0;
  std::uint64_t first = 0;
  bool finds_smallest = false;  // see Totals::smallest

  std::uint64_t index_at(std::uint64_t position) const { return offset + position * stride; }
  // Returns whether all cases run a second time, with an option switched.
  bool is_metamorphic() const { return !generate.switched.empty(); }
};

// Case `index` of the plan.
Case case_of(const WorkerPlan& plan, std::uint64_t index);

struct Totals {
  std::uint64_t cases = 0;
  std::uint64_t ok = 0;          // without a fault that fired
  std::uint64_t faulted_ok = 0;  // with a fault that fired
  std::uint64_t pairs = 0;       // cases that ran twice and were compared
  std::uint64_t mismatches = 0;
  std::uint64_t reruns = 0;  // CaseRunner::reruns()
  // With another subject, the cases that both subjects ran; of a metamorphic plan, those that ran
  // twice.
  std::uint64_t compared = 0;
  std::uint64_t compared_whole = 0;  // those of them that ran to the last step
  // Of a metamorphic plan: how many cases were compared by the switched option, and how many were
  // not, by reason.
  std::array<std::uint64_t, kMaxSwitchable + 1> switched{};
  std::array<std::uint64_t, kNotComparableReasons> not_comparable{};
  std::uint64_t interleaved = 0;     // how many programs interleave forwards and backward calls
  std::uint64_t coverage_cases = 0;  // how many cases had their features counted
  std::array<std::uint64_t, faults::kKinds> fired{};
  faults::StateCounts in_state{};
  // How often the oracles could not judge something, by reason.
  std::array<std::uint64_t, kUnspecifiedReasons> unspecified{};
  std::uint64_t errors = 0;  // how many errors of ranks the oracles judged
  PlantedBug planted;
  std::map<std::string, std::uint64_t> coverage;
  std::map<std::string, std::map<std::string, std::uint64_t>> coverage_by_fault;
  // For each feature: the indices of the smallest cases that had it, one of each worker; only with
  // WorkerPlan::finds_smallest, and only of cases whose features were counted.
  std::map<std::string, std::vector<std::uint64_t>> smallest;
  // The position behind the last case that has begun.
  std::uint64_t next = 0;
};

// Returns whether the features of the case at this index are counted: one in sixteen, spread evenly
// over all indices and over those of every part.
bool counts_features(std::uint64_t index);

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
  // Waits up to `limit` for a failing case; may return nothing. A worker that crashed or hung is
  // replaced. The verdict "inconclusive" comes from a worker that could not continue: the run must
  // end.
  std::optional<Found> wait(std::chrono::milliseconds limit);
  bool all_done() const;

  // Begins no more cases. The cases in flight still have their limits: continue with wait().
  void finish();
  // A case in flight, one per worker.
  struct InFlight {
    std::uint64_t index = 0;
    std::chrono::milliseconds since{0};
    std::chrono::milliseconds left{0};  // until it counts as hung
  };
  std::vector<InFlight> in_flight() const;

  // Gives the cases in flight two seconds, then kills the workers.
  struct Stopped {
    std::vector<Found> found;          // in these two seconds
    std::vector<InFlight> unanswered;  // cases without a result
  };
  Stopped stop();
  // Why a lost worker could not be replaced; empty if none was lost for good.
  const std::string& problem() const { return problem_; }
  Totals totals() const;
  // How many features were seen so far; cheaper than totals().
  std::size_t features_seen() const;

 private:
  struct Shared;
  struct Slot {
    std::unique_ptr<Child> child;
    bool done = false;
    HangWatch watch;
  };
  Status launch(int worker);
  void work(int worker, ChildLine& line);
  std::optional<std::uint64_t> take_next();
  void count(int worker, const Case& c, const CaseRunner& runner, const Verdict& verdict);
  void count_not_comparable(int worker, NotComparable reason);
  std::optional<Found> collect(int worker);
  std::optional<Found> read(int worker, const std::string& text);
  std::optional<Found> find_hung();
  Found lost(int worker, std::uint64_t index, Verdict verdict);

  WorkerPlan plan_;
  std::vector<std::optional<Size>> smallest_;  // by feature; in the process of a worker
  Shared* shared_ = nullptr;
  std::vector<Slot> slots_;
  std::string problem_;
};

}  // namespace lockstep::properties
