#include "properties/subject/profile.h"

#include "properties/subject/torch/model/hook_model.h"

namespace lockstep::properties {

reference::Expectation expectation_of(const reference::Program& program, const Profile& profile,
                                      const std::vector<reference::Recovery>& recoveries,
                                      const std::vector<reference::ReadyOrder>& ready_orders) {
  if (profile.is_torch()) return torch_model::run(program, profile.policies, recoveries);
  return reference::run(program, reference::Contract::lockstep(), recoveries, ready_orders);
}

std::uint32_t modelled_steps(const reference::Program& program, const Profile& profile) {
  if (!profile.is_torch()) return static_cast<std::uint32_t>(program.steps.size());
  return torch_model::modelled_steps(torch_model::run(program, profile.policies));
}

}  // namespace lockstep::properties
