#include "reducer/autograd/parameter.h"

#include <algorithm>

#include "reducer/base/check.h"

namespace lockstep::inline LOCKSTEP_NS {

Status GradientHook::gradient_arriving(Parameter&, std::size_t, GraphTask&) { return {}; }

Parameter::Parameter(std::string name, Device& device, DType dtype, const Shape& shape,
                     bool requires_grad, std::uint64_t sequence)
    : Node(sequence, 1, device.index(), Kind::kParameter),
      name_(std::move(name)),
      device_(device),
      dtype_(dtype),
      shape_(shape),
      requires_grad_(requires_grad) {
  LOCKSTEP_CHECK(shape.is_dense());
}

void Parameter::set_value(Tensor value) {
  if (value.defined()) {
    LOCKSTEP_CHECK(value.shape().same_strides(shape_));
    LOCKSTEP_CHECK(value.dtype() == dtype_);
  }
  value_ = std::move(value);
}

void Parameter::set_grad(Tensor grad) {
  if (grad.defined()) {
    LOCKSTEP_CHECK(grad.shape().same_sizes(shape_));
    LOCKSTEP_CHECK(grad.dtype() == dtype_);
  }
  grad_ = std::move(grad);
  used_ = false;
}

void Parameter::undefine_grad() { set_grad(Tensor()); }

void Parameter::fill_grad_with_zeros() {
  used_ = false;
  if (!grad_.defined()) return;
  const auto bytes = static_cast<std::size_t>(grad_.shape().extent()) * size_of(dtype_);
  device_.fill_zero(device_.current_stream(), grad_.data(), bytes);
}

void Parameter::add_hook(GradientHook* hook, std::size_t index) {
  LOCKSTEP_CHECK(hook != nullptr);
  hooks_.push_back({hook, index});
}

void Parameter::remove_hook(GradientHook* hook) {
  std::erase_if(hooks_, [hook](const Hook& h) { return h.hook == hook; });
}

Status Parameter::apply(std::span<const Tensor> incoming, std::span<Tensor>,
                        const BackwardContext& context) {
  LOCKSTEP_CHECK_EQ(incoming.size(), std::size_t{1});
  for (const Hook& hook : hooks_)
    LOCKSTEP_RETURN_IF_ERROR(hook.hook->gradient_arriving(*this, hook.index, context.task));
  if (incoming[0].defined()) LOCKSTEP_RETURN_IF_ERROR(accumulate(incoming[0]));
  for (const Hook& hook : hooks_)
    LOCKSTEP_RETURN_IF_ERROR(hook.hook->gradient_ready(*this, hook.index, context.task));
  return {};
}

Status Parameter::accumulate(const Tensor& arrived) {
  if (!arrived.shape().same_sizes(shape_) || arrived.dtype() != dtype_) {
    return Status(Code::kInvalidArgument,
                  "a gradient of another shape or dtype arrived at parameter " + name_);
  }
  used_ = true;
  const Stream stream = device_.current_stream();
  if (grad_.defined()) {
    device_.add(stream, arrived, grad_);
    return {};
  }
  // The gradient takes the parameter's own strides. A tensor that is ours alone and has them
  // already becomes it.
  if (arrived.shape().same_strides(shape_) && arrived.storage()->use_count() == 1) {
    grad_ = arrived;
    return {};
  }
  Result<Tensor> fresh = Tensor::empty(device_, dtype_, shape_);
  if (!fresh) return fresh.error();
  device_.copy(stream, arrived, *fresh);
  grad_ = std::move(*fresh);
  return {};
}

}  // namespace lockstep::inline LOCKSTEP_NS
