#include "faults/sim/scheduler/scheduler.h"

#include <utility>

#include "faults/sim/scheduler/sync.h"
#include "faults/sim/scheduler/wait_graph.h"
#include "reducer/base/check.h"

namespace lockstep::simulation {

namespace {

constexpr std::size_t kReservedDeviations = 8192;

// Bodies that abandoned frames still use. They are never destroyed: what they captured may be
// locked, or wait for something.
std::vector<std::function<void()>>& lost_bodies() {
  static auto* bodies = new std::vector<std::function<void()>>();
  return *bodies;
}

std::uint32_t timer_of_group(std::uint32_t group) { return kMaxFibers + group; }

}  // namespace

Scheduler::Scheduler(Options options) : options_(options) {
  deviations_.taken.reserve(kReservedDeviations);
  deviations_.given.reserve(kReservedDeviations);
  reset(Schedule{});
}

Scheduler::~Scheduler() { LOCKSTEP_CHECK(running_ != this); }

void Scheduler::reset(const Schedule& schedule) {
  LOCKSTEP_CHECK(running_ != this);
  std::unique_ptr<SchedulingPolicy>& policy = policies_[static_cast<std::size_t>(schedule.policy)];
  if (policy == nullptr) policy = make_policy(schedule.policy);
  policy_ = policy.get();
  if (next_observer_ != nullptr) policy_ = next_observer_;
  ObjectId::begin_run();
  deviations_.given.assign(schedule.deviations.begin(), schedule.deviations.end());
  if (policy_ != nullptr) {
    policy_->begin(schedule.seed, counts_);
    deviations_.given.clear();
  }
  deviations_.cursor = 0;
  deviations_.next = deviations_.given.empty() ? ~std::uint64_t{0} : deviations_.given[0].choice;
  deviations_.taken.clear();
  runnable_.clear();
  held_.clear();
  paused_.clear();
  fibers_.free_ids.clear();
  progress_.steps = progress_.switches = progress_.choices = 0;
  progress_.preemptions = fibers_.live = 0;
  progress_.trace_hash = 0;
  clock_.reset();
  moved_at_step_ = ~std::uint64_t{0};
  late_wait_.reset();
  lock_order_.reset();
  for (Fiber& fiber : fibers_.all) {
    LOCKSTEP_CHECK(fiber.state != Fiber::State::kWaiting);
    if (fiber.state == Fiber::State::kReady) fiber.body = nullptr;  // spawned and never run
    fiber.state = Fiber::State::kUnused;
    fibers_.free_ids.insert(fiber.id);
  }
  outcome_.end = End::kFinished;
  outcome_.wait_graph.clear();
  outcome_.leaked_fibers = 0;
}

inline void Scheduler::record(FiberId picked, FiberId by_default) {
  if (picked != by_default)
    deviations_.taken.push_back({static_cast<std::uint32_t>(progress_.choices), picked});
  ++progress_.choices;
  trace(picked);
}

inline FiberId Scheduler::choose_runnable(FiberId by_default, bool may_stay) {
  FiberId picked = by_default;
  if (policy_ != nullptr)
    picked = policy_->pick({runnable_, fibers_.by_id.data(),
                            current_ == nullptr ? kNoFiber : current_->id, may_stay,
                            progress_.choices, by_default});
  else if (progress_.choices >= deviations_.next) [[unlikely]]
    picked = follow_deviations(runnable_.set(), by_default);
  record(picked, by_default);
  return picked;
}

inline void Scheduler::switch_to(Fiber& next) {
  Fiber& self = *current_;
  current_ = &next;
  ++progress_.switches;
  switch_context(self.point, next.point, *exceptions_);
}

Fiber& Scheduler::free_fiber() {
  if (!fibers_.free_ids.empty()) {
    const FiberId id = fibers_.free_ids.lowest();
    fibers_.free_ids.erase(id);
    return fibers_.all[id];
  }
  const auto id = static_cast<FiberId>(fibers_.all.size());
  LOCKSTEP_CHECK_LT(id, kMaxFibers);
  Fiber& fiber = fibers_.all.emplace_back();
  fiber.id = id;
  fibers_.by_id[id] = &fiber;
  return fiber;
}

FiberId Scheduler::spawn(std::string_view name, std::uint32_t group, std::function<void()> body) {
  LOCKSTEP_CHECK_LT(group, kMaxGroups);
  LOCKSTEP_CHECK(body != nullptr);
  Fiber& fiber = free_fiber();
  if (fiber.context == nullptr) {
    fiber.context = std::make_unique<Context>(options_.stack_bytes, fiber.id);
    fiber.context->rewind(&Scheduler::fiber_main, fiber.point);
  }
  fiber.group = group;
  fiber.name.assign(name);
  fiber.body = std::move(body);
  fiber.held_count = 0;
  fiber.joiners = FiberQueue{};
  fiber.queue = nullptr;
  fiber.retake = nullptr;
  fiber.next_object = fiber.wait_object = nullptr;
  fiber.next_lock = kUnjudgedName;
  ++fibers_.live;
  if (policy_ != nullptr) policy_->on_spawn(fiber, running_ == this ? current_ : nullptr);
  make_ready(fiber);
  if (running_ == this) point();
  return fiber.id;
}

const Outcome& Scheduler::run() {
  LOCKSTEP_CHECK(running_ == nullptr);
  LOCKSTEP_CHECK(fibers_.live > 0);
  const StickyFloatFlags flags;
  exceptions_ = &exception_state();
  root_ = SwitchPoint{};
  running_ = this;
  observer_ = policy_ == nullptr ? nullptr : policy_->as_step_observer();
  current_ = nullptr;
  outcome_.end = End::kFinished;
  Fiber* first = next_to_run();
  if (first == nullptr) {
    outcome_.end = End::kDeadlock;
  } else {
    current_ = first;
    switch_context(root_, first->point, *exceptions_);
  }
  if (outcome_.end != End::kFinished) {
    outcome_.wait_graph = describe_waits(*this, outcome_.end);
    abandon_all();
  }
  current_ = nullptr;
  running_ = nullptr;
  observer_ = nullptr;
  return outcome_;
}

// Every fiber runs this function once and never leaves it: a finished fiber waits in
// finish_current() for its next body.
void Scheduler::fiber_main(boost::context::detail::transfer_t transfer) {
  arrive(transfer, running_->current_->point);
  for (;;) {
    Fiber& self = *running_->current_;
    [&]() noexcept {
      self.body();
      self.body = nullptr;
    }();
    running_->finish_current();
  }
}

void Scheduler::finish_current() {
  Fiber& self = *current_;
  LOCKSTEP_CHECK_EQ(self.held_count, 0U);
  if (observer_ != nullptr) [[unlikely]]
    observer_->on_meet(self.id);
  self.state = Fiber::State::kFinished;
  moved_at_step_ = ~std::uint64_t{0};  // It has run, although that was no step.
  runnable_.erase(self.id);
  --fibers_.live;
  while (!self.joiners.empty()) {
    Fiber& joiner = *self.joiners.head;
    remove_from_wait(joiner);
    make_ready(joiner);
  }
  if (fibers_.live == 0) {
    leave_run();
    return;
  }
  Fiber* next = next_to_run();
  if (next == nullptr) {
    outcome_.end = End::kDeadlock;
    leave_run();
    return;
  }
  switch_to(*next);
}

void Scheduler::leave_run() {
  Fiber& self = *current_;
  switch_context(self.point, root_, *exceptions_);
}

void Scheduler::stop(End end) {
  outcome_.end = end;
  leave_run();
  LOCKSTEP_CHECK(false);  // an abandoned fiber was resumed
  std::abort();
}

void Scheduler::abandon_all() {
  for (Fiber& fiber : fibers_.all) {
    const bool is_live =
        fiber.state == Fiber::State::kReady || fiber.state == Fiber::State::kWaiting;
    if (!is_live) continue;
    fiber.state = Fiber::State::kFinished;
    fiber.context->rewind(&Scheduler::fiber_main, fiber.point);
    lost_bodies().push_back(std::move(fiber.body));
    fiber.body = nullptr;
    ++outcome_.leaked_fibers;
  }
  fibers_.live = 0;
}

void Scheduler::yield() {
  if (++progress_.steps > options_.step_limit) stop(End::kLivelock);
  current_->next_object = nullptr;
  current_->next_lock = kUnjudgedName;
  if (policy_ != nullptr) policy_->on_yield(current_->id);
  if (runnable_.count() > 1)
    choose_at_point(runnable_.after(current_->id));
  else
    tell_step(*current_);
}

void Scheduler::choose_at_point(FiberId by_default) {
  const FiberId next = choose_runnable(by_default, true);
  tell_step(*fibers_.by_id[next]);
  if (next == current_->id) return;
  ++progress_.preemptions;
  switch_to(*fibers_.by_id[next]);
}

FiberId Scheduler::follow_deviations(const IndexSet<kMaxFibers / 64>& candidates,
                                     FiberId by_default) {
  FiberId wanted = kNoFiber;
  while (deviations_.cursor < deviations_.given.size() &&
         deviations_.given[deviations_.cursor].choice <= progress_.choices) {
    if (deviations_.given[deviations_.cursor].choice == progress_.choices)
      wanted = deviations_.given[deviations_.cursor].fiber;
    ++deviations_.cursor;
  }
  deviations_.next = deviations_.cursor < deviations_.given.size()
                         ? deviations_.given[deviations_.cursor].choice
                         : ~std::uint64_t{0};
  const bool is_legal = wanted < kMaxFibers && candidates.contains(wanted);
  return is_legal ? wanted : by_default;
}

// By default this picks the fiber that has waited longest. Any of them is correct, as with a real
// condition variable.
Fiber& Scheduler::choose_waiter(const FiberQueue& waiters) {
  if (waiters.head->next == nullptr) return *waiters.head;
  IndexSet<kMaxFibers / 64> candidates;
  for (const Fiber* fiber = waiters.head; fiber != nullptr; fiber = fiber->next)
    candidates.insert(fiber->id);
  FiberId picked = waiters.head->id;
  if (policy_ != nullptr)
    picked = policy_->pick_waiter(candidates, picked);
  else if (progress_.choices >= deviations_.next)
    picked = follow_deviations(candidates, picked);
  record(picked, waiters.head->id);
  return *fibers_.by_id[picked];
}

Fiber* Scheduler::next_to_run() {
  while (runnable_.empty()) {
    if (clock_.idle()) return nullptr;
    if (observer_ != nullptr) [[unlikely]]
      observer_->on_time();
    clock_.advance([this](std::uint32_t timer) { timer_expired(timer); });
    moved_at_step_ = progress_.steps;
    trace(static_cast<std::uint64_t>(clock_.now().count()));
  }
  const FiberId lowest = runnable_.lowest();
  Fiber* next = fibers_.by_id[runnable_.count() == 1 ? lowest : choose_runnable(lowest, false)];
  tell_step(*next);
  return next;
}

void Scheduler::timer_expired(std::uint32_t timer) {
  if (timer >= kMaxFibers) {
    const std::uint32_t group = timer - kMaxFibers;
    paused_.erase(group);
    held_.for_each([&](FiberId id) {
      if (fibers_.all[id].group != group) return;
      held_.erase(id);
      runnable_.insert(id);
    });
    return;
  }
  Fiber& fiber = fibers_.all[timer];
  fiber.timed_out = true;
  remove_from_wait(fiber);
  make_ready(fiber);
}

void Scheduler::make_ready(Fiber& fiber) {
  if (observer_ != nullptr && running_ == this) [[unlikely]]
    observer_->on_wake(fiber.id);
  fiber.state = Fiber::State::kReady;
  fiber.wait_kind = WaitKind::kNothing;
  if (paused_.contains(fiber.group))
    held_.insert(fiber.id);
  else
    runnable_.insert(fiber.id);
}

void Scheduler::remove_from_wait(Fiber& fiber) {
  if (fiber.queue != nullptr) fiber.queue->remove(fiber);
  if (clock_.is_armed(fiber.id)) clock_.cancel(fiber.id);
}

void Scheduler::park() {
  Fiber& self = *current_;
  if (++progress_.steps > options_.step_limit) [[unlikely]]
    stop(End::kLivelock);
  self.timed_out = false;
  self.next_object = self.wait_object;
  self.next_lock = kUnjudgedName;
  self.state = Fiber::State::kWaiting;
  runnable_.erase(self.id);
  Fiber* next = next_to_run();
  if (next == nullptr) stop(End::kDeadlock);
  if (next != &self) switch_to(*next);
}

bool Scheduler::park_until(Duration until) {
  if (until != kNever) clock_.arm(current_->id, until);
  park();
  return !current_->timed_out;
}

void Scheduler::sleep_until(Duration when) {
  if (when <= clock_.now()) {
    point();
    return;
  }
  current_->wait_kind = WaitKind::kSleep;
  park_until(when);
}

void Scheduler::join(FiberId id) {
  LOCKSTEP_CHECK_LT(id, fibers_.all.size());
  Fiber& target = fibers_.all[id];
  LOCKSTEP_CHECK(&target != current_);
  LOCKSTEP_CHECK(target.state != Fiber::State::kUnused);
  point();
  if (observer_ != nullptr) [[unlikely]]
    observer_->on_meet(id);
  while (target.state != Fiber::State::kFinished) {
    current_->wait_kind = WaitKind::kJoin;
    current_->wait_object = &target;
    target.joiners.push(*current_);
    park();
  }
  target.state = Fiber::State::kUnused;
  fibers_.free_ids.insert(id);
}

void Scheduler::pause_group(std::uint32_t group, Duration until) {
  LOCKSTEP_CHECK_LT(group, kMaxGroups);
  if (until <= clock_.now()) return;
  const std::uint32_t timer = timer_of_group(group);
  if (paused_.contains(group)) {
    if (clock_.at(timer) >= until) return;
    clock_.cancel(timer);
  } else {
    paused_.insert(group);
    const IndexSet<kMaxFibers / 64> candidates = runnable_.set();
    candidates.for_each([&](FiberId id) {
      if (fibers_.all[id].group != group) return;
      runnable_.erase(id);
      held_.insert(id);
    });
  }
  clock_.arm(timer, until);
  if (current_->group != group) return;
  Fiber* next = next_to_run();  // never null: the pause itself is a timer
  if (next != current_) switch_to(*next);
}

bool Scheduler::wait_at(Place& place, Duration until) {
  touch(place.id, Access::kWrite);
  if (until <= clock_.now()) return false;
  current_->wait_kind = WaitKind::kPlace;
  current_->wait_object = &place;
  place.waiters.push(*current_);
  return park_until(until);
}

void Scheduler::wake_all(Place& place) {
  touch(place.id, Access::kWrite);
  while (!place.waiters.empty()) {
    Fiber& fiber = *place.waiters.head;
    remove_from_wait(fiber);
    make_ready(fiber);
  }
}

}  // namespace lockstep::simulation
