#include "faults/sim/explore/explorer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "faults/sim/scheduler/scheduler.h"
#include "reducer/base/check.h"

namespace lockstep::simulation {

namespace {

std::uint32_t lowest_of(std::uint64_t set) {
  return static_cast<std::uint32_t>(std::countr_zero(set));
}

std::uint64_t step_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e37'79b9'7f4a'7c15U);
  z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9U;
  z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11ebU;
  return z ^ (z >> 31);
}

std::uint32_t any_of(std::uint64_t set, std::uint64_t& random) {
  auto skip = step_random(random) % static_cast<std::uint64_t>(std::popcount(set));
  for (; skip > 0; --skip) set &= set - 1;
  return lowest_of(set);
}

}  // namespace

std::uint64_t ChoicePoint::sleeping() const {
  std::uint64_t set = 0;
  for (const Asleep& each : asleep) set |= bit_of(each.fiber);
  return set;
}

Explorer::~Explorer() { Scheduler::observe(nullptr); }

void Explorer::begin(Role role) {
  role_ = role;
  run_.picked_at = Execution::kNoChoice;
  run_.is_open = false;
  run_.choices_made = 0;
  execution_.clear();
  Scheduler::observe(this);
}

void Explorer::begin_execution() {
  LOCKSTEP_CHECK(!is_over_);
  begin(Role::kSearch);
  run_.cursor = 0;
  run_.old = stack_.size();
  run_.is_new = stack_.empty();
  run_.new_step = 0;
  run_.is_pruned = false;
  run_.asleep.clear();
}

bool Explorer::end_execution() {
  close_step();
  Scheduler::observe(nullptr);
  if (!run_.is_pruned) run_.end_step = execution_.steps();
  ++(run_.is_pruned ? counts_.pruned : counts_.executions);
  counts_.depth = std::max<std::uint64_t>(counts_.depth, stack_.size());
  counts_.steps = std::max<std::uint64_t>(counts_.steps, execution_.steps());
  if (execution_.has_too_many()) note_anomaly("an execution has more than 64 fibers");
  if (run_.cursor < run_.old)
    note_anomaly("an execution ended before it had repeated the one before");
  if (mode_ == Mode::kReduced) note_races();
  is_over_ = counts_.anomalies != 0 || !go_back();
  return !is_over_;
}

void Explorer::restore(State state) {
  stack_ = std::move(state.stack);
  counts_ = state.counts;
  is_over_ = state.is_over;
}

std::uint64_t Explorer::remaining() const {
  std::uint64_t sum = 0;
  for (const ChoicePoint& each : stack_)
    sum += static_cast<std::uint64_t>(
        std::popcount(each.is_waiter ? each.enabled & ~each.done : each.open()));
  return sum + (is_over_ || stack_.empty() ? 0 : 1);
}

void Explorer::note_anomaly(const std::string& what) {
  if (counts_.anomalies++ == 0) anomaly_ = what;
}

// ---- During an execution ----

std::uint64_t Explorer::runnable_of(const FiberSet& ids) const {
  std::uint64_t set = 0;
  ids.for_each([&](FiberId id) { set |= bit_of(execution_.fiber_of(id)); });
  return set;
}

FiberId Explorer::pick(const Choice& choice) {
  close_step();
  const std::uint64_t enabled = runnable_of(choice.runnable.set());
  const FiberId usual = choice.may_stay ? choice.current : choice.runnable.lowest();
  const std::uint32_t by_default = execution_.fiber_of(usual);
  const std::uint32_t picked = role_ == Role::kReorder ? pick_in_order(enabled, by_default)
                                                       : pick_in_search(enabled, by_default, false);
  return made_choice(execution_.id_of(picked), usual);
}

FiberId Explorer::made_choice(FiberId picked, FiberId usual) {
  if (picked != usual && tell_deviation_) tell_deviation_({run_.choices_made, picked});
  ++run_.choices_made;
  return picked;
}

FiberId Explorer::pick_waiter(const FiberSet& waiters, FiberId first) {
  const std::uint64_t enabled = runnable_of(waiters);
  std::uint32_t picked = execution_.fiber_of(first);
  if (role_ != Role::kReorder) {
    picked = pick_in_search(enabled, picked, true);
  } else if (execution_.steps() <= order_.size()) {
    for (const Execution::Waiter& each : other_.waiters()) {
      if (each.step != order_[execution_.steps() - 1]) continue;
      for (std::uint64_t rest = enabled; rest != 0; rest &= rest - 1)
        if (execution_.name_of(lowest_of(rest)) == other_.name_of(each.fiber))
          picked = lowest_of(rest);
    }
  }
  execution_.on_waiter(picked);
  return made_choice(execution_.id_of(picked), first);
}

