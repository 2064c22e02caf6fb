#include "properties/observe/zero_gradients.h"

#include <utility>

#include "properties/observe/gradient_bits.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

Status replace_gradient(Parameter& parameter, std::size_t way) {
  const Tensor& old = parameter.grad();
  if (!old.defined() || old.is_sparse()) return {};
  Result<Tensor> other = in_other_strides(old, way);
  if (!other) return other.error();
  parameter.set_grad(std::move(*other));
  return {};
}

}  // namespace

Status zero_gradients(const reference::Program& program,
                      const std::vector<Ref<Parameter>>& parameters, reference::ZeroGrad kind) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (kind == reference::ZeroGrad::kUndefine) parameters[i]->undefine_grad();
    if (kind == reference::ZeroGrad::kFill) parameters[i]->fill_grad_with_zeros();
    if (kind == reference::ZeroGrad::kReplace)
      LOCKSTEP_RETURN_IF_ERROR(replace_gradient(*parameters[i], i % 3));
  }
  if (kind != reference::ZeroGrad::kSwap) return {};
  for (const auto& [a, b] : reference::swapped_gradients(program)) {
    Tensor left = parameters[a]->grad();
    parameters[a]->set_grad(parameters[b]->grad());
    parameters[b]->set_grad(std::move(left));
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
