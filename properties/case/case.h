// Case: everything random about one test, in one value: what every rank trains (Program), what goes
// wrong (FaultPlan) and who runs when (Schedule). Running the same case twice in the sim lane does
// the same thing, bit for bit. The durable form is JSON with a schema number (case_json.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "faults/plan.h"
#include "reference/program.h"

namespace lockstep::properties {

// How the simulator picks the next fiber at each scheduling point where there is a choice.
struct Schedule {
  enum class Policy : std::uint8_t {
    kDefault,     // stay on the running fiber, else the lowest id; then `deviations`
    kRandomWalk,  // any runnable fiber, uniformly
    kStayBiased,  // stay with probability 7/8, else a random walk step
    kRoundRobin,  // the next runnable id after the running one
  };
  struct Deviation {
    std::uint32_t choice = 0;  // the how-many-th choice of the run, from 0
    std::uint32_t fiber = 0;   // the fiber to run there; ignored when it is not runnable
  };
  Policy policy = Policy::kDefault;
  std::uint32_t seed = 0;
  std::vector<Deviation> deviations;  // kDefault only; ascending by choice
};

struct Case {
  reference::Program program;
  faults::FaultPlan faults;
  Schedule schedule;
  // 0: waits in the sim lane never time out, so that a hang is a visible deadlock. Where a fault of
  // the plan can silence a rank the generator gives a timeout, and 0 means kDefaultTimeoutMs, as
  // always in the gloo lane, in real time.
  std::uint32_t timeout_ms = 0;
};
constexpr std::uint32_t kDefaultTimeoutMs = 10'000;
constexpr std::uint32_t kMaxTimeoutMs = 600'000;

// Brings every field within its limits: the program as reference::normalize does, ranks and steps
// of faults modulo, times to their limits and to 0 where a kind has no duration, deviations
// ascending and one per choice (none but under kDefault).
void normalize(Case& value);

// Field by field.
bool equal(const Case& a, const Case& b);

// Of all fields; the same on every machine and in every build.
std::uint64_t hash_of(const Case& value);

}  // namespace lockstep::properties
