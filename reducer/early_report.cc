#include "reducer/early_report.h"

#include "reducer/failure_board.h"
#include "reducer/failure_reporter.h"
#include "reducer/training_position.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void EarlyReport::move_to(std::shared_ptr<Store> store, int rank, int size) {
  const platform::MutexLock lock(mutex_);
  store_ = std::move(store);
  rank_ = rank;
  size_ = size;
  first_.reset();
}

// The store is asked without the lock: it may take long.
void EarlyReport::failed(const Failure& failure) noexcept {
  attempt([&] {
    Failure report = failure;
    platform::MutexLock lock(mutex_);
    if (first_) return;
    // Peers name who aborted their collectives; nobody is named where this rank did it.
    if (report.code == Code::kAborted && report.rank == kNone) report.rank = rank_;
    seen_by(rank_, report);
    first_ = report;
    FailureBoard board(store_, rank_, size_);
    lock.unlock();
    board.publish(report);
  });
}

std::optional<Failure> EarlyReport::first() const {
  const platform::MutexLock lock(mutex_);
  return first_;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
