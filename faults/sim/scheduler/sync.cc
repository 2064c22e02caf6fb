#include "faults/sim/scheduler/sync.h"

#include "reducer/base/check.h"

namespace lockstep::simulation {

MutexCore::~MutexCore() {
  if (Scheduler::running() == nullptr) return;
  LOCKSTEP_CHECK(owner_ == nullptr);
  LOCKSTEP_CHECK(waiters_.empty());
}

void MutexCore::lock() {
  Scheduler* scheduler = Scheduler::running();
  if (scheduler == nullptr) return;
  scheduler->point(this, name_);
  acquire(*scheduler);
}

void MutexCore::unlock() {
  Scheduler* scheduler = Scheduler::running();
  if (scheduler == nullptr) return;
  release(*scheduler);
}

void MutexCore::acquire(Scheduler& scheduler) {
  Fiber& self = *scheduler.current_;
  Scheduler::touch(id_, Access::kWrite);
  for (std::uint32_t i = 0; i < self.held_count; ++i)
    scheduler.lock_order_.acquire(self.held[i]->name_, name_, self.id);
  while (owner_ != nullptr) {
    self.wait_kind = WaitKind::kMutex;
    self.wait_object = this;
    waiters_.push(self);
    scheduler.park();
    Scheduler::touch(id_, Access::kWrite);
  }
  take(self);
}

void MutexCore::take(Fiber& fiber) {
  owner_ = &fiber;
  LOCKSTEP_CHECK_LT(fiber.held_count, Fiber::kMaxHeld);
  fiber.held[fiber.held_count++] = this;
}

void MutexCore::release(Scheduler& scheduler) {
  Fiber& self = *scheduler.current_;
  LOCKSTEP_CHECK(owner_ == &self);
  Scheduler::touch(id_, Access::kWrite);
  owner_ = nullptr;
  std::uint32_t at = self.held_count - 1;
  while (self.held[at] != this) --at;
  for (--self.held_count; at < self.held_count; ++at) self.held[at] = self.held[at + 1];
  if (waiters_.empty()) return;
  Fiber& first = *waiters_.head;
  scheduler.remove_from_wait(first);
  scheduler.make_ready(first);
}

CondVarCore::~CondVarCore() {
  if (Scheduler::running() == nullptr) return;
  LOCKSTEP_CHECK(waiters_.empty());
}

bool CondVarCore::wait(MutexCore& mutex, Duration until) {
  Scheduler* scheduler = Scheduler::running();
  if (scheduler == nullptr) {
    LOCKSTEP_CHECK(until != kNever);  // outside of a run nobody could end this wait
    return false;
  }
  if (until <= scheduler->now()) return false;
  Fiber& self = *scheduler->current_;
  // This scheduling point lies between the test of the predicate and the wait. A fiber that makes
  // the predicate true without the mutex can do so here, and then its notification is lost.
  scheduler->point(this);
  Scheduler::touch(id_, Access::kWrite);
  mutex.release(*scheduler);
  self.wait_kind = WaitKind::kCondVar;
  self.wait_object = this;
  self.retake = &mutex;
  waiters_.push(self);
  const bool notified = scheduler->park_until(until);
  self.retake = nullptr;
  mutex.acquire(*scheduler);
  return notified;
}

void CondVarCore::note_end_by_deadline(bool holds, Duration until) const {
  Scheduler* const scheduler = Scheduler::running();
  if (holds && scheduler != nullptr && scheduler->now() == until &&
      scheduler->is_first_at_this_time())
    scheduler->note_late_wait(name_);
}

void CondVarCore::wake(Scheduler& scheduler, Fiber& fiber) {
  MutexCore& mutex = *fiber.retake;
  scheduler.remove_from_wait(fiber);
  Scheduler::touch(mutex.id_, Access::kRead);
  if (mutex.owner_ == nullptr) {
    scheduler.make_ready(fiber);
    return;
  }
  Scheduler::touch(mutex.id_, Access::kWrite);
  fiber.wait_kind = WaitKind::kMutex;
  fiber.wait_object = &mutex;
  mutex.waiters_.push(fiber);
}

void CondVarCore::notify_one() {
  Scheduler* scheduler = Scheduler::running();
  if (scheduler == nullptr) return;
  Scheduler::touch(id_, Access::kWrite);
  last_notifier_ = scheduler->current_id();
  if (waiters_.empty()) return;
  wake(*scheduler, scheduler->choose_waiter(waiters_));
  scheduler->point(this);
}

void CondVarCore::notify_all() {
  Scheduler* scheduler = Scheduler::running();
  if (scheduler == nullptr) return;
  Scheduler::touch(id_, Access::kWrite);
  last_notifier_ = scheduler->current_id();
  if (waiters_.empty()) return;
  while (!waiters_.empty()) wake(*scheduler, *waiters_.head);
  scheduler->point(this);
}

}  // namespace lockstep::simulation
