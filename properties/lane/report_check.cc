#include "properties/lane/report_check.h"

#include <algorithm>
#include <chrono>

#include "properties/case/abort_text.h"
#include "reducer/base/status.h"

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

void ReportCheck::starts(const Collective& collective) {
  const std::lock_guard lock(mutex_);
  passes_.insert(collective.pass);
  buckets_.insert(collective.bucket);
}

void ReportCheck::started(const ProcessGroup& group, const Collective& collective, Work& work) {
  const std::lock_guard lock(mutex_);
  collectives_[&group].push_back(collective);
  // A collective without a reducer is one of the lane's own, and nobody observes its Work.
  if (collective.reducer_id == kNone || !is_in_step_) return;
  if (collective.op == Op::kBroadcast) works_.clear();
  std::erase_if(works_, [&](const Started& each) { return each.work == &work; });
  works_.push_back({&group, &work});
}

void ReportCheck::forget(const ProcessGroup& group) {
  const std::lock_guard lock(mutex_);
  collectives_.erase(&group);
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
  const std::string by = "rank " + std::to_string(failure.rank) + " ";
  if (failure.code == Code::kAborted && failure.rank != own && !failure.detail.starts_with(by))
    return "a collective has ended with an error that does not say who aborted it: " +
           end.to_string();
  return {};
}

// Finds out when the first collective failed.
std::string ReportCheck::flaw_of_ends(const std::vector<Started>& works, int own,
                                      std::optional<platform::Duration>& failed_at) const {
  std::set<const ProcessGroup*> failed;
  for (const Started& each : works) {
    if (!each.work->done()) continue;
    const Status status = each.work->wait(platform::Deadline::in({}));
    if (status.ok() && failed.count(each.group) != 0)
      return "a collective has succeeded that was started after one that has failed";
    if (status.ok()) continue;
    failed.insert(each.group);
    if (judges_ends_)
      if (std::string flaw = flaw_of_end(status, own); !flaw.empty()) return flaw;
    if (std::string flaw = properties::flaw_of_abort(status.failure()); !flaw.empty()) return flaw;
    failed_at = std::min(failed_at.value_or(each.work->completed_at()), each.work->completed_at());
  }
  return {};
}

// Returns whether a failure names a collective as this rank has started it, as far as the rank has
// come. In which pass a peer was that aborted the group, the error of this rank does not say.
bool ReportCheck::names_what_was_started(const Failure& failure) const {
  if (failure.collective.empty() || failure.sequence < 0 || collectives_.empty()) return true;
  const auto number = static_cast<std::size_t>(failure.sequence);
  const bool is_of_peer = failure.code == Code::kAborted;
  return std::any_of(collectives_.begin(), collectives_.end(), [&](const auto& each) {
    if (number >= each.second.size()) return true;
    const Collective& it = each.second[number];
    const bool is_in_pass = failure.pass == kNone || it.pass == kNone || failure.pass == it.pass;
    const bool is_of_bucket = failure.bucket == kNone || failure.bucket == it.bucket;
    const bool is_there = is_of_peer || (is_in_pass && is_of_bucket);
    return is_there && name_of(it.op) == failure.collective;
  });
}

// A rank that reports a failure of its group names a collective as it has started it. A peer that
// failed first may have been ahead. Where a peer has aborted the group, the pass and the
// bucket are those in which this rank was.
std::string ReportCheck::flaw_of_place(const Failure& failure) const {
  if (!is_of_group(failure)) return {};
  if (std::string flaw = properties::flaw_of_abort(failure); !flaw.empty()) return flaw;
  const auto names = [&](const std::string& what) {
    return "the rank names " + what + ": " + failure.to_string();
  };
  if (!names_what_was_started(failure)) return names("a collective that it has not started so");
  const bool is_elsewhere = (failure.pass != kNone && passes_.count(failure.pass) == 0) ||
                            (failure.bucket != kNone && buckets_.count(failure.bucket) == 0);
  if (failure.code == Code::kAborted && is_elsewhere)
    return names("a pass or a bucket in which it has started nothing");
  if (failure.bucket == kNone && !failure.parameters.empty())
    return names("the parameters of a bucket, and not the bucket");
  return {};
}

std::string ReportCheck::flaw_of_text(int size) {
  const std::lock_guard lock(mutex_);
  if (!first_ || read_failure(first_->text, size)) return {};
  return "the rank told its peers what they cannot read";
}

std::string ReportCheck::flaw(const Status& cause, int own) {
  std::vector<Started> works;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_in_step_, false)) return {};
    works = works_;
  }
  std::optional<platform::Duration> failed_at;
  if (std::string flaw = flaw_of_ends(works, own, failed_at); !flaw.empty()) return flaw;
  if (std::string flaw = flaw_of_place(cause.failure()); !flaw.empty()) return flaw;
  const bool is_bare = cause.failure().bucket != kNone && cause.failure().parameters.empty();
  if (judges_times_ && is_bare)  // and no memory was refused for the names
    return "the rank ends its group for an error in a bucket, and does not name its parameters: " +
           cause.to_string();
  if (!failed_at) return {};
  if (!first_) return "a collective of the rank failed, and it has told its peers nothing";
  const std::optional<Failure> told = read_failure(first_->text);
  if (!told) return {};  // flaw_of_text() says so
  if (std::string flaw = flaw_of_place(*told); !flaw.empty()) return flaw;
  if (is_of_group(*told) && told->pass == kNone && told->bucket != kNone)
    return "the rank told its peers of a bucket in no pass: " + told->to_string();
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
