// Leaf is one trainable parameter of a module: PyTorch's tensor and Lockstep's Parameter, whose
// gradients are one and the same. PyTorch owns the gradient, and adds to it; the reducer reads and
// writes Parameter::grad(). So the gradient is taken and given at every border:
//
//   take()    makes the gradient that PyTorch has now that of the Parameter
//   give()    makes the gradient of the Parameter that of PyTorch
//   let_go()  ends the use of PyTorch's memory, which may then be freed
//
// Between take() and let_go() the leaf keeps the gradient alive, whatever the user puts into its
// place meanwhile.
//
// Use (contract G6, P10): the Parameter knows whether its gradient was used since it was zeroed or
// replaced. PyTorch tells of neither. A gradient that was replaced is another tensor object; one
// that was zeroed in place has another version, and zeros alone (forget_zeroed()).
// Threads: as for Parameter: the thread that trains, and during a backward the one that
// accumulates. Memory: nothing is allocated for a dense gradient that lies in PyTorch's memory.
// Failure: refuse() (errors.h) for a gradient of another layout than the parameter's.
#pragma once

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <string>

#include "reducer/autograd/parameter.h"
#include "reducer/torch/torch_version.h"

namespace lockstep::torch_adapter {

// What a leaf calls around each accumulation. An exception ends the backward.
class AccumulationObserver;

class Leaf {
 public:
  // `value` must be dense, with a dtype and a number of dimensions that Lockstep has.
  Leaf(at::Tensor variable, std::string name, std::uint64_t sequence,
       Parameter::Gradients gradients);
  Leaf(const Leaf&) = delete;
  Leaf& operator=(const Leaf&) = delete;

  const Ref<Parameter>& parameter() const { return parameter_; }
  const at::Tensor& variable() const { return variable_; }
  const ::torch::autograd::Node* accumulator() const { return accumulator_.get(); }

  // Calls the observer around each accumulation, until unwatch().
  void watch(AccumulationObserver& observer);
  void unwatch();
  // Whom a leaf of this extension tells of the tensor's accumulations; null for nobody.
  static AccumulationObserver* observer_of(const at::Tensor& variable);

  void take();
  bool is_taken() const { return is_taken_; }
  void give();  // Does nothing to a gradient that is not taken.
  void let_go();
  void forget_zeroed();
  // Before the buckets move: a view that is nobody's gradient keeps no memory.
  void drop_unused_view();

 private:
  class BeforeHook;
  class AfterHook;
  using Seen = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  Tensor borrow(const at::Tensor& gradient);
  Tensor borrow_sparse(const at::Tensor& gradient);
  bool lies_where_the_parameter_says(const at::Tensor& gradient) const;

  const at::Tensor variable_;
  const Ref<Parameter> parameter_;
  const NodeHandle accumulator_;  // The tensor itself holds it weakly.
  const Ref<Storage> place_;      // Where PyTorch's gradient is.
  bool is_taken_ = false;
  at::Tensor held_;  // The gradient that the parameter uses while it is taken.
  at::Tensor view_;  // The bucket view, as a tensor of PyTorch.
  // The used gradient, when this leaf last looked, and its version.
  Seen seen_{c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  std::int64_t version_ = 0;
  BeforeHook* before_ = nullptr;
  std::uintptr_t after_ = 0;
};

class AccumulationObserver {
 public:
  virtual ~AccumulationObserver() = default;
  virtual void accumulation_begins(Leaf& leaf) = 0;
  // `has_arrived` is false where no gradient came.
  virtual void accumulation_ended(Leaf& leaf, bool has_arrived) = 0;
};

}  // namespace lockstep::torch_adapter
