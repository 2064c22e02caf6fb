// Explorer: runs a program of fibers in every order that can matter. It is a depth-first search
// without stored states: each execution starts anew, follows the stack of choices, and goes on from
// its end. Dynamic partial-order reduction leaves out orders that differ only in steps that
// commute (Flanagan and Godefroid, POPL 2005), with the source sets of Abdulla, Aronis, Jonsson and
// Sagonas (POPL 2014) and sleep sets (Godefroid 1996).
//
//   Explorer explorer;
//   do {
//     explorer.begin_execution();       // reset() the scheduler after this, and run
//     ...
//   } while (explorer.end_execution());
//   explorer.is_complete();
//
// What it covers. A step is what a fiber runs between two scheduling points, so the interleavings
// are those that the simulator can produce, and no finer ones. Which waiter notify_one() wakes is
// a choice, too; all are tried.
//
// Why it is sound. Two steps of different fibers are dependent if they use a common object and one
// use is not a read (see step_observer.h for what counts as a use), if one makes the other fiber
// runnable, or if one joins the other or is joined by it. Independent neighbours commute:
//   - Memory that a mutex guards is used between a lock and an unlock of it, which are uses.
//   - A step that can run stays so until it runs: nothing takes a fiber off the runnable ones but
//     its own step (pauses of ranks would; the search refuses them).
//   - Time advances only when nothing can run. Every step before that moment comes before every
//     step after it, in each equivalent order, so steps are only compared between two such moments.
//   - The ids of fibers depend on the order of spawns; the search names a fiber by its parent and
//     its number among the parent's children instead.
// Two executions with the same order of dependent steps then end in the same state, and the
// theorems of the papers apply: each such class is run at least once.
//
// What it does not see: memory that two fibers change without a mutex and that is not a
// platform::Atomic (a data race); the order in which two fibers drop references to one object;
// addresses of memory. reorder() is the check for that: it returns another order of the last
// execution that differs only in independent steps, and the search compares what it does. A
// difference, or a race that cannot be reversed though it must be, is an anomaly: the search is not
// complete then.
//
// Threads: one. Limits: 64 fibers over one execution; more is an anomaly.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "faults/sim/explore/execution.h"
#include "faults/sim/scheduler/schedule.h"
#include "faults/sim/scheduler/step_observer.h"

namespace lockstep::simulation {

// A step that is not tried again, because the orders that begin with it have been: the fiber, and
// what its step uses.
struct Asleep {
  std::uint32_t fiber = 0;
  std::vector<Use> uses;
};

// A choice on the stack. Fibers are numbered in the order in which they were spawned.
struct ChoicePoint {
  bool is_waiter = false;        // of notify_one(); otherwise of the next step
  std::uint32_t chosen = 0;      // a fiber
  std::uint64_t enabled = 0;     // sets of fibers, one bit each
  std::uint64_t backtrack = 0;   // those that must be tried
  std::uint64_t done = 0;        // those that have been
  std::vector<Asleep> asleep;    // at this point
  std::vector<Use> chosen_uses;  // what the step of `chosen` uses

  std::uint64_t sleeping() const;
  std::uint64_t open() const { return backtrack & ~done & ~sleeping() & ~bit_of(chosen); }
};

struct ExplorerCounts {
  std::uint64_t executions = 0;  // without those that were pruned
  std::uint64_t pruned = 0;      // executions that only sleeping steps could continue
  std::uint64_t choices = 0;     // choices that were explored: fibers tried at choice points
  std::uint64_t depth = 0;       // the most choice points of an execution
  std::uint64_t steps = 0;       // the most steps of an execution
  std::uint64_t reordered = 0;   // executions that were run again in another order
  std::uint64_t anomalies = 0;
};

class Explorer final : private StepObserver {
 public:
  enum class Mode : std::uint8_t {
    kReduced,  // as above
    kAll,      // no reduction: every fiber at every choice
  };
  explicit Explorer(Mode mode = Mode::kReduced) : mode_(mode) {}
  ~Explorer() override;
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  void begin_execution();
  // Returns whether there is another execution.
  bool end_execution();

