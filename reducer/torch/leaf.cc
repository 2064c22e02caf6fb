#include "reducer/torch/leaf.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "reducer/base/check.h"
#include "reducer/torch/errors.h"
#include "reducer/torch/tensors.h"

namespace lockstep::torch_adapter {

using ::torch::autograd::variable_list;

class Leaf::BeforeHook final : public ::torch::autograd::FunctionPreHook {
 public:
  BeforeHook(Leaf& leaf, AccumulationObserver& observer) : leaf_(leaf), observer_(observer) {}
  variable_list operator()(const variable_list& gradients) override {
    observer_.accumulation_begins(leaf_);
    return gradients;
  }
  AccumulationObserver& observer() const { return observer_; }

 private:
  Leaf& leaf_;
  AccumulationObserver& observer_;
};

class Leaf::AfterHook final : public ::torch::autograd::FunctionPostHook {
 public:
  AfterHook(Leaf& leaf, AccumulationObserver& observer) : leaf_(leaf), observer_(observer) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    observer_.accumulation_ended(leaf_, inputs[0].defined());
    return outputs;
  }

 private:
  Leaf& leaf_;
  AccumulationObserver& observer_;
};

Leaf::Leaf(at::Tensor variable, std::string name, std::uint64_t sequence,
           Parameter::Gradients gradients)
    : variable_(std::move(variable)),
      parameter_(make_ref<Parameter>(std::move(name), host_device(),
                                     *gradient_dtype(variable_.scalar_type()), *shape_of(variable_),
                                     true, sequence, gradients)),
      accumulator_(::torch::autograd::impl::grad_accumulator(variable_)),
      place_(Storage::of_others(host_device())) {
  LOCKSTEP_CHECK(accumulator_ != nullptr);
}

void Leaf::watch(AccumulationObserver& observer) {
  LOCKSTEP_CHECK(before_ == nullptr);
  auto before = std::make_unique<BeforeHook>(*this, observer);
  before_ = before.get();
  accumulator_->add_pre_hook(std::move(before));
  after_ = accumulator_->add_post_hook(std::make_unique<AfterHook>(*this, observer));
}

void Leaf::unwatch() {
  if (before_ == nullptr) return;
  accumulator_->del_post_hook(after_);
  auto& hooks = accumulator_->pre_hooks();
  hooks.erase(std::remove_if(hooks.begin(), hooks.end(),
                             [this](const auto& hook) { return hook.get() == before_; }),
              hooks.end());
  before_ = nullptr;
}

AccumulationObserver* Leaf::observer_of(const at::Tensor& variable) {
  const NodeHandle accumulator = ::torch::autograd::impl::try_get_grad_accumulator(variable);
  if (accumulator == nullptr) return nullptr;
  for (const auto& hook : accumulator->pre_hooks())
    if (const auto* const ours = dynamic_cast<const BeforeHook*>(hook.get()))
      return &ours->observer();
  return nullptr;
}

bool Leaf::lies_where_the_parameter_says(const at::Tensor& gradient) const {
  const Tensor& own = parameter_->grad();
  if (!own.defined() || own.is_sparse() || own.data() != gradient.data_ptr()) return false;
  const Shape& shape = own.shape();
  return std::equal(gradient.strides().begin(), gradient.strides().end(), shape.strides.begin());
}

Tensor Leaf::borrow(const at::Tensor& gradient) {
  if (gradient.is_sparse()) return borrow_sparse(gradient);
  if (gradient.layout() != at::kStrided || parameter_->has_sparse_gradients())
    refuse("a " + std::string(parameter_->has_sparse_gradients() ? "dense" : "blocked") +
           " gradient arrived at parameter " + parameter_->name() +
           ", which is said to have others: set `sparse` of its embedding before wrapping");
  Shape shape = parameter_->shape();
  if (gradient_dtype(gradient.scalar_type()) != parameter_->dtype() ||
      !std::equal(gradient.sizes().begin(), gradient.sizes().end(), shape.sizes.begin(),
                  shape.sizes.begin() + shape.dims))
    refuse("the gradient of parameter " + parameter_->name() +
           " has another dtype or other sizes than the parameter had when it was wrapped: convert "
           "the module first, and wrap it then");
  std::copy(gradient.strides().begin(), gradient.strides().end(), shape.strides.begin());
  auto* const data = static_cast<std::byte*>(gradient.data_ptr());
  const auto element = static_cast<std::ptrdiff_t>(size_of(parameter_->dtype()));
  // A gradient in a bucket keeps the bucket's storage. By that the reducer, while it reduces the
  // bucket, leaves a gradient alone that nobody used, and moves it out of another one's place (B7).
  Ref<Storage> storage = storage_of(gradient);
  std::ptrdiff_t offset = storage ? data - storage->data() : 0;
  if (!storage || offset % element != 0) {
    place_->point_to(data, static_cast<std::size_t>(shape.bytes(parameter_->dtype())));
    storage = place_;
    offset = 0;
  }
  Tensor own(std::move(storage), offset / element, parameter_->dtype(), shape);
  if (gradient.requires_grad()) own.set_requires_grad(true);
  return own;
}

