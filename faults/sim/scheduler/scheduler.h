// Scheduler: runs simulated threads (fibers) on one OS thread, one at a time, and decides at every
// scheduling point which one runs next. The same bodies under the same Schedule do the same thing,
// bit for bit.
//
// Scheduling points: acquiring a mutex, waiting, waking a fiber, sending a message, spawn, join,
// yield(). If only one fiber can run, there is no choice: nothing is counted and no switch happens.
//
// Time is virtual: it advances to the next timer when no fiber can run. If there is no timer
// either, the run ends: every fiber has finished, or the run has deadlocked. The scheduler sees
// this at once and not after a timeout. A run that passes too many scheduling points is a livelock.
// A body that loops without reaching a scheduling point hangs the simulator, and the simulator
// cannot stop it.
//
// yield() is the one point at which the default policy does not stay: the next runnable fiber runs
// first, so that a loop around yield() lets others run under every policy.
//
// Threads: one OS thread, and at most one scheduler in run() at a time. Objects with a mutex can
// also be created and destroyed outside of a run, where nothing can wait.
// Failure: after a deadlock or a livelock the remaining fibers are abandoned: they never run again,
// their frames are not unwound, and what those own on the heap is leaked. Their stacks are used
// again. Objects that they touched must not be used in a later run. Programmer errors (joining
// twice, unlocking a mutex that is not held, too many fibers) end the process.
// Cost: a choice and a switch take a few tens of nanoseconds and allocate nothing. reset() retains
// stacks and memory.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "faults/sim/scheduler/clock.h"
#include "faults/sim/scheduler/fiber.h"
#include "faults/sim/scheduler/index_set.h"
#include "faults/sim/scheduler/lock_order.h"
#include "faults/sim/scheduler/policy/policy.h"
#include "faults/sim/scheduler/schedule.h"
#include "faults/sim/scheduler/step_observer.h"

namespace lockstep::simulation {

enum class End : std::uint8_t { kFinished, kDeadlock, kLivelock };

// LateWait is a wait that ended at its deadline, although its condition had become true before:
// whoever made it true did not wake the waiting fiber.
struct LateWait {
  std::string at;  // the name of the condition variable
  std::uint32_t group = 0;
};

struct Outcome {
  End end = End::kFinished;
  std::string wait_graph;           // empty if finished; else see wait_graph.h
  std::uint32_t leaked_fibers = 0;  // how many fibers were abandoned
};

// An object of the simulator itself for which fibers wait, with a text for the wait-for graph:
// "message on link 2 -> 1".
struct Place {
  const char* what = "";
  std::uint32_t from = kNoFiber;  // two numbers for the text; kNoFiber omits them
  std::uint32_t to = kNoFiber;
  FiberId waker = kNoFiber;  // the fiber that could end the wait, if it is known
  FiberQueue waiters;
  ObjectId id{};
};

class Scheduler {
 public:
  struct Options {
    // The most scheduling points of a run. A run beyond the limit is a livelock.
    std::uint64_t step_limit = 2'000'000;
    std::size_t stack_bytes = kDefaultStackBytes;
  };

