#include "properties/generate/disagreement.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "properties/generate/change.h"
#include "properties/generate/fault_plan.h"
#include "reference/model.h"

namespace lockstep::properties {
namespace {

using reference::DisagreementKind;
using reference::Refusal;

bool may_reset(const Case& value) {
  const auto& plan = value.faults.faults;
  if (std::any_of(plan.begin(), plan.end(),
                  [](const auto& fault) { return !faults::is_benign(fault.kind); }))
    return true;
  return fails(value.program);
}

// Returns whether the backward has a process group of its own, and both groups verify what they
// receive. Such programs are rare, and so is the disagreement that needs one: a second group that
// cannot verify.
bool has_second_group_that_verifies(const reference::Program& program) {
  const reference::Replicated& options = program.options;
  return reference::has_backward_group(options) && options.verify;
}

}  // namespace

void draw_disagreement(Random random, Random variant, const GenerateOptions& options, Case& value) {
  constexpr std::uint32_t kOneIn = 30;
  constexpr int kTries = 8;
  constexpr std::uint32_t kSecondGroupPercent = 40;
  reference::Program& program = value.program;
  const bool is_of_second_group =
      has_second_group_that_verifies(program) && random.percent(kSecondGroupPercent);
  if (!is_of_second_group && random.below(kOneIn) != 0) return;
  if (!options.capabilities.has(Capability::kDisagreements)) return;
  const bool wants_reset = random.percent(80) && options.capabilities.has(Capability::kRecovery);
  for (int i = 0; i < kTries && program.disagreement.kind == DisagreementKind::kNone; ++i) {
    constexpr auto last = static_cast<std::uint32_t>(reference::kDisagreements.size() - 1);
    const auto drawn = static_cast<DisagreementKind>(random.between(1, last));
    program.disagreement = {
        is_of_second_group ? reference::disagreement_named("group_verify") : drawn,
        random.below(program.world), false,
        random.below(static_cast<std::uint32_t>(program.parameters.size())),
        variant.below(reference::kDisagreementVariants)};
    reference::limit_disagreement(program);
  }
  if (program.disagreement.kind != DisagreementKind::kNone)
    program.disagreement.at_reset = wants_reset && may_reset(value);
}

void find_disagreement_features(const Case& value, std::set<std::string>& found) {
  const reference::Program& program = value.program;
  if (program.disagreement.kind == DisagreementKind::kNone) return;
  std::vector<std::uint32_t> all(program.world);
  std::iota(all.begin(), all.end(), 0u);
  const std::string way = "a disagreement";
  found.insert(way + (program.disagreement.at_reset ? " at a reset" : " at the construction"));
  if (const auto refusal = reference::refusal_of(program, all))
    found.insert(
        way + (refusal->by == Refusal::By::kAgreement ? ": two ranks differ" : ": a rank refuses"));
}

}  // namespace lockstep::properties
