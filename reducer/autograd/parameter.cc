#include "reducer/autograd/parameter.h"

#include <algorithm>

#include "reducer/base/check.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Status GradientHook::backward_reached(GraphTask&) { return {}; }
Status GradientHook::gradient_arriving(Parameter&, std::size_t, GraphTask&) { return {}; }
bool GradientHook::sends_by(const ProcessGroup&) const { return false; }

Parameter::Parameter(std::string name, Device& device, DType dtype, const Shape& shape,
                     bool requires_grad, std::uint64_t sequence, Gradients gradients)
    : Node(sequence, 1, device.index(), Kind::kParameter),
      device_(device),
      dtype_(dtype),
      requires_grad_(requires_grad),
      gradients_(gradients),
      shape_(shape),
      grad_shape_(shape.is_dense() ? shape
                                   : Shape::row_major({shape.sizes.data(),
                                                       static_cast<std::size_t>(shape.dims)})),
      name_(std::move(name)) {
  LOCKSTEP_CHECK(!has_sparse_gradients() || shape.dims > 0);
}

void Parameter::set_value(Tensor value) {
  if (value.defined()) {
    LOCKSTEP_CHECK(value.shape().same_strides(shape_));
    LOCKSTEP_CHECK(value.dtype() == dtype_);
  }
  value_ = std::move(value);
}

bool Parameter::fits(const Tensor& gradient) const {
  if (gradient.dtype() != dtype_) return false;
  if (has_sparse_gradients()) return is_sparse_of(gradient, shape_);
  return !gradient.is_sparse() && gradient.shape().same_sizes(shape_);
}

void Parameter::set_grad(Tensor grad) {
  LOCKSTEP_CHECK(!grad.defined() || fits(grad));
  grad_ = std::move(grad);
  used_ = false;
}

void Parameter::undefine_grad() { set_grad(Tensor()); }

void Parameter::move_grad(Tensor place) {
  LOCKSTEP_CHECK(!place.defined() || place.dtype() == dtype_);
  LOCKSTEP_CHECK(!place.defined() || place.is_sparse() == has_sparse_gradients());
  place.set_requires_grad(grad_.requires_grad());
  grad_ = std::move(place);
}

void Parameter::fill_grad_with_zeros() {
  used_ = false;
  if (!grad_.defined()) return;
  LOCKSTEP_CHECK_EQ(grad_.is_sparse(), has_sparse_gradients());
  grad_.set_requires_grad(false);
  if (has_sparse_gradients()) {
    grad_ = without_entries(grad_);
    return;
  }
  fill_with_zeros(grad_.shape(), grad_.data(), 0);
}

// The gaps between elements do not belong to the gradient (G10), so where a layout has gaps,
// elements are zeroed one by one.
void Parameter::fill_with_zeros(const Shape& shape, std::byte* data, int dim) {
  LOCKSTEP_CHECK_LE(dim, shape.dims);
  const std::size_t size = size_of(dtype_);
  if (dim == 0 && shape.is_dense()) {
    const auto bytes = static_cast<std::size_t>(shape.elements()) * size;
    return device_.fill_zero(device_.current_stream(), data, bytes);
  }
  if (dim == shape.dims) return device_.fill_zero(device_.current_stream(), data, size);
  const auto d = static_cast<std::size_t>(dim);
  const std::int64_t distinct = shape.strides[d] == 0 ? 1 : shape.sizes[d];
  for (std::int64_t i = 0; i < distinct; ++i)
    fill_with_zeros(shape, data + i * shape.strides[d] * static_cast<std::int64_t>(size), dim + 1);
}

void Parameter::add_hook(GradientHook* hook, std::size_t index) {
  LOCKSTEP_CHECK(hook != nullptr);
  if (hook_.hook == nullptr)
    hook_ = {hook, index};
  else
    further_hooks_.push_back({hook, index});
}

void Parameter::remove_hook(GradientHook* hook) {
  LOCKSTEP_CHECK(hook_.hook != nullptr || further_hooks_.empty());
  std::erase_if(further_hooks_, [hook](const Hook& h) { return h.hook == hook; });
  if (hook_.hook != hook) return;
  hook_ = {nullptr, 0};
  if (further_hooks_.empty()) return;
  hook_ = further_hooks_.front();
  further_hooks_.erase(further_hooks_.begin());
}

