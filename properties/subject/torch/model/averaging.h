// How PyTorch makes a mean: by what it divides or multiplies the gradient of a rank before the sum
// (hook_model.h). Pure; any thread; nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "properties/case/torch_options.h"
#include "properties/subject/torch/model/policies.h"
#include "properties/subject/torch/model/rank_state.h"
#include "reference/program.h"

namespace lockstep::properties::torch_model {

// The quotient by n in the compute type, rounded to the dtype, where CONTRACT.md scales (G2).
double divided(reference::DType dtype, double value, std::uint32_t n);

// These return whether buckets have memory during a backward alone, and whether the gradients of a
// bucket are copied together.
bool is_lazy(const TorchOptions& options, const Policies& policies);
bool is_batched(const TorchOptions& options, const Policies& policies);
// Returns whether the gradient is divided by the number of ranks on its way into its bucket.
bool divides(const TorchOptions& options, const Policies& policies, const Gradient& own);

// Writes the quotients by n of `count` values to `out`, or their products with 1/n.
void divide(reference::DType dtype, std::uint32_t n, const double* values, double* out,
            std::size_t count);
void multiply(reference::DType dtype, std::uint32_t n, const Policies& policies,
              const double* values, double* out, std::size_t count);

// The communication hooks that average: those that are built in, and the user's own one. All others
// are taken as none.
reference::Hook averaging_hook(const reference::Replicated& options);

// Changes a rank's part of a bucket as such a hook does before the sum (G4, S4): rounds it to the
// dtype that is sent, and makes it the rank's share of the mean.
void run_hook(reference::Hook hook, reference::DType dtype, std::uint32_t n,
              const Policies& policies, double* values, std::size_t count);

}  // namespace lockstep::properties::torch_model