std::uint32_t Explorer::pick_in_search(std::uint64_t enabled, std::uint32_t usual, bool is_waiter) {
  if (run_.is_pruned && role_ == Role::kSearch) return usual;
  if (run_.cursor == stack_.size()) return pick_new(enabled, usual, is_waiter);
  const ChoicePoint& point = stack_[run_.cursor];
  if (point.enabled != enabled || point.is_waiter != is_waiter) {
    note_anomaly("an execution did not repeat the one before: the case is not deterministic");
    run_.is_pruned = true;
    run_.end_step = 0;
    return usual;
  }
  if (run_.cursor + 1 == run_.old) {  // From here on this execution differs from the one before.
    run_.is_new = true;
    run_.new_step = execution_.steps() - (is_waiter ? 1 : 0);
    run_.asleep = point.asleep;
  }
  if (!is_waiter) run_.picked_at = static_cast<std::uint32_t>(run_.cursor);
  ++run_.cursor;
  return point.chosen;
}

std::uint32_t Explorer::pick_new(std::uint64_t enabled, std::uint32_t usual, bool is_waiter) {
  ChoicePoint point;
  point.is_waiter = is_waiter;
  point.enabled = enabled;
  if (mode_ == Mode::kReduced) point.asleep = run_.asleep;
  const std::uint64_t free = is_waiter ? enabled : enabled & ~point.sleeping();
  if (free == 0) {
    prune();
    return usual;
  }
  point.chosen = (free & bit_of(usual)) != 0 ? usual : lowest_of(free);
  if (role_ == Role::kProbe) point.chosen = any_of(free, random_);
  const bool is_whole = is_waiter || mode_ == Mode::kAll;
  point.backtrack = is_whole ? enabled : bit_of(point.chosen);
  if (!is_waiter) run_.picked_at = static_cast<std::uint32_t>(run_.cursor);
  ++run_.cursor;
  ++counts_.choices;
  stack_.push_back(std::move(point));
  return stack_.back().chosen;
}

// Goes on in any order: every execution from here on is equivalent to one that was run.
void Explorer::prune() {
  run_.is_pruned = true;
  run_.end_step = execution_.steps();
}

std::uint32_t Explorer::pick_in_order(std::uint64_t enabled, std::uint32_t usual) {
  const std::uint32_t next = execution_.steps();
  if (next < order_.size()) {
    const std::uint64_t name = other_.name_of(other_.step(order_[next]).fiber);
    for (std::uint64_t rest = enabled; rest != 0; rest &= rest - 1)
      if (execution_.name_of(lowest_of(rest)) == name) return lowest_of(rest);
  }
  is_other_ = true;
  return usual;
}

void Explorer::on_step(const Fiber& fiber) {
  close_step();
  const std::uint32_t next = execution_.steps();
  const std::uint32_t number = execution_.fiber_of(fiber.id);
  if (role_ == Role::kReorder) {
    is_other_ = is_other_ || next >= order_.size() ||
                execution_.name_of(number) != other_.name_of(other_.step(order_[next]).fiber);
  } else if (run_.is_new && !run_.is_pruned) {
    if (std::any_of(run_.asleep.begin(), run_.asleep.end(),
                    [&](const Asleep& each) { return each.fiber == number; }))
      prune();
  }
  execution_.on_step(fiber.id, std::exchange(run_.picked_at, Execution::kNoChoice));
  run_.is_open = true;
}

void Explorer::on_access(std::uint64_t object, Access access) {
  if (is_forgotten_ && is_forgotten_(object)) return;
  execution_.on_access(object, access);
}

void Explorer::close_step() {
  if (!std::exchange(run_.is_open, false)) return;
  execution_.close();
  if (role_ == Role::kReorder || mode_ == Mode::kAll || !run_.is_new || run_.is_pruned) return;
  const std::uint32_t index = execution_.steps() - 1;
  const Execution::Step& step = execution_.step(index);
  if (step.choice != Execution::kNoChoice && index >= run_.new_step)
    add_uses(stack_[step.choice].chosen_uses, execution_.uses_of(index));
  std::erase_if(run_.asleep, [&](const Asleep& each) {
    return conflict(each.uses, execution_.uses_begin(index), execution_.uses_end(index));
  });
}

// ---- After an execution ----

void Explorer::note_races() {
  for (const Execution::Race& race : execution_.order(run_.new_step, run_.end_step)) reverse(race);
}

