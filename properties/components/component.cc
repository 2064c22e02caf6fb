#include "properties/components/component.h"

#include <algorithm>

#define LOCKSTEP_DECLARE_COMPONENTS(ns)                    \
  namespace lockstep::ns {                                 \
  std::span<const components::Component> component_list(); \
  }
LOCKSTEP_DECLARE_COMPONENTS(sim)
LOCKSTEP_DECLARE_COMPONENTS(sim_seeded)

namespace lockstep::components {

std::span<const Component> components(bool is_seeded) {
  return is_seeded ? sim_seeded::component_list() : sim::component_list();
}

const Component* find_component(std::string_view name, bool is_seeded) {
  const std::span<const Component> all = components(is_seeded);
  const auto found = std::find_if(all.begin(), all.end(),
                                  [name](const Component& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string_view component_of(const seeded::Bug& bug) {
  constexpr std::string_view kBegin = "component ";
  return bug.oracle.starts_with(kBegin) ? bug.oracle.substr(kBegin.size()) : std::string_view();
}

}  // namespace lockstep::components
