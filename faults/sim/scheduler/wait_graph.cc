#include "faults/sim/scheduler/wait_graph.h"

#include <algorithm>
#include <vector>

#include "faults/sim/scheduler/sync.h"

namespace lockstep::simulation {

namespace {

std::string label(const Fiber& fiber) {
  return "fiber " + std::to_string(fiber.id) + " \"" + fiber.name + "\"";
}

bool is_live(const Fiber& fiber) {
  return fiber.state == Fiber::State::kReady || fiber.state == Fiber::State::kWaiting;
}

std::string describe_place(const Place& place) {
  std::string out = place.what;
  if (place.from != kNoFiber) out += " " + std::to_string(place.from);
  if (place.to != kNoFiber) out += " -> " + std::to_string(place.to);
  return out;
}

// Returns the one fiber that could end the wait of `fiber`, if it is known.
FiberId waker_of(const Fiber& fiber) {
  if (fiber.state != Fiber::State::kWaiting) return kNoFiber;
  switch (fiber.wait_kind) {
    case WaitKind::kMutex: {
      const Fiber* owner = static_cast<const MutexCore*>(fiber.wait_object)->owner();
      return owner == nullptr ? kNoFiber : owner->id;
    }
    case WaitKind::kJoin:
      return static_cast<const Fiber*>(fiber.wait_object)->id;
    case WaitKind::kPlace:
      return static_cast<const Place*>(fiber.wait_object)->waker;
    case WaitKind::kCondVar:
    case WaitKind::kSleep:
    case WaitKind::kNothing:
      return kNoFiber;
  }
  return kNoFiber;
}

template <class Fibers>
std::string describe_wait(const Fiber& fiber, const Fibers& fibers) {
  const auto by_id = [&](FiberId id) { return label(fibers[id]); };
  switch (fiber.wait_kind) {
    case WaitKind::kMutex: {
      const auto& mutex = *static_cast<const MutexCore*>(fiber.wait_object);
      const std::string text = std::string("waits for mutex \"") + name_of(mutex.name()) + "\"";
      return mutex.owner() == nullptr ? text : text + ", held by " + label(*mutex.owner());
    }
    case WaitKind::kCondVar: {
      const auto& condition = *static_cast<const CondVarCore*>(fiber.wait_object);
      std::string text = std::string("waits for condition \"") + condition.name() + "\"";
      text += " with mutex \"" + std::string(name_of(fiber.retake->name())) + "\"";
      if (condition.last_notifier() == kNoFiber) return text + ", which nobody has ever notified";
      return text + ", last notified by fiber " + std::to_string(condition.last_notifier());
    }
    case WaitKind::kJoin:
      return "waits for the end of " + label(*static_cast<const Fiber*>(fiber.wait_object));
    case WaitKind::kPlace: {
      const auto& place = *static_cast<const Place*>(fiber.wait_object);
      const std::string text = "waits for " + describe_place(place);
      return place.waker == kNoFiber ? text
                                     : text + ", which could come from " + by_id(place.waker);
    }
    case WaitKind::kSleep:
      return "sleeps";
    case WaitKind::kNothing:
      return "can run";
  }
  return "can run";
}

// Follows waker_of() from every fiber. Each cycle is described once, from its lowest id.
template <class Fibers>
std::string describe_circles(const Fibers& fibers) {
  std::string out;
  std::vector<bool> told(fibers.size(), false);
  for (const Fiber& start : fibers) {
    if (!is_live(start) || told[start.id]) continue;
    std::vector<FiberId> path{start.id};
    for (FiberId at = waker_of(start); at != kNoFiber; at = waker_of(fibers[at])) {
      const auto seen = std::find(path.begin(), path.end(), at);
      if (seen == path.end()) {
        path.push_back(at);
        continue;
      }
      if (told[at]) break;
      std::vector<FiberId> circle(seen, path.end());
      std::rotate(circle.begin(), std::min_element(circle.begin(), circle.end()), circle.end());
      out += "  circle:";
      for (const FiberId id : circle) out += " " + label(fibers[id]) + " ->";
      out += " fiber " + std::to_string(circle.front()) + "\n";
      for (const FiberId id : circle) told[id] = true;
      break;
    }
  }
  return out;
}

}  // namespace

std::string describe_waits(const Scheduler& scheduler, End end) {
  const auto& fibers = scheduler.fibers_.all;
  std::string out = end == End::kDeadlock ? "deadlock" : "livelock";
  out += ": " + std::to_string(scheduler.fibers_.live) + " fibers left after " +
         std::to_string(scheduler.progress_.steps) + " scheduling points, at virtual time " +
         std::to_string(scheduler.now().count()) + " ns\n";
  for (const Fiber& fiber : fibers) {
    if (!is_live(fiber)) continue;
    out += "  " + label(fiber) + " (group " + std::to_string(fiber.group) + ") " +
           describe_wait(fiber, fibers);
    if (scheduler.paused_.contains(fiber.group)) out += ", paused";
    if (scheduler.clock_.is_armed(fiber.id))
      out += ", until " + std::to_string(scheduler.clock_.at(fiber.id).count()) + " ns";
    for (std::uint32_t i = 0; i < fiber.held_count; ++i)
      out += (i == 0 ? "; holds \"" : ", \"") + std::string(name_of(fiber.held[i]->name())) + "\"";
    out += "\n";
  }
  return out + describe_circles(fibers);
}

}  // namespace lockstep::simulation
