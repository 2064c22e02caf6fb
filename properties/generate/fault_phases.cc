#include "properties/generate/fault_phases.h"

#include <algorithm>
#include <iterator>

namespace lockstep::properties {
namespace {

using faults::Fault;
using faults::Kind;
using reference::Program;

constexpr std::uint32_t kBuckets = 3;
constexpr std::uint32_t kSteps = 4;
constexpr std::uint32_t kSecond = 1'000'000;
constexpr std::uint32_t kTimeoutMs = 2000;
constexpr std::uint32_t kLongTimeoutMs = 15'000;  // with faults after which nothing may fail

struct Planned {
  const char* words;
  Kind kind;
  std::uint32_t at = 0;
  std::uint32_t duration_us = 0;
  bool is_pair = false;  // a fault of the network between two ranks
};

constexpr std::uint32_t link(faults::LinkDirection direction, std::uint32_t amount = 0) {
  return static_cast<std::uint32_t>(direction) + faults::kLinkDirections * amount;
}
constexpr auto kBoth = faults::LinkDirection::kBoth;
constexpr auto kSent = faults::LinkDirection::kSent;
constexpr auto kReceived = faults::LinkDirection::kReceived;

constexpr Planned kPlanned[] = {
    {"its process is killed", Kind::kRankExit},
    {"its process is killed, and replaced", Kind::kRankReplaced},
    {"its process is killed, and replaced later", Kind::kRankReplaced, 1},
    {"it stops, and the others go on without it", Kind::kRankLeftOut},
    {"it is cut off, and the others go on without it", Kind::kRankLeftOut, 1},
    {"it stops for 0.3 s", Kind::kRankPause, 0, 3 * kSecond / 10},
    {"it stops for 5 s", Kind::kNodeStop, 0, 5 * kSecond},
    {"it never begins a collective", Kind::kOperationStall},
    {"it gets no more memory", Kind::kNodeMemory},
    {"it gets no more descriptors", Kind::kNodeDescriptors},
    {"its clock jumps an hour forward", Kind::kNodeClock, 2 * 3'600'000},
    {"its clock jumps an hour back", Kind::kNodeClock, 2 * 3'600'000 + 1},
    {"the store is full", Kind::kStoreFull},
    {"the store dies", Kind::kStoreDead},
    {"the store answers 20 ms late", Kind::kStoreSlow, 20'000},
    {"all its packets are dropped", Kind::kNetPartition, link(kBoth)},
    {"what it sends is dropped", Kind::kNetPartition, link(kSent)},
    {"what it receives is dropped", Kind::kNetPartition, link(kReceived)},
    {"the packets of one pair are dropped", Kind::kNetPartition, link(kBoth), 0, true},
    {"its packets are dropped for 0.3 s", Kind::kNetPartition, link(kBoth), 3 * kSecond / 10},
    {"10 % of its packets are lost", Kind::kNetLoss, link(kBoth, 10)},
    {"half of its packets are lost", Kind::kNetLoss, link(kBoth, 50)},
    {"its connections are reset", Kind::kNetReset, link(kBoth)},
    {"its packets are answered with a reset", Kind::kNetReject, link(kBoth)},
    {"silence after 1000 bytes", Kind::kNetHalfOpen, link(kBoth, 1000)},
    {"it sends 8 Mbit/s at most", Kind::kNetBandwidth, link(kSent, 8000)},
    {"its packets have 576 bytes at most", Kind::kNetMtu, link(kSent, 576)},
    {"its bytes arrive 20 ms late", Kind::kNetDelay, link(kBoth, 20'000)},
    {"a connection is cut within a message", Kind::kNetCut, link(kBoth, 1000)},
};

// Each parameter has a bucket of its own, and all ranks use all of them.
Program program_of(FaultPhase phase, std::uint32_t world) {
  Program program;
  program.world = world;
  program.options.first_bucket_bytes = program.options.bucket_bytes = 1;
  reference::RankPass pass;
  reference::Forward& forward = pass.forwards.emplace_back();
  for (std::uint32_t p = 0; p < kBuckets; ++p) {
    program.parameters.push_back({.key = p + 1, .sizes = {64, 64}});
    reference::Node& node = forward.nodes.emplace_back();
    node.key = p + 1;
    node.parameter = p;
    if (p > 0) node.inputs.emplace_back();
  }
  for (std::uint32_t step = 0; step < kSteps; ++step)
    program.steps.push_back({.key = step + 1, .variants = {pass}});
  if (phase == FaultPhase::kUsageMap) program.options.mode = reference::Mode::kDynamic;
  if (phase == FaultPhase::kRebuild) program.options.rebuild = true;
  if (phase == FaultPhase::kBroadcastState) program.buffers.push_back({.key = 9, .sizes = {64}});
  if (phase == FaultPhase::kJoin) {
    program.options.join = reference::Join::kByAll;
    program.steps_per_rank = {1};  // rank 0
  }
  return program;
}

bool is_in_reset(FaultPhase phase) {
  return phase == FaultPhase::kConstruction || phase == FaultPhase::kReset;
}

std::uint32_t step_of(FaultPhase phase) {
  switch (phase) {
    case FaultPhase::kConstruction:
      return 0;
    case FaultPhase::kReset:
    case FaultPhase::kJoin:
      return 2;
    case FaultPhase::kLeaving:
      return kSteps - 1;
    default:
      return 1;
  }
}

std::uint32_t site_of(FaultPhase phase) {
  switch (phase) {
    case FaultPhase::kBetweenBuckets:
      return 1;
    case FaultPhase::kUsageMap:
      return kBuckets;
    case FaultPhase::kFinalization:
    case FaultPhase::kLeaving:
      return kBuckets - 1;
    default:
      return 0;
  }
}

bool has_case(const Planned& planned, FaultPhase phase) {
  // Nobody recovers twice in the last step.
  const bool joins_later = planned.kind == Kind::kRankReplaced && planned.at > 0;
  if (joins_later && phase == FaultPhase::kLeaving) return false;
  return !is_in_reset(phase) || faults::has_site_in_reset(planned.kind);
}

PhaseCase case_of(const Planned& planned, FaultPhase phase, std::uint32_t world) {
  Fault fault{planned.kind, 1, step_of(phase), site_of(phase), planned.duration_us};
  fault.in_reset = is_in_reset(phase);
  fault.at = planned.at;
  fault.peer = planned.is_pair ? 0 : fault.rank;
  PhaseCase out{
      std::string(faults::name_of(planned.kind)) + ": " + planned.words, phase, fault, {}};
  out.value.program = program_of(phase, world);
  const bool may_fail = !faults::is_benign(planned.kind) && planned.duration_us < kSecond / 2;
  const bool outlasts = planned.kind == Kind::kNodeStop;
  const bool heals = planned.kind == Kind::kNetPartition && planned.duration_us > 0;
  // Another process takes its time to start, and the others wait for it while they connect.
  const bool is_replaced = planned.kind == Kind::kRankReplaced;
  const bool is_short = (may_fail && !heals && !is_replaced) || outlasts;
  out.value.timeout_ms = is_short ? kTimeoutMs : kLongTimeoutMs;
  // What makes the ranks reset, and the second recovery for which a replacement waits.
  if (phase == FaultPhase::kReset) out.value.faults.faults.push_back({Kind::kNodeThrows, 0, 1, 0});
  out.value.faults.faults.push_back(fault);
  const bool joins_later = planned.kind == Kind::kRankReplaced && planned.at > 0;
  if (joins_later) out.value.faults.faults.push_back({Kind::kNodeThrows, 0, fault.step + 1, 0});
  normalize(out.value);
  return out;
}

}  // namespace

const char* name_of(FaultPhase phase) {
  constexpr const char* kNames[] = {"construction",    "before the first bucket",
                                    "between buckets", "usage map",
                                    "rebuild",         "broadcast of state",
                                    "finalization",    "join",
                                    "reset",           "leaving"};
  static_assert(std::size(kNames) == kFaultPhases);
  return kNames[static_cast<std::size_t>(phase)];
}

std::vector<PhaseCase> phase_cases(const PhaseOptions& options) {
  std::vector<PhaseCase> out;
  for (const Planned& planned : kPlanned) {
    if (!options.kinds.has(planned.kind)) continue;
    for (int p = 0; p < kFaultPhases; ++p) {
      const auto phase = static_cast<FaultPhase>(p);
      if (!has_case(planned, phase)) continue;
      for (const std::uint32_t world : options.worlds)
        out.push_back(case_of(planned, phase, world));
    }
  }
  return out;
}

}  // namespace lockstep::properties
