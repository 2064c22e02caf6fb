// Fiber: one simulated thread, as the scheduler and its primitives see it. This header is internal;
// users of the scheduler include scheduler.h.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "faults/sim/scheduler/clock.h"
#include "faults/sim/scheduler/context.h"
#include "faults/sim/scheduler/lock_order.h"

namespace lockstep::simulation {

using FiberId = std::uint32_t;
constexpr FiberId kNoFiber = 0xffff'ffff;

struct Fiber;
class MutexCore;

// The fibers that wait for one object, in the order of their arrival. A fiber is in at most one
// queue.
struct FiberQueue {
  Fiber* head = nullptr;
  Fiber* tail = nullptr;

  bool empty() const { return head == nullptr; }
  inline void push(Fiber& fiber);
  inline void remove(Fiber& fiber);
};

enum class WaitKind : std::uint8_t { kNothing, kMutex, kCondVar, kJoin, kSleep, kPlace };

struct Fiber {
  enum class State : std::uint8_t { kUnused, kReady, kWaiting, kFinished };
  static constexpr std::uint32_t kMaxHeld = 16;  // the most mutexes that a fiber can hold at a time

  // This is the first member because every switch reads and writes it.
  SwitchPoint point;
  FiberId id = 0;
  std::uint32_t group = 0;
  State state = State::kUnused;
  bool timed_out = false;  // how the last wait ended
  WaitKind wait_kind = WaitKind::kNothing;
  const void* wait_object = nullptr;  // a MutexCore, CondVarCore, Fiber or Place, by wait_kind
  // What the next step of the fiber uses, if that is known: a mutex, a condition variable or a
  // Place.
  const void* next_object = nullptr;
  NameId next_lock = kUnjudgedName;  // the name of that mutex, if the step locks one
  // The mutex that a wait on a condition variable has to acquire again.
  MutexCore* retake = nullptr;
  FiberQueue* queue = nullptr;  // the queue that the fiber is in
  Fiber* previous = nullptr;
  Fiber* next = nullptr;
  std::uint32_t held_count = 0;
  std::array<MutexCore*, kMaxHeld> held{};  // in the order of acquisition
  FiberQueue joiners;
  std::unique_ptr<Context> context;
  std::function<void()> body;
  std::string name;
};

inline void FiberQueue::push(Fiber& fiber) {
  fiber.queue = this;
  fiber.previous = tail;
  fiber.next = nullptr;
  (tail == nullptr ? head : tail->next) = &fiber;
  tail = &fiber;
}

inline void FiberQueue::remove(Fiber& fiber) {
  (fiber.previous == nullptr ? head : fiber.previous->next) = fiber.next;
  (fiber.next == nullptr ? tail : fiber.next->previous) = fiber.previous;
  fiber.queue = nullptr;
}

}  // namespace lockstep::simulation
