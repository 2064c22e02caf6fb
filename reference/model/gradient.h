// Gradient: the gradient of one parameter on one rank, as a value. Tensors are shared and never
// change, so that two gradients have the same storage exactly where they share a tensor. Pure
// functions; any thread; nothing fails.
#pragma once

#include <memory>
#include <vector>

#include "reference/model/engine.h"
#include "reference/model/setting.h"
#include "reference/sparse.h"

namespace lockstep::reference {

// A dense tensor has no rows; its values lie in the parameter's memory order.
using Tensor = Entries;
using Elements = std::vector<double>;

struct Gradient {
  std::shared_ptr<const Tensor> tensor;  // null: the gradient is undefined
  bool is_used = false;                  // since it was last zeroed, replaced or reduced (G6)
  bool requires_grad = false;            // P16
  bool in_bucket = false;                // B7
  bool is_misplaced = false;             // the user swapped it out of its bucket: it may be moved
  bool is_order_dependent = false;       // time decided the order of additions (E)
  bool is_touched = false;               // in this step, since its first backward began (G5)
  bool is_reduced = false;               // in this step, and nothing was added since
};
using Gradients = std::vector<Gradient>;  // of one rank, by parameter of the program

// The gradients after the user has zeroed or replaced them, before the step's first forward or
// between its calls.
Gradients zero_grad(const Setting& setting, ZeroGrad kind, Gradients gradients);

// The gradients after the hooks of one backward call (G11), but those of `ready_twice`, which raise
// before they touch their gradient.
Gradients accumulate(const Setting& setting, std::uint32_t rank, std::uint32_t step_key,
                     const std::vector<AutogradHook>& hooks,
                     const std::vector<std::uint32_t>& ready_twice, Gradients gradients);

}  // namespace lockstep::reference
