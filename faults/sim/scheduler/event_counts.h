// EventCounts: how many events the fibers of a run have, by which urw and surw weigh them. An event
// is a step: what a fiber runs from one scheduling point to the next.
//
// The policy kCounting fills the counts in a run with the default picks, and they stay until the
// next such run. Another schedule may number fibers in another way, so fibers are known by name and
// group; those that share both are taken to have the mean of their events. The events of a fiber
// include those of the fibers that it spawns.
//
// Threads: the scheduler's. Cost: find() compares names, once for each fiber of a run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "faults/sim/scheduler/fiber.h"
#include "faults/sim/scheduler/index_set.h"

namespace lockstep::simulation {

class EventCounts {
 public:
  struct Entry {
    std::string name;
    std::uint32_t group = 0;
    std::uint32_t fibers = 0;
    std::uint32_t events = 0;
    std::array<std::uint32_t, kMaxNames> locks{};  // events that lock a mutex, by its name
    IndexSet<kMaxNames / 64> own_locks;            // names of those that the fibers lock themselves

    std::uint32_t mean_events() const { return (events + fibers - 1) / fibers; }
    std::uint32_t mean_locks(NameId lock) const { return (locks[lock] + fibers - 1) / fibers; }
  };

  void clear() { entries_.clear(); }
  const std::vector<Entry>& entries() const { return entries_; }
  // Returns the entry of the fiber's name and group; null if the counted run had no such fiber.
  const Entry* find(const Fiber& fiber) const {
    for (const Entry& entry : entries_)
      if (entry.group == fiber.group && entry.name == fiber.name) return &entry;
    return nullptr;
  }
  // Returns the index of that entry, which is made if there is none.
  std::size_t add_fiber(const Fiber& fiber) {
    std::size_t i = 0;
    while (i < entries_.size() &&
           (entries_[i].group != fiber.group || entries_[i].name != fiber.name))
      ++i;
    if (i == entries_.size()) entries_.push_back({fiber.name, fiber.group, 0, 0, {}, {}});
    ++entries_[i].fibers;
    return i;
  }
  Entry& entry(std::size_t index) { return entries_[index]; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace lockstep::simulation