Tensor Leaf::borrow_sparse(const at::Tensor& gradient) {
  if (!parameter_->has_sparse_gradients())
    refuse("a sparse gradient arrived at parameter " + parameter_->name() +
           ", which is said to have dense ones: set `sparse` of its embedding before wrapping");
  if (gradient._nnz() == 0) {  // zero_() leaves any number of sparse dimensions.
    static std::byte nothing{};
    place_->point_to(&nothing, 0);
    Shape shape = parameter_->shape();
    shape.sizes[0] = 0;
    const Shape none = Shape::row_major({shape.sizes.data(), static_cast<std::size_t>(shape.dims)});
    return Tensor(Tensor(place_, 0, parameter_->dtype(), none),
                  Ref<const RowNumbers>(new RowNumbers({})));
  }
  if (gradient.sparse_dim() != 1)
    refuse("the sparse gradient of parameter " + parameter_->name() + " has " +
           std::to_string(gradient.sparse_dim()) + " sparse dimensions: Lockstep sends rows");
  const at::Tensor indices = gradient._indices().contiguous();
  const at::Tensor values = gradient._values().contiguous();
  const auto* rows = static_cast<const std::int64_t*>(indices.data_ptr());
  const std::optional<Shape> shape = shape_of(values);
  held_ = values;  // The gradient itself may be replaced by a sum.
  place_->point_to(static_cast<std::byte*>(values.data_ptr()),
                   static_cast<std::size_t>(shape->bytes(parameter_->dtype())));
  return Tensor(Tensor(place_, 0, parameter_->dtype(), *shape),
                Ref<const RowNumbers>(new RowNumbers({rows, rows + indices.numel()})));
}

void Leaf::take() {
  const at::Tensor& gradient = variable_.grad();
  if (!gradient.defined()) {
    is_taken_ = true;
    if (parameter_->grad().defined() || parameter_->used()) parameter_->undefine_grad();
    held_.reset();
    seen_.reset();
    return;
  }
  const bool is_known =
      held_.is_same(gradient) ||
      (!seen_.expired() && seen_._unsafe_get_target() == gradient.unsafeGetTensorImpl());
  const bool is_same = is_known && gradient.requires_grad() == parameter_->grad().requires_grad();
  if (!is_same || !lies_where_the_parameter_says(gradient)) {
    Tensor own = borrow(gradient);
    if (is_same)
      parameter_->move_grad(std::move(own));
    else
      parameter_->set_grad(std::move(own));  // A user has put it there, and nobody used it (P10).
  }
  if (!gradient.is_sparse()) held_ = gradient;
  is_taken_ = true;
}

void Leaf::give() {
  if (!is_taken_) return;
  const Tensor& own = parameter_->grad();
  const at::Tensor& gradient = variable_.grad();
  if (!own.defined()) {
    if (gradient.defined()) variable_.mutable_grad().reset();
    return;
  }
  if (own.is_sparse()) {
    if (own.storage() == place_) return;
    held_ = as_torch_sparse(own, variable_.sizes(), variable_.options().requires_grad(false));
    variable_.mutable_grad() = held_;
    return;
  }
  if (gradient.defined() && gradient.data_ptr() == own.data()) return;
  if (!held_.defined() || held_.data_ptr() != own.data()) {
    if (!view_.defined() || view_.data_ptr() != own.data())
      view_ = as_torch(own, variable_.options().requires_grad(false));
    held_ = view_;
  }
  variable_.mutable_grad() = held_;
}

void Leaf::let_go() {
  is_taken_ = false;
  if (parameter_->used()) {
    const at::Tensor& gradient = variable_.grad();
    if (gradient.defined()) {
      seen_ = Seen(gradient.getIntrusivePtr());
      version_ = gradient._version();
    }
  } else if (!seen_.expired()) {
    seen_.reset();
  }
  held_.reset();
}

void Leaf::drop_unused_view() {
  if (!parameter_->grad().defined()) view_.reset();
}

void Leaf::forget_zeroed() {
  if (!parameter_->used()) return;
  const at::Tensor& gradient = variable_.grad();
  if (!gradient.defined() || gradient.is_sparse() || gradient._version() == version_) return;
  if (gradient.count_nonzero().item<std::int64_t>() != 0) return;
  parameter_->set_grad(borrow(gradient));
}

}  // namespace lockstep::torch_adapter