// Returns the fibers that can begin an execution in which the second step of the race comes before
// the first one: of the steps that do not depend on the first step, and the second one, those that
// depend on no other of them.
std::uint64_t Explorer::initials_of(const Execution::Race& race) const {
  std::uint64_t seen = 0;
  std::uint64_t initials = 0;
  std::vector<std::uint32_t> others;
  for (std::uint32_t i = race.first + 1; i <= race.second; ++i) {
    if (i != race.second && execution_.before(race.first, i)) continue;
    const std::uint64_t fiber = bit_of(execution_.step(i).fiber);
    if ((seen & fiber) == 0 && std::none_of(others.begin(), others.end(), [&](std::uint32_t other) {
          return execution_.before(other, i);
        }))
      initials |= fiber;
    seen |= fiber;
    others.push_back(i);
  }
  return initials;
}

void Explorer::reverse(const Execution::Race& race) {
  const std::uint32_t choice = execution_.step(race.first).choice;
  const std::uint64_t enabled = choice == Execution::kNoChoice ? 0 : stack_[choice].enabled;
  const std::uint64_t initials = initials_of(race) & enabled;
  if (initials == 0)
    return note_anomaly("two dependent steps cannot be reversed: a dependence is not known");
  ChoicePoint& point = stack_[choice];
  if ((initials & (point.backtrack | point.sleeping())) != 0) return;
  const std::uint64_t second = bit_of(execution_.step(race.second).fiber);
  point.backtrack |= (initials & second) != 0 ? second : bit_of(lowest_of(initials));
}

bool Explorer::go_back() {
  for (; !stack_.empty(); stack_.pop_back()) {
    ChoicePoint& point = stack_.back();
    point.done |= bit_of(point.chosen);
    if (!point.is_waiter && mode_ == Mode::kReduced)
      point.asleep.push_back({point.chosen, std::exchange(point.chosen_uses, {})});
    std::uint64_t open = point.backtrack & ~point.done;
    if (!point.is_waiter) open &= ~point.sleeping();
    if (open == 0) continue;
    point.chosen = lowest_of(open);
    ++counts_.choices;
    return true;
  }
  return false;
}

// ---- Other orders, and the estimate ----

void Explorer::begin_reordered(std::uint64_t seed) {
  close_step();
  random_ = seed;
  other_ = std::move(execution_);
  other_.order(0, other_.steps());
  order_.clear();
  is_other_ = false;
  std::vector<std::vector<std::uint32_t>> left(other_.fibers());
  for (std::uint32_t i = other_.steps(); i-- > 0;) left[other_.step(i).fiber].push_back(i);
  while (order_.size() < other_.steps()) {
    std::uint64_t free = 0;
    for (std::uint32_t f = 0; f < left.size(); ++f) {
      if (left[f].empty()) continue;
      const auto waits_for = [&](const std::vector<std::uint32_t>& steps) {
        return !steps.empty() && steps.back() != left[f].back() &&
               other_.before(steps.back(), left[f].back());
      };
      if (std::none_of(left.begin(), left.end(), waits_for)) free |= bit_of(f);
    }
    LOCKSTEP_CHECK(free != 0);
    const std::uint32_t picked = any_of(free, random_);
    order_.push_back(left[picked].back());
    left[picked].pop_back();
  }
  begin(Role::kReorder);
}

bool Explorer::end_reordered() {
  close_step();
  Scheduler::observe(nullptr);
  execution_.order(0, execution_.steps());
  const bool is_same = !is_other_ && execution_.steps() == other_.steps() &&
                       execution_.signature() == other_.signature();
  execution_ = std::move(other_);
  role_ = Role::kSearch;
  ++counts_.reordered;
  if (!is_same) note_anomaly("another order of independent steps did something else");
  return is_same;
}

void Explorer::begin_probe(std::uint64_t seed) {
  LOCKSTEP_CHECK(stack_.empty());
  begin(Role::kProbe);
  run_.cursor = run_.old = 0;
  run_.is_new = true;
  run_.new_step = 0;
  run_.is_pruned = false;
  run_.asleep.clear();
  random_ = seed;
}

double Explorer::end_probe() {
  close_step();
  Scheduler::observe(nullptr);
  run_.end_step = execution_.steps();
  note_races();
  double product = 1;
  for (const ChoicePoint& point : stack_) product *= std::popcount(point.backtrack);
  stack_.clear();
  counts_ = ExplorerCounts{};
  return product;
}

}  // namespace lockstep::simulation
