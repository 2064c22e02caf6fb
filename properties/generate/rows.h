// rows: the draws of options and of the environment that depend on no other draw, as the rows of
// case/fields.h say. Each has random numbers of its own, which the name of its field seeds.
// Internal to generate/. Pure functions; any thread.
#pragma once

#include <functional>
#include <string_view>

#include "properties/case/capabilities.h"
#include "properties/case/case.h"
#include "properties/generate/random.h"
#include "reference/program.h"

namespace lockstep::properties {

// Draws every option whose row has a percentage, within the capabilities. random_for(name) gives
// the random numbers of a name.
void draw_rows(const std::function<Random(std::string_view)>& random_for,
               const Capabilities& capabilities, reference::Replicated& options);

// The same of the environment.
void draw_rows(const std::function<Random(std::string_view)>& random_for, Environment& environment);

// Payloads are verified in sums in the order of the ranks alone (F3).
void follow_verify(const Capabilities& capabilities, reference::Replicated& drawn);

// The same of the options of PyTorch. Faults say themselves who has to fail: in a case with faults
// no pass is ended wrongly by hand, and no further group connects.
void draw_torch_options(const std::function<Random(std::string_view)>& random_for,
                        const Capabilities& capabilities, Case& value);

}  // namespace lockstep::properties
