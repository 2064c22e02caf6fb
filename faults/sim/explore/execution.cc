#include "faults/sim/explore/execution.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep::simulation {

namespace {

constexpr std::uint32_t kNoStep = 0xffff'ffff;
constexpr std::uint64_t kFiberObject = std::uint64_t{1} << 63;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = (a + 0x9e37'79b9'7f4a'7c15U) ^ (b * 0xbf58'476d'1ce4'e5b9U);
  z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9U;
  z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11ebU;
  return z ^ (z >> 31);
}

bool commute(Access a, Access b) { return a == b && a != Access::kWrite; }

// Sorts [begin, end) by object, with one use for each. Returns the new end.
template <class Iterator>
Iterator unite(Iterator begin, Iterator end) {
  std::sort(begin, end, [](const Use& a, const Use& b) { return a.object < b.object; });
  Iterator out = begin;
  for (Iterator it = begin; it != end; ++it) {
    if (out != begin && (out - 1)->object == it->object) {
      if ((out - 1)->access != it->access) (out - 1)->access = Access::kWrite;
    } else {
      *out++ = *it;
    }
  }
  return out;
}

}  // namespace

bool conflict(const std::vector<Use>& a, const Use* begin, const Use* end) {
  const Use* there = begin;
  for (const Use& use : a) {
    while (there != end && there->object < use.object) ++there;
    if (there == end) return false;
    if (there->object == use.object && !commute(use.access, there->access)) return true;
  }
  return false;
}

void add_uses(std::vector<Use>& all, const std::vector<Use>& more) {
  all.insert(all.end(), more.begin(), more.end());
  all.erase(unite(all.begin(), all.end()), all.end());
}

void Execution::clear() {
  steps_.clear();
  uses_.clear();
  wakes_.clear();
  waiters_.clear();
  fibers_.ids.clear();
  fibers_.names.clear();
  fibers_.children.clear();
  numbers_.clear();
  era_ = fibers_.roots = 0;
  has_too_many_ = false;
}

void Execution::on_spawn(FiberId id) {
  const auto fiber = static_cast<std::uint32_t>(fibers_.ids.size());
  if (fiber >= kMaxExplored) has_too_many_ = true;
  fibers_.by_id[id] = fiber;
  fibers_.ids.push_back(id);
  if (steps_.empty()) {
    fibers_.names.push_back(mix(1, fibers_.roots++));
  } else {
    const std::uint32_t parent = steps_.back().fiber;
    fibers_.names.push_back(mix(fibers_.names[parent], 2 + fibers_.children[parent]++));
  }
  fibers_.children.push_back(0);
  numbers_.push_back(0);
}

void Execution::on_step(FiberId id, std::uint32_t choice) {
  Step step;
  step.fiber = fibers_.by_id[id];
  step.number = ++numbers_[step.fiber];
  step.era = era_;
  step.choice = choice;
  step.first_use = static_cast<std::uint32_t>(uses_.size());
  step.first_wake = static_cast<std::uint32_t>(wakes_.size());
  steps_.push_back(step);
}

void Execution::on_wake(FiberId id) { wakes_.push_back(fibers_.by_id[id]); }

void Execution::on_meet(FiberId id) {
  uses_.push_back({kFiberObject | fibers_.by_id[id], Access::kWrite});
}

void Execution::close() {
  if (steps_.empty()) return;
  Step& step = steps_.back();
  const auto begin = uses_.begin() + step.first_use;
  uses_.erase(unite(begin, uses_.end()), uses_.end());
  step.last_use = static_cast<std::uint32_t>(uses_.size());
  step.last_wake = static_cast<std::uint32_t>(wakes_.size());
}

std::vector<Use> Execution::uses_of(std::uint32_t index) const {
  return {uses_.begin() + steps_[index].first_use, uses_.begin() + steps_[index].last_use};
}

