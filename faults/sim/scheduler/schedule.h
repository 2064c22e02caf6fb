// Schedule: how the scheduler picks the next fiber when it has a choice. It is plain data.
//
// A choice is a scheduling point at which more than one fiber could run, or a notify_one() with
// more than one waiter. Choices are counted from 0 over a run. Under every policy the scheduler
// records the deviations of its run from the default policy: the same program under kDefault with
// these deviations does the same thing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::simulation {

enum class Policy : std::uint8_t {
  // Stays on the running fiber if it can run, and otherwise takes the lowest id. `deviations` have
  // precedence.
  kDefault,
  // The files in policy/ describe the others.
  kRandomWalk,
  kStayBiased,
  kRoundRobin,
  kPos,
  kPct,
  kDelayBounded,
  kUrw,
  kSurw,
  // Picks as kDefault does, and counts the events of each fiber. kUrw and kSurw are to run the same
  // program next.
  kCounting,
};
constexpr std::size_t kPolicies = 10;

// Returns whether the policy weighs fibers by the events that a run under kCounting has counted.
constexpr bool needs_counts(Policy policy) {
  return policy == Policy::kUrw || policy == Policy::kSurw;
}

struct Deviation {
  std::uint32_t choice = 0;
  std::uint32_t fiber = 0;  // ignored if it is not runnable at that choice
};

struct Schedule {
  Policy policy = Policy::kDefault;
  std::uint64_t seed = 0;
  std::vector<Deviation> deviations;  // used under kDefault only; ascending by choice
};

}  // namespace lockstep::simulation
