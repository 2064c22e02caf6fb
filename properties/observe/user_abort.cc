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
}

void UserAbort::visit(TrainingSubject* subject) {
  const std::optional<faults::Fault> fault = environment_.visit_user_place();
  if (!fault) return;
  const Status cause(properties::user_abort_error(*fault), properties::kAbortText);
  const faults::AbortCall call = faults::abort_call(*fault);
  const bool is_of_reducers = call == faults::AbortCall::kReducers && subject != nullptr;
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  bool has_thread = false;
  {
    const std::lock_guard lock(mutex_);
    groups = groups_;
    // Where the ranks agree, the end of the first group has to reach the other ones.
    if (fault->in_reset && !groups.empty()) groups.resize(1);
    ends_all_ = groups.size() == groups_.size();
    if (call != faults::AbortCall::kGroupsByThread) has_aborted_ = has_aborted_ || ends_all_;
    if (call == faults::AbortCall::kGroupsByThread) has_thread = std::exchange(has_thread_, true);
    has_aborted_reducers_ = has_aborted_reducers_ || is_of_reducers;
  }
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
