#include "reducer/early_report.h"

#include "reducer/failure_board.h"
#include "reducer/failure_reporter.h"
#include "reducer/training_position.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void EarlyReport::failed(const Failure& failure) noexcept {
  attempt([&] {
    Failure report = failure;
    seen_by(rank_, report);
    {
      const platform::MutexLock lock(mutex_);
      if (first_) return;
      first_ = report;
    }
    FailureBoard(store_, rank_, size_).publish(report);
  });
}

std::optional<Failure> EarlyReport::first() const {
  const platform::MutexLock lock(mutex_);
  return first_;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
