#include "properties/observe/meeting.h"

#include <algorithm>
#include <numeric>

namespace lockstep::properties {

Meeting::Meeting(std::uint32_t world) : states_(world, State::kTraining), order_(world) {
  std::iota(order_.begin(), order_.end(), 0u);
}

void Meeting::arrive(std::uint32_t rank, bool finished, std::uint32_t next_step) {
  states_[rank] = State::kWaiting;
  wants_recovery_ = wants_recovery_ || !finished;
  next_step_ = std::max(next_step_, next_step);
}

void Meeting::leave(std::uint32_t rank) {
  states_[rank] = State::kGone;
  std::erase(order_, rank);
}

void Meeting::replace(std::uint32_t rank, std::uint32_t recoveries) {
  joining_.push_back({rank, recoveries});
}

void Meeting::take_those_who_join() {
  for (const Replacement& each : joining_) {
    if (each.recoveries > 0) continue;
    order_.push_back(each.rank);
    states_[each.rank] = State::kWaiting;
  }
  std::erase_if(joining_, [](const Replacement& each) { return each.recoveries == 0; });
  for (Replacement& each : joining_) --each.recoveries;
}

std::optional<Resume> Meeting::decide() {
  const auto has = [this](State s) {
    return std::find(states_.begin(), states_.end(), s) != states_.end();
  };
  if (has(State::kTraining) || !has(State::kWaiting)) return std::nullopt;
  if (wants_recovery_) take_those_who_join();
  Resume resume;
  resume.recover = wants_recovery_;
  resume.step = next_step_;
  for (const std::uint32_t r : order_) {
    if (states_[r] != State::kWaiting) continue;
    resume.roster.members.push_back(r);
    states_[r] = State::kTraining;
  }
  if (wants_recovery_) {
    ++generation_;
    recoveries_.push_back({next_step_, resume.roster.members});
  }
  resume.roster.generation = generation_;
  wants_recovery_ = false;
  return resume;
}

}  // namespace lockstep::properties
