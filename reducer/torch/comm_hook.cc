#include "reducer/torch/comm_hook.h"

#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "reducer/base/check.h"
#include "reducer/torch/tensors.h"
#include "reducer/torch/torch_version.h"

namespace lockstep::torch_adapter {

TorchCommHook::TorchCommHook(std::string name, std::unique_ptr<c10d::CommHookInterface> hook,
                             std::vector<at::Tensor> variables)
    : name_(std::move(name)), hook_(std::move(hook)), variables_(std::move(variables)) {}

TorchCommHook::~TorchCommHook() {
  const pybind11::gil_scoped_acquire gil;
  hook_.reset();
}

TorchCommHook::Running& TorchCommHook::running(const HookBucket& bucket) {
  const auto index = static_cast<std::size_t>(bucket.index());
  if (running_.size() <= index) running_.resize(index + 1);
  return running_[index];
}

Status TorchCommHook::start(HookBucket& bucket) {
  const Tensor& flat = bucket.flat();
  const at::TensorOptions options =
      variables_.at(bucket.parameters()[0]).options().requires_grad(false);
  Running& run = running(bucket);
  if (!run.buffer.defined() || run.buffer.data_ptr() != flat.data() ||
      run.buffer.numel() != flat.elements())
    run.buffer = as_torch(flat, options);
  std::vector<std::size_t> offsets, lengths;
  std::vector<c10::IntArrayRef> sizes;
  std::vector<at::Tensor> parameters;
  for (std::size_t i = 0; i < bucket.views().size(); ++i) {
    const at::Tensor& parameter = variables_.at(bucket.parameters()[i]);
    parameters.push_back(parameter);
    offsets.push_back(static_cast<std::size_t>(bucket.views()[i].data() - flat.data()) /
                      static_cast<std::size_t>(parameter.element_size()));
    lengths.push_back(static_cast<std::size_t>(parameter.numel()));
    sizes.push_back(parameter.sizes());
  }
  const auto index = static_cast<std::size_t>(bucket.index());
  const std::size_t count = index + (bucket.is_last() ? 1 : 2);
  c10d::GradBucket given =
      make_grad_bucket(index, count, run.buffer, offsets, lengths, sizes, parameters);
  const pybind11::gil_scoped_acquire gil;
  run.future = hook_->runHook(given);
  return {};
}

Result<Tensor> TorchCommHook::finish(HookBucket& bucket) {
  Running& run = running(bucket);
  LOCKSTEP_CHECK(run.future != nullptr);
  const c10::intrusive_ptr<c10::ivalue::Future> future = std::move(run.future);
  future->waitAndThrow();
  at::Tensor result;
  {
    const pybind11::gil_scoped_acquire gil;
    result = hook_->parseHookResult(future->value());
  }
  if (result.numel() != run.buffer.numel())
    return failed(Status(Code::kUserFailure,
                         "the communication hook returned " + std::to_string(result.numel()) +
                             " elements for a bucket of " + std::to_string(run.buffer.numel())));
  if (result.data_ptr() != run.buffer.data_ptr()) run.buffer.copy_(result.reshape({-1}));
  return bucket.flat();
}

}  // namespace lockstep::torch_adapter
