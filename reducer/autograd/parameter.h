// Parameter is a leaf of the graph, and at the same time the node that accumulates its gradient.
// There is one per parameter for its whole life, so all graphs that use the parameter share the
// same accumulator.
//
// Threads: grad() and the setters belong to the thread that trains, outside of backward. During a
// backward the engine's worker of the parameter's device owns the gradient; a nested backward that
// reaches the parameter on another worker waits for it. Hooks are added and removed outside of
// backward.
// Use (contract G6, P10): used() says whether a defined gradient arrived since the gradient was
// last zeroed, replaced or reduced. It is part of the gradient's state, and every setter clears it.
#pragma once

#include <string>
#include <vector>

#include "reducer/autograd/node.h"
#include "reducer/device/device.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Parameter;
class ProcessGroup;

// GradientHook is called around a parameter's accumulator, also when no gradient arrived. `index`
// is the number given to add_hook(). The worker of the parameter's device, or that of a nested
// backward, makes the calls; hooks of different parameters run concurrently. An error ends the
// backward.
//
// Only gradient_arriving() is called under a lock, that of the parameter. So code that may call
// user code, which may run a backward of its own to this very parameter, belongs into the other two
// functions.
class GradientHook {
 public:
  virtual ~GradientHook() = default;
  // Called first of all. An error leaves the gradient as it is.
  virtual Status backward_reached(GraphTask& task);
  // Called before the accumulator runs, under the parameter's lock. An error leaves the gradient as
  // it is.
  virtual Status gradient_arriving(Parameter& parameter, std::size_t index, GraphTask& task);
  // Called after the accumulator ran. Two workers may call it at once for one parameter, if both
  // have accumulated.
  virtual Status gradient_ready(Parameter& parameter, std::size_t index, GraphTask& task) = 0;

  // Whether the hook reduces this parameter's gradients on that group. Only one hook of a parameter
  // may.
  virtual bool sends_by(const ProcessGroup& group) const;
};

class alignas(64) Parameter final : public Node {
 public:
  // A reducer refuses a parameter whose `shape` is not dense. `sequence` is as for any node;
  // parameters are older than the graphs that use them. With kSparse all gradients of the parameter
  // are sparse (S1), and it needs at least one dimension.
  enum class Gradients : std::uint8_t { kDense, kSparse };
  Parameter(std::string name, Device& device, DType dtype, const Shape& shape, bool requires_grad,
            std::uint64_t sequence, Gradients gradients = Gradients::kDense);

  const std::string& name() const { return name_; }
  Device& device() const { return device_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  bool requires_grad() const { return requires_grad_; }
  bool has_sparse_gradients() const { return gradients_ == Gradients::kSparse; }

  // What the model computes with, if the parameter holds it: a dense tensor of the parameter's
  // shape and dtype, or undefined. Gradients do not depend on it.
  const Tensor& value() const { return value_; }
  void set_value(Tensor value);

  const Tensor& grad() const { return grad_; }
  bool used() const { return used_; }

  // Sets a gradient of the same sizes and dtype and any strides, or an undefined one; for a
  // parameter with sparse gradients it must be sparse. If it is expanded, the next gradient that
  // arrives, and a reducer, replace it by another tensor.
  void set_grad(Tensor grad);
  void undefine_grad();
  // Keeps the storage. An undefined gradient stays undefined, and a sparse one is left without
  // entries.
  void fill_grad_with_zeros();
  // For reducers: the gradient now holds the result of a pass.
  void mark_reduced() { used_ = false; }
  // For reducers: moves the gradient to other memory, and keeps whether it was used.
  void move_grad(Tensor place);

  void add_hook(GradientHook* hook, std::size_t index);
  void remove_hook(GradientHook* hook);
  // Whether a hook other than `besides` reduces gradients on this group.
  bool is_sent_by(const ProcessGroup& group, const GradientHook* besides) const;

  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext& context) override;

  // For an engine of others, which adds to the gradient by itself (foreign_graph.h): what apply()
  // does before and after its own addition. `has_arrived` is false where it added nothing, as no
  // gradient came. If the first call returns an error, nothing may be added.
  Status accumulation_begins(GraphTask& task);
  Status accumulation_ended(GraphTask& task, bool has_arrived);

 private:
  struct Hook {
    GradientHook* hook;
    std::size_t index;
  };
  // Calls `call` with each hook until one returns an error.
  template <class Call>
  Status each_hook(const Call& call) const {
    if (hook_.hook == nullptr) return {};
    LOCKSTEP_RETURN_IF_ERROR(call(hook_));
    for (const Hook& hook : further_hooks_) LOCKSTEP_RETURN_IF_ERROR(call(hook));
    return {};
  }
  bool fits(const Tensor& gradient) const;
  Status refuse(const Tensor& arrived) const;
  void fill_with_zeros(const Shape& shape, std::byte* data, int dim);
  Status accumulate(const Tensor& arrived);
  Status accumulate_elements(const Tensor& arrived);
  Status accumulate_entries(const Tensor& arrived);

  // What every pass needs of every parameter comes first, in as few cache lines as it fits into; as
  // in ReducedParameter, cache misses are most of the cost of small parameters.
  Device& device_;
  const DType dtype_;
  const bool requires_grad_;
  const Gradients gradients_;
  bool used_ = false;
  Hook hook_{nullptr, 0};  // The first hook, which most parameters have alone.
  Tensor grad_;
  platform::Mutex mutex_{"parameter"};  // Held by the thread that accumulates.
  std::vector<Hook> further_hooks_;     // Empty without a first one.
  const Shape shape_;
  // The shape of its gradients: `shape_`, or row-major where `shape_` is not dense.
  const Shape grad_shape_;
  Tensor value_;
  const std::string name_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
