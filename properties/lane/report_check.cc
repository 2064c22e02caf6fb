#include "properties/lane/report_check.h"

#include <algorithm>
#include <chrono>

#include "reducer/failure_board.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void ReportCheck::begin_step() {
  const std::lock_guard lock(mutex_);
  is_in_step_ = !first_;
  works_.clear();
}

void ReportCheck::end_step() {
  const std::lock_guard lock(mutex_);
  is_in_step_ = false;
}

void ReportCheck::reported(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!first_) first_ = Report{platform::now(), std::string(text)};
}

void ReportCheck::started(const Collective& collective, Work& work) {
  // A collective without a reducer is one of the lane's own, and nobody observes its Work.
  if (collective.reducer_id == kNone) return;
  const std::lock_guard lock(mutex_);
  if (!is_in_step_) return;
  if (collective.op == Op::kBroadcast) works_.clear();
  if (std::find(works_.begin(), works_.end(), &work) == works_.end()) works_.push_back(&work);
}

// A group says of each collective that has failed which one that is, or which one failed before it,
// and on which rank it says so.
std::string ReportCheck::flaw_of_end(const Status& end, int own) {
  const Failure& failure = end.failure();
  if (failure.collective.empty() || failure.sequence < 0)
    return "a collective has ended with an error that names no collective with its number: " +
           end.to_string();
  if (failure.reported_by != own)
    return "a collective of rank " + std::to_string(own) +
           " has ended with an error that another rank reports, or nobody: " + end.to_string();
  return {};
}

std::string ReportCheck::flaw(const Status& cause, int own) {
  std::vector<Work*> works;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_in_step_, false)) return {};
    works = works_;
  }
  std::optional<platform::Duration> failed_at;
  for (Work* const work : works) {
    if (!work->done()) continue;
    const Status status = work->wait(platform::Deadline::in({}));
    if (status.ok()) continue;
    if (judges_ends_)
      if (const std::string flaw = flaw_of_end(status, own); !flaw.empty()) return flaw;
    failed_at = std::min(failed_at.value_or(work->completed_at()), work->completed_at());
  }
  if (!failed_at) return {};
  if (!first_) return "a collective of the rank failed, and it has told its peers nothing";
  const std::optional<Failure> told = read_failure(first_->text);
  if (!told) return "the rank told its peers what they cannot read";
  if (judges_times_ && is_of_group(*told) && first_->begun > *failed_at) {
    const auto late =
        std::chrono::duration_cast<std::chrono::microseconds>(first_->begun - *failed_at);
    return "the rank told its peers only " + std::to_string(late.count()) +
           " us after the first of its collectives had failed";
  }
  const Failure& failure = cause.failure();
  if (is_of_group(*told) && !concerns_group(failure.code) && failure.rank == own)
    return "the rank told its peers: " + told->to_string() +
           "; and it ended its group for a later error: " + failure.to_string();
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
