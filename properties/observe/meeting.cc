#include "properties/observe/meeting.h"

#include <algorithm>

namespace lockstep::properties {

Meeting::Meeting(std::uint32_t world) : states_(world, State::kTraining) {}

void Meeting::arrive(std::uint32_t rank, bool finished, std::uint32_t next_step) {
  states_[rank] = State::kWaiting;
  wants_recovery_ = wants_recovery_ || !finished;
  next_step_ = std::max(next_step_, next_step);
}

void Meeting::leave(std::uint32_t rank) { states_[rank] = State::kGone; }

std::optional<Resume> Meeting::decide() {
  const auto has = [this](State s) {
    return std::find(states_.begin(), states_.end(), s) != states_.end();
  };
  if (has(State::kTraining) || !has(State::kWaiting)) return std::nullopt;
  Resume resume;
  resume.recover = wants_recovery_;
  resume.step = next_step_;
  for (std::uint32_t r = 0; r < states_.size(); ++r) {
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