Execution::Users& Execution::users_of(std::uint64_t object) {
  if (2 * (used_ + 1) > users_.size()) grow_users();
  const std::size_t mask = users_.size() - 1;
  std::size_t at = mix(object, 0) & mask;
  while (!users_[at].last.empty() && users_[at].object != object) at = (at + 1) & mask;
  if (users_[at].last.empty()) ++used_;
  users_[at].object = object;
  return users_[at];
}

void Execution::grow_users() {
  std::vector<Users> old = std::move(users_);
  users_.assign(std::max<std::size_t>(256, 2 * old.size()), Users());
  const std::size_t mask = users_.size() - 1;
  for (Users& each : old) {
    if (each.last.empty()) continue;
    std::size_t at = mix(each.object, 0) & mask;
    while (!users_[at].last.empty()) at = (at + 1) & mask;
    users_[at] = std::move(each);
  }
}

void Execution::join(std::uint32_t into, std::uint32_t other) {
  for (std::size_t f = 0; f < width_; ++f)
    clocks_[into * width_ + f] = std::max(clocks_[into * width_ + f], clocks_[other * width_ + f]);
}

const std::vector<Execution::Race>& Execution::order(std::uint32_t from, std::uint32_t count) {
  LOCKSTEP_CHECK_LT(count, steps() + 1);
  width_ = fibers_.ids.size();
  clocks_.assign(count * width_, 0);
  last_of_.assign(width_, kNoStep);
  waker_of_.assign(width_, kNoStep);
  for (Users& each : users_) each.last.clear(), each.earlier.clear();
  used_ = 0;
  races_.clear();
  for (std::uint32_t i = 0; i < count; ++i) order_step(i, from);
  return races_;
}

void Execution::order_step(std::uint32_t index, std::uint32_t from) {
  const Step& step = steps_[index];
  if (last_of_[step.fiber] != kNoStep) join(index, last_of_[step.fiber]);
  if (waker_of_[step.fiber] != kNoStep) join(index, waker_of_[step.fiber]);
  waker_of_[step.fiber] = kNoStep;
  last_of_[step.fiber] = index;
  candidates_.clear();
  for (std::uint32_t u = step.first_use; u < step.last_use; ++u) {
    Users& users = users_of(uses_[u].object);
    const bool is_alike = !users.last.empty() && commute(users.access, uses_[u].access);
    const std::vector<std::uint32_t>& others = is_alike ? users.earlier : users.last;
    candidates_.insert(candidates_.end(), others.begin(), others.end());
    if (!is_alike) {
      users.earlier.swap(users.last);
      users.last.clear();
      users.access = uses_[u].access;
    }
    users.last.push_back(index);
  }
  // From the last to the first: a step that comes before another candidate is no race.
  std::sort(candidates_.begin(), candidates_.end(), std::greater<>());
  for (const std::uint32_t other : candidates_) {
    if (steps_[other].era < step.era) break;
    if (clocks_[index * width_ + steps_[other].fiber] >= steps_[other].number) continue;
    if (index >= from) races_.push_back({other, index});
    join(index, other);
  }
  clocks_[index * width_ + step.fiber] = step.number;
  for (std::uint32_t w = step.first_wake; w < step.last_wake; ++w) waker_of_[wakes_[w]] = index;
}

std::uint64_t Execution::signature() const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < steps(); ++i) {
    const Step& step = steps_[i];
    std::uint64_t clock = 0;
    for (std::size_t f = 0; f < width_; ++f) {
      const std::uint32_t seen = clocks_[i * width_ + f];
      if (seen != 0) clock += mix(fibers_.names[f], seen);
    }
    std::uint64_t kinds = 0;
    for (std::uint32_t u = step.first_use; u < step.last_use; ++u)
      kinds += 1 + (static_cast<std::uint64_t>(uses_[u].access) << 20);
    sum += mix(mix(fibers_.names[step.fiber], step.number), mix(mix(clock, kinds), step.era));
  }
  return sum;
}

}  // namespace lockstep::simulation
