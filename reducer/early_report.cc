#include "reducer/early_report.h"

#include "reducer/failure_board.h"
#include "reducer/failure_reporter.h"
#include "reducer/training_position.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void EarlyReport::move_to(std::shared_ptr<Store> store, int rank, int size) {
  store_ = std::move(store);
  rank_ = rank;
  size_ = size;
  state_ = State::kNothing;
}

void EarlyReport::failed(const Failure& failure) noexcept {
  State state = State::kNothing;
  if (!state_.compare_exchange_strong(state, State::kPreparing)) return;
  attempt([&] {
    first_ = failure;
    // Peers name who aborted their collectives; nobody is named where this rank did it. What does
    // not concern a group arose here: memory was refused.
    const bool is_own = first_.code == Code::kAborted || !concerns_group(first_.code);
    if (is_own && first_.rank == kNone) first_.rank = rank_;
    seen_by(rank_, first_);
    state = State::kPreparing;
    if (!state_.compare_exchange_strong(state, State::kReported)) return;
    FailureBoard(store_, rank_, size_).publish(first_);
  });
}

std::optional<Failure> EarlyReport::take() {
  State state = State::kNothing;
  while (state != State::kReported)
    if (state_.compare_exchange_strong(state, State::kOwnCause)) return std::nullopt;
  return first_;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
