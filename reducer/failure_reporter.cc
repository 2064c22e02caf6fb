#include "reducer/failure_reporter.h"

#include <string>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void FailureReporter::start_over() {
  poison_ = Status();
  failed_at_.reset();
  if (reserve_.ok()) reserve_ = Status(Failure());
  LOCKSTEP_CHECK(!reserve_.ok());
}

Status FailureReporter::copy_of_poison() const {
  LOCKSTEP_CHECK(is_poisoned());
  Status copy;
  attempt([&] { copy = poison_; });
  return copy.ok() ? out_of_memory() : copy;
}

Status FailureReporter::refusal() const {
  LOCKSTEP_CHECK(is_poisoned());
  Failure refusal = poison_.failure();
  refusal.detail = "refused until reset, because of an earlier " +
                   std::string(name_of(refusal.code)) + ": " + refusal.detail;
  refusal.code = Code::kPoisoned;
  return refusal;
}

Status FailureReporter::reserved(Code code, const char* detail) {
  Status status = std::move(reserve_);
  if (status.ok()) status = Status(Failure());
  status.failure().code = code;
  attempt([&] { status.failure().detail = detail; });
  return status;
}

void FailureReporter::note(const ProgressSnapshot& progress, const Failure& failure) {
  if (failed_at_) return;
  failed_at_ = progress;
  failed_at_->failure = failure;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
