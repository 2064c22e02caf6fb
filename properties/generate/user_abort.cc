#include "properties/generate/user_abort.h"

#include "properties/case/fields.h"
#include "properties/case/hook_error.h"
#include "properties/generate/fault_plan.h"
#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

using faults::Fault;

constexpr std::uint32_t kPercent = 4;  // of cases
constexpr std::uint32_t kAlonePercent = 75;
constexpr std::uint32_t kConstructionPercent = 10;
constexpr std::uint32_t kResetPercent = 20;

// A step has from a few to some 60 places. Small and large numbers are equally likely: the number
// of binary digits is drawn first.
std::uint32_t draw_place(Random& random) {
  constexpr std::uint32_t kDigits = 6;
  return random.below(1u << random.below(kDigits + 1));
}

constexpr std::uint32_t kLeastUs = 20;  // between the aborts of two groups

// Between two backwards of a pass a reducer may have buckets in flight. Moves the fault into the
// first backward of such a pass of its rank, or close to it, if there is one.
void move_between_backwards(Random& random, const Case& value, Fault& fault) {
  const auto& steps = value.program.steps;
  const auto count = static_cast<std::uint32_t>(steps.size());
  const std::uint32_t first = random.below(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t at = (first + i) % count;
    const reference::RankPass& pass = reference::pass_of(steps[at], fault.rank);
    if (steps[at].kind != reference::PassKind::kSynced || pass.backwards.size() < 2) continue;
    fault.step = at;
    fault.site = random.between(3, 12);
    return;
  }
}

Fault draw_one(Random& random, const Case& value) {
  Fault fault;
  fault.kind = faults::Kind::kUserAbort;
  fault.rank = random.below(value.program.world);
  fault.step = random.below(static_cast<std::uint32_t>(value.program.steps.size()));
  fault.site = draw_place(random);
  constexpr auto kByThread = static_cast<std::uint32_t>(faults::AbortCall::kGroupsByThread);
  std::uint32_t call = random.below(faults::kAbortCalls);
  // Such programs are rare.
  const bool has_several = reference::has_several_groups(value.program.options);
  if (has_several && random.percent(60)) call = kByThread;
  if (has_several && call == kByThread && random.percent(50))
    fault.duration_us = kLeastUs << random.below(10);
  constexpr auto kDestroy = static_cast<std::uint32_t>(faults::AbortCall::kDestroy);
  if (!has_several && random.percent(30)) call = kDestroy;
  if (call == kDestroy && random.percent(90)) move_between_backwards(random, value, fault);
  const auto codes = static_cast<std::uint32_t>(kAbortErrors.size());
  fault.at = call + faults::kAbortCalls * random.below(codes);
  return fault;
}

// Two collectives agree, and some more send the state. Each has two places.
void move_to_reset(Random& random, std::uint32_t step, Fault& fault) {
  fault.in_reset = true;
  fault.step = step;
  fault.site = random.below(8);
}

// kDisagreements stands for Lockstep's own reducer, the only subject whose reducer a user can
// abort.
bool is_able(const GenerateOptions& options, const Case& value) {
  using Lane = GenerateOptions::Lane;
  return (options.lane == Lane::kSim || options.lane == Lane::kGloo) &&
         !value.program.steps.empty() && options.capabilities.has(Capability::kRecovery) &&
         options.capabilities.has(Capability::kDisagreements) &&
         drawable_kinds(options).has(faults::Kind::kUserAbort);
}

}  // namespace

void draw_user_abort(Random random, const GenerateOptions& options, Case& value) {
  using Faults = GenerateOptions::Faults;
  if (options.faults == Faults::kNone || !is_able(options, value)) return;
  if (options.faults == Faults::kSwarm && !random.percent(kPercent)) return;
  std::vector<Fault>& plan = value.faults.faults;
  // Changes of payloads are judged by what is received, and a group that ends receives nothing.
  if (has_payload_fault(value) || random.percent(kAlonePercent)) plan.clear();
  if (plan.empty()) value.timeout_ms = 0;
  if (plan.size() + 2 > fields::kMaxFaults) return;
  const bool disagrees = value.program.disagreement.kind != reference::DisagreementKind::kNone;
  Fault fault = draw_one(random, value);
  const bool is_sim = options.lane == GenerateOptions::Lane::kSim;
  if (is_sim && !disagrees && random.percent(kConstructionPercent)) move_to_reset(random, 0, fault);
  plan.push_back(fault);
  const bool resets =
      is_sim && !disagrees && !fault.in_reset && fault.step + 1 < value.program.steps.size();
  if (!resets || !random.percent(kResetPercent)) return;
  Fault in_reset = draw_one(random, value);
  move_to_reset(random, fault.step + 1, in_reset);
  plan.push_back(in_reset);
}

}  // namespace lockstep::properties