  Scheduler() : Scheduler(Options{}) {}
  explicit Scheduler(Options options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // --- These functions are for use outside of a run.

  // Forgets the last run. It must be called between runs.
  void reset(const Schedule& schedule);
  void set_step_limit(std::uint64_t limit) { options_.step_limit = limit; }

  // From the next reset() on, this observer picks what runs, and learns of every step; null ends
  // that. It is for all schedulers, because a search does not reach the one that a lane has.
  static void observe(StepObserver* observer) { next_observer_ = observer; }

  // Runs all fibers until none is left, or none can run. At least one must have been spawned.
  const Outcome& run();

  // --- These functions describe the run, after run() or during it.
  Duration now() const { return clock_.now(); }
  std::uint64_t trace_hash() const { return progress_.trace_hash; }
  std::uint64_t choices() const { return progress_.choices; }
  std::uint64_t steps() const {
    return progress_.steps;
  }  // scheduling points, also those without a choice
  std::uint64_t switches() const { return progress_.switches; }
  // Returns how many choices left a fiber that could have gone on.
  std::uint32_t preemptions() const { return progress_.preemptions; }
  const std::vector<Deviation>& deviations() const { return deviations_.taken; }
  const EventCounts& event_counts() const { return counts_; }  // of the last run under kCounting
  const std::optional<LateWait>& late_wait() const { return late_wait_; }  // the first one
  std::vector<std::string> lock_order_violations() const { return lock_order_.violations(); }

  // --- These functions can be called anywhere.

  // Adds a fiber. Ids begin at 0; the id of a joined fiber is used again.
  FiberId spawn(std::string_view name, std::uint32_t group, std::function<void()> body);

  // Adds `value` to the trace hash. Callers trace whatever must be equal in two runs of one case.
  void trace(std::uint64_t value) {
    progress_.trace_hash = (progress_.trace_hash ^ value) * 0x9e37'79b9'7f4a'7c15U;
    progress_.trace_hash ^= progress_.trace_hash >> 29;
  }

  // Tells the observer, if there is one, that the current step uses an object.
  static void touch(const ObjectId& object, Access access, std::uint64_t part = 0) {
    if (observer_ != nullptr && running_ != nullptr) [[unlikely]]
      observer_->on_access(object.number(part), access);
  }

  // Returns the scheduler whose fiber calls, or null outside of a run.
  static Scheduler* running() { return running_; }

  // --- These functions are for fibers.
  FiberId current_id() const { return current_->id; }
  std::uint32_t current_group() const { return current_->group; }
  const std::string& current_name() const { return current_->name; }

  // A scheduling point: another fiber may run before this returns. `object` is what the caller is
  // about to use, such as a mutex; `lock` is the name of a mutex that it is about to lock.
  void point(const void* object = nullptr, NameId lock = kUnjudgedName) {
    current_->next_object = object;
    current_->next_lock = lock;
    if (++progress_.steps > options_.step_limit) [[unlikely]]
      stop(End::kLivelock);
    if (runnable_.count() > 1)
      choose_at_point(current_->id);
    else
      tell_step(*current_);
  }
  void yield();
  // Returns whether no fiber but the caller has run since the time last moved.
  bool is_first_at_this_time() const { return progress_.steps == moved_at_step_; }
  void note_late_wait(const char* at) {
    if (!late_wait_) late_wait_ = {at, current_->group};
  }
  void sleep_until(Duration when);
  void join(FiberId fiber);

  // Prevents the fibers of `group` from running before `until`; timers of the group continue. The
  // longest pause wins. The caller may be in the group.
  void pause_group(std::uint32_t group, Duration until);

  // Waits until wake_all(place) (true) or the deadline (false). The caller must test its condition
  // again, because a wake-up says only that something may have changed. A deadline in the past
  // returns at once.
  bool wait_at(Place& place, Duration until);
  // Wakes every fiber that waits there. This is not a scheduling point.
  void wake_all(Place& place);

 private:
  friend class MutexCore;
  friend class CondVarCore;
  friend std::string describe_waits(const Scheduler& scheduler, End end);

#if defined(LOCKSTEP_FIBER_ASAN) || defined(LOCKSTEP_FIBER_TSAN)
  static constexpr std::size_t kDefaultStackBytes = 1024 * 1024;
#else
  static constexpr std::size_t kDefaultStackBytes = std::size_t{256} * 1024;
#endif

  static void fiber_main(boost::context::detail::transfer_t transfer);
  void finish_current();
  [[noreturn]] void stop(End end);
  void abandon_all();
  Fiber& free_fiber();

  // Takes the current fiber off the processor until make_ready(). The caller has already recorded
  // what it waits for.
  void park();
  // Like park(), with a timer. Returns false if the timer expired; the fiber is then in no queue.
  bool park_until(Duration until);
  void make_ready(Fiber& fiber);
  void remove_from_wait(Fiber& fiber);

  static void tell_step(const Fiber& fiber) {
    if (observer_ != nullptr) [[unlikely]]
      observer_->on_step(fiber);
  }
  void choose_at_point(FiberId by_default);
  FiberId choose_runnable(FiberId by_default, bool may_stay);
  FiberId follow_deviations(const IndexSet<kMaxFibers / 64>& candidates, FiberId by_default);
  void record(FiberId picked, FiberId by_default);
  Fiber& choose_waiter(const FiberQueue& waiters);
  Fiber* next_to_run();  // null: no fiber can ever run again
  void switch_to(Fiber& next);
  void leave_run();
  void timer_expired(std::uint32_t timer);

  inline static Scheduler* running_ = nullptr;
  inline static StepObserver* observer_ = nullptr;  // of this run
  inline static StepObserver* next_observer_ = nullptr;

  // How far the run is.
  struct Progress {
    std::uint64_t steps = 0;
    std::uint64_t switches = 0;
    std::uint64_t choices = 0;
    std::uint32_t preemptions = 0;
    std::uint64_t trace_hash = 0;
  };
  // Where the run leaves the default policy.
  struct Deviations {
    // The choice of the next one. Without one, a value that no choice reaches.
    std::uint64_t next = ~std::uint64_t{0};
    std::size_t cursor = 0;
    std::vector<Deviation> given;
    std::vector<Deviation> taken;
  };
  struct Fibers {
    std::deque<Fiber> all;                   // by id; grows and never shrinks
    std::array<Fiber*, kMaxFibers> by_id{};  // by id, for fast access
    IndexSet<kMaxFibers / 64> free_ids;      // free ids below all.size()
    std::uint32_t live = 0;
  };

  Options options_;
  Fiber* current_ = nullptr;
  Progress progress_;
  RunSet<kMaxFibers / 64> runnable_;                 // without the fibers of paused groups
  IndexSet<kMaxFibers / 64> held_;                   // runnable fibers of paused groups
  IndexSet<kMaxGroups / 64> paused_;                 // groups
  std::uint64_t moved_at_step_ = ~std::uint64_t{0};  // the step at which the time last moved
  std::optional<LateWait> late_wait_;
  std::array<std::unique_ptr<SchedulingPolicy>, kPolicies> policies_;  // made when first used
  SchedulingPolicy* policy_ = nullptr;                                 // null: the default
  EventCounts counts_;  // of the last run under kCounting
  Deviations deviations_;
  Clock clock_;
  LockOrder lock_order_;
  Fibers fibers_;
  ExceptionState* exceptions_ = nullptr;
  SwitchPoint root_;  // run() waits here
  Outcome outcome_;
};

}  // namespace lockstep::simulation
