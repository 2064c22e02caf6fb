// fault_phases: cases with one fault in one phase of training, for `lockstep matrix --faults`:
// every kind of fault, in each phase in which it can act, with so many ranks. The programs are
// small and fixed, so that the site of the fault is known; nothing is drawn.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/generate/generate.h"

namespace lockstep::properties {

enum class FaultPhase : std::uint8_t {
  kConstruction,
  kBeforeFirstBucket,
  kBetweenBuckets,
  kUsageMap,
  kRebuild,         // the broadcast of the order of the buckets
  kBroadcastState,  // of buffers, before a forward
  kFinalization,    // the last bucket is sent, and the backward waits for all sums
  kJoin,            // uneven inputs: a rank shadows the others
  kReset,
  kLeaving,  // the last collective of the program
};
constexpr int kFaultPhases = 10;
const char* name_of(FaultPhase phase);

struct PhaseCase {
  std::string fault;  // in words, such as "rank_exit: its process is killed"
  FaultPhase phase = FaultPhase::kConstruction;
  faults::Fault planned;  // the fault in question; its rank is no survivor
  Case value;             // normalized
};

struct PhaseOptions {
  FaultKinds kinds = FaultKinds::all();
  std::vector<std::uint32_t> worlds = {2, 3, 8};  // 2 at least
};
// A fault that cannot act in a phase has no case there. Ordered by fault, phase and world.
std::vector<PhaseCase> phase_cases(const PhaseOptions& options);

}  // namespace lockstep::properties
