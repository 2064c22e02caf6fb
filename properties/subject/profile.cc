#include "properties/subject/profile.h"

#include "faults/sim/nccl/nccl_profile.h"
#include "properties/subject/torch/model/hook_model.h"

namespace lockstep::properties {
namespace {

reference::NcclRing ring_of(int version) {
  switch (faults::nccl_profile(version).ring_units) {
    case faults::RingUnits::kThreads:
      return reference::NcclRing::kUpTo219;
    case faults::RingUnits::k4096Bytes:
      return reference::NcclRing::kSince220;
    case faults::RingUnits::k16Bytes:
      break;
  }
  return reference::NcclRing::kSince222;
}

reference::Contract contract_of(const Profile& profile) {
  reference::Contract contract = reference::Contract::lockstep();
  if (const auto version = faults::nccl_release(profile.nccl))
    contract.nccl_ring = ring_of(*version);
  contract.sums = profile.sums;
  return contract;
}

// It keeps what can be judged of a subject that shows its gradients alone, or that has a layout of
// its own.
void keep_gradients(Expected& expected, bool knows_storage) {
  expected.knowledge.resize(expected.steps.size());
  for (StepKnowledge& step : expected.knowledge) step.knows_collectives = false;
  for (reference::ExpectedStep& step : expected.steps)
    for (reference::ExpectedRankStep& rank : step.ranks)
      for (reference::ExpectedGradient& gradient : rank.gradients) {
        gradient.untouched = gradient.untouched && knows_storage;
        gradient.in_bucket = false;
      }
}

}  // namespace

Expected expectation_of(const Case& value, const Profile& profile,
                        const std::vector<reference::Recovery>& recoveries,
                        const std::vector<reference::ReadyOrder>& ready_orders) {
  const reference::Program& program = value.program;
  Expected expected =
      profile.is_torch()
          ? torch_model::run(program, value.torch, profile.policies, recoveries)
          : Expected(reference::run(program, contract_of(profile), recoveries, ready_orders));
  if (profile.gradients_alone || profile.any_arithmetic)
    keep_gradients(expected, !profile.gradients_alone);
  return expected;
}

std::uint32_t modelled_steps(const Case& value, const Profile& profile) {
  if (!profile.is_torch()) return static_cast<std::uint32_t>(value.program.steps.size());
  return torch_model::modelled_steps(
      torch_model::run(value.program, value.torch, profile.policies));
}

}  // namespace lockstep::properties
