// How Gloo adds float16 (hook_model.h). Pure; any thread; nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::properties::torch_model {

// Adds `from` to `into`. Gloo's float16 looks before it takes a value over whether it has that
// already, and compares its bits with those of its own bits as an integer.
void add_as_gloo(double* into, const double* from, std::size_t count);

}  // namespace lockstep::properties::torch_model
