#include "properties/observe/user_abort.h"

#include <algorithm>
#include <utility>

#include "properties/case/hook_error.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

void sleep_for(platform::Duration span) {
  platform::Mutex mutex("user.sleep");
  platform::CondVar never("user.sleeps");
  const platform::MutexLock lock(mutex);
  never.wait(mutex, platform::Deadline::in(span), [] { return false; });
}

// The cause is an error of another library of the user, whose ranks, passes and buckets have other
// numbers. The rank whose user aborts is the cause all the same (F5), and no error names a rank
// that its group lacks (F2).
void add_what_others_say(Failure& failure) {
  constexpr int kOther = 100;
  failure.rank = failure.suspect = kOther;
  failure.pass = failure.bucket = -kOther;
}

// Peers of one group may follow before the next one is aborted, if that is some time later.
void abort_all(const std::vector<std::shared_ptr<ProcessGroup>>& groups, const Status& cause,
               platform::Duration between = {}) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i > 0 && between > platform::Duration(0)) sleep_for(between);
    groups[i]->abort(cause);
  }
}

}  // namespace

void UserAbort::take_groups(const Memberships& memberships) {
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  const auto add = [&groups](const std::shared_ptr<ProcessGroup>& group) {
    const bool is_new = std::find(groups.begin(), groups.end(), group) == groups.end();
    if (group != nullptr && is_new) groups.push_back(group);
  };
  for (const Membership& membership : memberships) {
    add(membership.group);
    add(membership.backward_group);
  }
  join();  // of an abort of the earlier groups
  const std::lock_guard lock(mutex_);
  groups_ = std::move(groups);
  has_aborted_ = has_aborted_reducers_ = false;
  to_destroy_with_.reset();
}

bool UserAbort::is_to_destroy() const {
  const std::lock_guard lock(mutex_);
  return to_destroy_with_.has_value();
}

// A reducer that is destroyed while the group works on its memory ends the group first; one that
// has nothing in flight leaves the group as it is (F5).
Status UserAbort::destroy_reducers(TrainingSubject& subject, std::string& wrong) {
  Status cause;
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  {
    const std::lock_guard lock(mutex_);
    cause = std::exchange(to_destroy_with_, std::nullopt).value();
    groups = groups_;
    has_aborted_ = true;
  }
  const auto has_ended = [](const auto& group) { return !group->health().ok(); };
  const auto has_own_end = [&](const auto& group) {
    return has_ended(group) && group->health().failure().rank == group->rank();
  };
  const bool was_usable = std::none_of(groups.begin(), groups.end(), has_ended);
  const bool has_launched = subject.destroy_reducers();
  const char* flaw = "";
  if (has_launched && std::none_of(groups.begin(), groups.end(), has_ended))
    flaw = "a reducer that was destroyed in the middle of a pass has not ended its group";
  if (!has_launched && was_usable && std::any_of(groups.begin(), groups.end(), has_own_end))
    flaw = "a reducer that was destroyed with nothing in flight has ended its group";
  if (wrong.empty()) wrong = flaw;
  abort_all(groups, cause);
  return cause;
}

void UserAbort::visit(TrainingSubject* subject) {
  const std::optional<faults::Fault> fault = environment_.visit_user_place();
  if (!fault) return;
  Status cause(properties::user_abort_error(*fault), properties::kAbortText);
  const faults::AbortCall call = faults::abort_call(*fault);
  const bool is_of_reducers = call == faults::AbortCall::kReducers && subject != nullptr;
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  bool has_thread = false;
  {
    const std::lock_guard lock(mutex_);
    if (call == faults::AbortCall::kDestroy && !fault->in_reset) {
      to_destroy_with_ = cause;
      return;
    }
    groups = groups_;
    // Where the ranks agree, the end of the first group has to reach the other ones.
    if (fault->in_reset && !groups.empty()) groups.resize(1);
    ends_all_ = groups.size() == groups_.size();
    if (call != faults::AbortCall::kGroupsByThread) has_aborted_ = has_aborted_ || ends_all_;
    if (call == faults::AbortCall::kGroupsByThread) has_thread = std::exchange(has_thread_, true);
    has_aborted_reducers_ = has_aborted_reducers_ || is_of_reducers;
  }
  if (is_of_reducers && fault->site % 2 == 1) add_what_others_say(cause.failure());
  if (is_of_reducers) return subject->abort(cause);
  if (call != faults::AbortCall::kGroupsByThread || has_thread) return abort_all(groups, cause);
  // The simulator keeps what its threads ran until the next case, so the groups are let go of here.
  const std::chrono::microseconds between(fault->duration_us);
  platform::Thread thread("user", [groups = std::move(groups), cause, between]() mutable {
    abort_all(groups, cause, between);
    groups.clear();
  });
  const std::lock_guard lock(mutex_);
  thread_ = std::move(thread);
}

void UserAbort::join() {
  platform::Thread thread;
  {
    const std::lock_guard lock(mutex_);
    thread = std::move(thread_);
    has_thread_ = false;
  }
  if (!thread.joinable()) return;
  thread.join();
  const std::lock_guard lock(mutex_);
  has_aborted_ = has_aborted_ || ends_all_;
}

bool UserAbort::has_aborted() const {
  const std::lock_guard lock(mutex_);
  return has_aborted_;
}

bool UserAbort::has_aborted_reducers() const {
  const std::lock_guard lock(mutex_);
  return has_aborted_reducers_;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
