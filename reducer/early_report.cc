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
  is_there_ = is_taken_ = false;
}

void EarlyReport::failed(const Failure& failure) noexcept {
  if (is_taken_.exchange(true)) return;
  attempt([&] {
    first_ = failure;
    // Peers name who aborted their collectives; nobody is named where this rank did it.
    if (first_.code == Code::kAborted && first_.rank == kNone) first_.rank = rank_;
    seen_by(rank_, first_);
    is_there_ = true;
    FailureBoard(store_, rank_, size_).publish(first_);
  });
}

std::optional<Failure> EarlyReport::take() {
  if (!is_taken_.exchange(true)) return std::nullopt;
  return is_there_ ? std::optional(first_) : std::nullopt;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
