// Component: a fuzzer of one part of Lockstep, without a training program around it. It makes a
// situation out of Choices, lets the part act in it, and judges what the part did by the contract.
//
// Threads: one caller at a time; a component runs in the simulator, on fibers of its own. After a
// deadlock or a livelock the memory of the run is lost (scheduler.h). An assertion of the part ends
// the process.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "faults/seeded/seeded.h"
#include "properties/components/choices.h"
#include "properties/oracle/verdict.h"

namespace lockstep::components {

struct Component {
  std::string_view name;
  std::string_view what;  // in one line
  properties::Verdict (*judge)(Choices& choices);
};

// Returns the components of the reducer, or those of the one with planted bugs (faults/seeded), of
// which one may be switched on. Both lists have the same names in the same order.
std::span<const Component> components(bool is_seeded);

// Returns the component with this name, or null.
const Component* find_component(std::string_view name, bool is_seeded);

// Returns the name of the component that has to find a planted bug, as its patch says
// ("oracle: component NAME"); empty if generated programs find it.
std::string_view component_of(const seeded::Bug& bug);

}  // namespace lockstep::components