bool Parameter::is_sent_by(const ProcessGroup& group, const GradientHook* besides) const {
  bool is_sent = false;
  each_hook([&](const Hook& hook) {
    is_sent = is_sent || (hook.hook != besides && hook.hook->sends_by(group));
    return Status();
  }).ignore();
  return is_sent;
}

Status Parameter::apply(std::span<const Tensor> incoming, std::span<Tensor>,
                        const BackwardContext& context) {
  LOCKSTEP_CHECK_EQ(incoming.size(), std::size_t{1});
  LOCKSTEP_RETURN_IF_ERROR(
      each_hook([&](const Hook& hook) { return hook.hook->backward_reached(context.task); }));
  {
    platform::MutexLock lock(mutex_);
    LOCKSTEP_RETURN_IF_ERROR(each_hook([&](const Hook& hook) {
      return hook.hook->gradient_arriving(*this, hook.index, context.task);
    }));
    if (incoming[0].defined()) LOCKSTEP_RETURN_IF_ERROR(accumulate(incoming[0]));
  }
  return each_hook(
      [&](const Hook& hook) { return hook.hook->gradient_ready(*this, hook.index, context.task); });
}

Status Parameter::accumulation_begins(GraphTask& task) {
  LOCKSTEP_RETURN_IF_ERROR(
      each_hook([&](const Hook& hook) { return hook.hook->backward_reached(task); }));
  return each_hook(
      [&](const Hook& hook) { return hook.hook->gradient_arriving(*this, hook.index, task); });
}

Status Parameter::accumulation_ended(GraphTask& task, bool has_arrived) {
  LOCKSTEP_CHECK(!has_arrived || grad_.defined());
  used_ = used_ || has_arrived;
  return each_hook(
      [&](const Hook& hook) { return hook.hook->gradient_ready(*this, hook.index, task); });
}

Status Parameter::refuse(const Tensor& arrived) const {
  const char* what = "of another shape or dtype";
  if (arrived.is_sparse() != has_sparse_gradients())
    what = arrived.is_sparse() ? "that is sparse, and not declared to be,"
                               : "that is dense, and declared sparse,";
  else if (arrived.is_sparse())
    what = "of another dtype, or with rows that it does not have,";
  Status status(Code::kInvalidArgument,
                std::string("a gradient ") + what + " arrived at parameter " + name_);
  status.failure().parameters = {name_};
  return status;
}

// Concatenates entries, and sums them when needed.
Status Parameter::accumulate_entries(const Tensor& arrived) {
  LOCKSTEP_CHECK(arrived.is_sparse());
  LOCKSTEP_CHECK(!grad_.defined() || grad_.is_sparse());
  if (!grad_.defined()) {
    grad_ = arrived;
    return {};
  }
  Result<Tensor> sum = append(grad_, arrived);
  if (!sum) return sum.error();
  grad_ = std::move(*sum);
  return {};
}

Status Parameter::accumulate(const Tensor& arrived) {
  if (!fits(arrived)) return refuse(arrived);
  used_ = true;
  const bool requires_grad = arrived.requires_grad() || (grad_.defined() && grad_.requires_grad());
  LOCKSTEP_RETURN_IF_ERROR(has_sparse_gradients() ? accumulate_entries(arrived)
                                                  : accumulate_elements(arrived));
  LOCKSTEP_CHECK(grad_.defined());
  grad_.set_requires_grad(requires_grad);
  return {};
}

Status Parameter::accumulate_elements(const Tensor& arrived) {
  LOCKSTEP_CHECK(!arrived.is_sparse());
  LOCKSTEP_CHECK(!grad_.defined() || !grad_.is_sparse());
  const Stream stream = device_.current_stream();
  if (grad_.defined() && !grad_.shape().is_expanded()) {
    device_.add(stream, arrived, grad_);
    return {};
  }
  // The gradient takes the parameter's own strides, if they are dense. An arrived tensor that
  // nobody else uses and that has these strides already becomes the gradient.
  if (!grad_.defined() && arrived.shape().same_strides(grad_shape_) &&
      arrived.storage()->use_count() == 1) {
    grad_ = arrived;
    return {};
  }
  Result<Tensor> fresh = Tensor::empty(device_, dtype_, grad_shape_);
  if (!fresh) return fresh.error();
  device_.copy(stream, grad_.defined() ? grad_ : arrived, *fresh);
  // The old gradient cannot hold a sum of its own.
  if (grad_.defined()) device_.add(stream, arrived, *fresh);
  grad_ = std::move(*fresh);
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