  bool is_complete() const { return is_over_ && counts_.anomalies == 0; }
  std::uint64_t remaining() const;  // choices that are known to be left
  const ExplorerCounts& counts() const { return counts_; }
  const std::string& anomaly() const { return anomaly_; }  // the first one
  // Whether only sleeping steps could continue the last execution.
  bool was_pruned() const { return run_.is_pruned; }

  // For the last execution, before end_execution(): runs it again in another order of its
  // independent steps. begin_reordered(); run; if the result differs, call note_anomaly().
  // end_reordered() returns false if the steps were not the same.
  void begin_reordered(std::uint64_t seed);
  bool end_reordered();
  void note_anomaly(const std::string& what);

  // Runs a random execution and estimates from it alone how many there are, as Knuth (1975) does:
  // the product of the numbers of choices that its races ask for. Call begin_probe(), run, and
  // end_probe(). The search must not have begun.
  void begin_probe(std::uint64_t seed);
  double end_probe();

  // The state of the search between two executions, to go on with it later.
  struct State {
    std::vector<ChoicePoint> stack;
    ExplorerCounts counts;
    bool is_over = false;
  };
  State state() const { return {stack_, counts_, is_over_}; }
  void restore(State state);

  // Calls `tell` for each deviation of an execution from the default policy, as it is made, so that
  // an execution that ends the process can be replayed.
  void tell_deviations(std::function<void(Deviation)> tell) { tell_deviation_ = std::move(tell); }

  // For tests: uses of objects for which this returns true are not seen.
  void forget_uses(std::function<bool(std::uint64_t object)> is_forgotten) {
    is_forgotten_ = std::move(is_forgotten);
  }

 private:
  enum class Role : std::uint8_t { kSearch, kReorder, kProbe };

  FiberId pick(const Choice& choice) override;
  FiberId pick_waiter(const FiberSet& waiters, FiberId first) override;
  void on_spawn(const Fiber& fiber, const Fiber*) override { execution_.on_spawn(fiber.id); }
  void on_step(const Fiber& fiber) override;
  void on_access(std::uint64_t object, Access access) override;
  void on_wake(FiberId fiber) override {
    if (run_.is_open) execution_.on_wake(fiber);
  }
  void on_meet(FiberId fiber) override { execution_.on_meet(fiber); }
  void on_time() override {
    close_step();
    execution_.on_time();
  }

  void begin(Role role);
  std::uint64_t runnable_of(const FiberSet& ids) const;
  std::uint32_t pick_in_search(std::uint64_t enabled, std::uint32_t usual, bool is_waiter);
  std::uint32_t pick_new(std::uint64_t enabled, std::uint32_t usual, bool is_waiter);
  std::uint32_t pick_in_order(std::uint64_t enabled, std::uint32_t usual);
  FiberId made_choice(FiberId picked, FiberId usual);
  void close_step();
  void note_races();
  void reverse(const Execution::Race& race);
  std::uint64_t initials_of(const Execution::Race& race) const;
  bool go_back();
  void prune();

  // The execution that goes on.
  struct Run {
    std::size_t cursor = 0;      // choice points that it has passed
    std::size_t old = 0;         // choice points that were on the stack when it began
    std::uint32_t new_step = 0;  // the first step that it does not share with the one before
    std::uint32_t end_step = 0;  // steps that count: all, or those before it was pruned
    std::uint32_t picked_at = Execution::kNoChoice;  // where the next step was chosen
    std::vector<Asleep> asleep;                      // at the current step, if it is a new one
    bool is_new = true;                              // whether the current step is
    bool is_open = false;                            // whether a step is being recorded
    bool is_pruned = false;
    std::uint32_t choices_made = 0;
  };

  const Mode mode_;
  Role role_ = Role::kSearch;
  std::vector<ChoicePoint> stack_;
  Run run_;
  bool is_over_ = false;
  Execution execution_;
  Execution other_;                   // the execution that is being reordered
  std::vector<std::uint32_t> order_;  // of its steps
  bool is_other_ = false;             // whether the reordered one did something else
  std::uint64_t random_ = 0;
  ExplorerCounts counts_;
  std::string anomaly_;
  std::function<void(Deviation)> tell_deviation_;
  std::function<bool(std::uint64_t)> is_forgotten_;
};

}  // namespace lockstep::simulation
