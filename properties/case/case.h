// Case: one test, complete: what every rank trains (Program), in which environment, which faults
// occur (FaultPlan) and in which order fibers run (Schedule). Running the same case twice in the
// sim lane does the same thing, bit for bit. A case is stored as JSON with a schema number
// (case_json.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "faults/plan.h"
#include "properties/case/environment.h"
#include "properties/case/torch_options.h"
#include "reference/program.h"

namespace lockstep::properties {

// How the simulator picks the next fiber at each scheduling point where there is a choice.
struct Schedule {
  enum class Policy : std::uint8_t {
    // Stays on the running fiber if it can run, and otherwise takes the lowest id; `deviations`
    // have precedence.
    kDefault,
    kRandomWalk,    // any runnable fiber, uniformly
    kStayBiased,    // stays with probability 7/8, and otherwise steps as the random walk does
    kRoundRobin,    // the next runnable id after the running one
    kPos,           // partial order sampling
    kPct,           // probabilistic concurrency testing, with 1, 2 or 4 changes of priority
    kDelayBounded,  // takes turns, with 1 to 4 delays
    kUrw,           // uniform random walk: weighs fibers by the events that they have left
    kSurw,          // selectively uniform random walk: by their events at one mutex
  };
  struct Deviation {
    std::uint32_t choice = 0;  // the number of the choice in the run, from 0
    std::uint32_t fiber = 0;   // the fiber to run there; ignored if it is not runnable
  };
  Policy policy = Policy::kDefault;
  std::uint32_t seed = 0;
  std::vector<Deviation> deviations;  // kDefault only; ascending by choice
};

// The names of the policies are those in case files. policy_of() returns nothing for another name.
std::vector<std::string> policy_names();
std::string name_of(Schedule::Policy policy);
std::optional<Schedule::Policy> policy_of(std::string_view name);

// Names an option of the program that must not change what comes out: its number, from 1, among the
// rows of the table of options that say so (Row::keeps in field.h).
enum class SwitchedOption : std::uint8_t { kNone };

// With an option, the case runs twice. In the second run the option has another value, and the same
// must come out (switched.h).
struct Switch {
  SwitchedOption option = SwitchedOption::kNone;
  std::uint32_t to = 0;  // which of the other values of the option, modulo their number
};

struct Case {
  reference::Program program;
  faults::FaultPlan faults;
  Schedule schedule;
  // If 0, waits in the sim lane never time out, so that a hang is a visible deadlock. If a fault of
  // the plan can silence a rank, or one is absent, 0 means kDefaultTimeoutMs. In
  // the gloo lane 0 always is a timeout, in real time: see gloo_timeout_ms().
  std::uint32_t timeout_ms = 0;
  Switch switched;
  Environment environment;
  TorchOptions torch;
};
constexpr std::uint32_t kDefaultTimeoutMs = 10'000;
constexpr std::uint32_t kShortTimeoutMs = 2'000;
constexpr std::uint32_t kMaxTimeoutMs = 600'000;

// Brings every field within its limits: the program as reference::normalize does; ranks and steps
// of faults modulo; durations to their limits, and to 0 if a kind has no duration; deviations
// ascending, with one per choice (and none except under kDefault); the environment and the options
// of PyTorch as exclusions.h says.
void normalize(Case& value);
// The last two of these alone.
void normalize_surroundings(Case& value);

// Compares field by field.
bool equal(const Case& a, const Case& b);

// Hashes all fields. The hash is the same on every machine and in every build.
std::uint64_t hash_of(const Case& value);

// Returns whether a fault of this kind can act only on a rank that is a process of its own.
bool needs_process(faults::Kind kind);
// Returns whether a fault of this kind keeps its rank (or a link of the rank) from ever answering,
// so that the others need a timeout.
bool can_silence(faults::Kind kind);

// Returns whether a rank is absent from some step (P8).
bool has_absent_rank(const reference::Program& program);

// Returns whether waits of this case never time out in the sim lane: see Case::timeout_ms.
bool never_times_out(const Case& value);

// Returns the timeout of the process groups of this case over Gloo. If the case sets none, it is
// short where ranks may wait until the timeout in each of several steps: for an absent rank (P8),
// or with two reducers, when they err in passes of different ones (F7).
std::uint32_t gloo_timeout_ms(const Case& value);

}  // namespace lockstep::properties
