#include "reducer/early_report.h"

#include "reducer/base/check.h"
#include "reducer/failure_board.h"
#include "reducer/failure_reporter.h"
#include "reducer/training_position.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

std::optional<Failure> EarlyReport::own_cause() const {
  LOCKSTEP_CHECK(membership_.group != nullptr);
  const int rank = membership_.group->rank();
  for (const ProcessGroup* group : {membership_.group.get(), membership_.backward_group.get()}) {
    if (group == nullptr) continue;
    const Status status = group->health();
    if (status.ok() || !status.failure().definite) continue;
    // A cause that another group passed on may name a rank of that group (F7).
    const Failure& cause = status.failure();
    if (cause.rank == rank && cause.reported_by == rank) return cause;
  }
  return std::nullopt;
}

void EarlyReport::move_to(const Membership& membership) {
  membership_ = membership;
  state_ = State::kNothing;
}

void EarlyReport::failed(const Failure& failure) noexcept {
  State state = State::kNothing;
  if (!state_.compare_exchange_strong(state, State::kPreparing)) return;
  attempt([&] {
    const int rank = membership_.group->rank();
    const std::optional<Failure> own = failure.definite ? std::nullopt : own_cause();
    first_ = own.value_or(failure);
    // Peers name who aborted their collectives; nobody is named where this rank did it. What does
    // not concern a group arose here: memory was refused.
    const bool is_own = first_.code == Code::kAborted || !concerns_group(first_.code);
    if (is_own && first_.rank == kNone) first_.rank = rank;
    seen_by(rank, membership_.group->size(), first_);
    LOCKSTEP_CHECK(is_possible(first_, membership_.group->size()));  // Peers can read it.
    state = State::kPreparing;
    if (!state_.compare_exchange_strong(state, State::kReported)) return;
    FailureBoard(membership_.store, rank, membership_.group->size()).publish(first_);
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
