#include "properties/generate/misfit.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "properties/generate/change.h"
#include "properties/generate/fault_plan.h"
#include "reference/model.h"

namespace lockstep::properties {
namespace {

using reference::MisfitKind;
using reference::Refusal;

bool may_reset(const Case& value) {
  const auto& plan = value.faults.faults;
  if (std::any_of(plan.begin(), plan.end(),
                  [](const auto& fault) { return !faults::is_benign(fault.kind); }))
    return true;
  return fails(value.program);
}

// Returns whether the backward has a process group of its own, and both groups verify what they
// receive. Such programs are rare, and so is the misfit that needs one: a second group that cannot
// verify.
bool has_second_group_that_verifies(const reference::Program& program) {
  const reference::Replicated& options = program.options;
  return reference::has_backward_group(options) && options.verify;
}

}  // namespace

void draw_misfit(Random random, Random variant, const GenerateOptions& options, Case& value) {
  constexpr std::uint32_t kOneIn = 30;
  constexpr int kTries = 8;
  constexpr std::uint32_t kSecondGroupPercent = 40;
  reference::Program& program = value.program;
  const bool is_of_second_group =
      has_second_group_that_verifies(program) && random.percent(kSecondGroupPercent);
  if (!is_of_second_group && random.below(kOneIn) != 0) return;
  if (!options.capabilities.has(Capability::kMisfits)) return;
  const bool wants_reset = random.percent(80) && options.capabilities.has(Capability::kRecovery);
  for (int i = 0; i < kTries && program.misfit.kind == MisfitKind::kNone; ++i) {
    const auto last = static_cast<std::uint32_t>(reference::kLastMisfit);
    const auto drawn = static_cast<MisfitKind>(random.between(1, last));
    program.misfit = {is_of_second_group ? MisfitKind::kGroupVerify : drawn,
                      random.below(program.world), false,
                      random.below(static_cast<std::uint32_t>(program.parameters.size())),
                      variant.below(reference::kMisfitVariants)};
    reference::limit_misfit(program);
  }
  if (program.misfit.kind != MisfitKind::kNone)
    program.misfit.at_reset = wants_reset && may_reset(value);
}

bool has_further_feature(const Case& value, std::string_view feature) {
  if (feature == "a pause of a second or more") return has_long_pause(value);
  const reference::Program& program = value.program;
  if (program.misfit.kind == MisfitKind::kNone || !feature.starts_with("a misfit")) return false;
  std::vector<std::uint32_t> all(program.world);
  std::iota(all.begin(), all.end(), 0u);
  const auto refusal = reference::refusal_of(program, all);
  if (feature == "a misfit at the construction") return !program.misfit.at_reset;
  if (feature == "a misfit at a reset") return program.misfit.at_reset;
  if (feature == "a misfit: two ranks differ")
    return refusal && refusal->by == Refusal::By::kAgreement;
  if (feature == "a misfit: a rank refuses")
    return refusal && refusal->by != Refusal::By::kAgreement;
  return false;
}

}  // namespace lockstep::properties
