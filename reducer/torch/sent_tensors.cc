#include "reducer/torch/sent_tensors.h"

#include <ATen/MemoryOverlap.h>
#include <c10/core/ScalarType.h>

#include <utility>

#include "reducer/torch/errors.h"
#include "reducer/torch/tensors.h"

namespace lockstep::torch_adapter {

SentTensors::Sent SentTensors::sent(const at::Tensor& tensor) {
  Sent sent{tensor, {}};
  if (!is_dense(tensor)) sent.copy = tensor.detach().contiguous();
  return sent;
}

// Ranks compare names, shapes and dtypes; of bytes they would compare the number alone.
void SentTensors::add(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided)
    refuse("buffer " + name + " is no dense tensor of the CPU: name it in the module's list " +
           "_ddp_params_and_buffers_to_ignore");
  sent_.push_back(sent(tensor));
  const Sent& last = sent_.back();
  buffers_.push_back(make_ref<Buffer>(name + " (" + c10::toString(tensor.scalar_type()) + ")",
                                      bytes_of(last.copy.defined() ? last.copy : tensor)));
}

void SentTensors::replace(std::vector<at::Tensor> tensors) {
  if (tensors.size() != sent_.size())
    refuse("the module had " + std::to_string(sent_.size()) + " buffers when it was wrapped, and " +
           "has " + std::to_string(tensors.size()) + " now: register all of them before");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& before = sent_[i].tensor;
    if (tensors[i].is_same(before) && !sent_[i].copy.defined() &&
        static_cast<std::byte*>(before.data_ptr()) == buffers_[i]->value().data())
      continue;
    if (tensors[i].nbytes() != before.nbytes() ||
        tensors[i].scalar_type() != before.scalar_type() || !tensors[i].device().is_cpu())
      refuse("buffer " + buffers_[i]->name() + " was replaced by a tensor of " +
             c10::toString(tensors[i].scalar_type()) + " and other sizes or on another device: " +
             "convert or move the module first, and wrap it then");
    sent_[i] = sent(tensors[i]);
    buffers_[i]->set_value(bytes_of(sent_[i].copy.defined() ? sent_[i].copy : tensors[i]));
  }
}

void SentTensors::stage() {
  const at::NoGradGuard no_grad;
  for (Sent& each : sent_)
    if (each.copy.defined()) each.copy.copy_(each.tensor);
}

void SentTensors::unstage() {
  const at::NoGradGuard no_grad;
  for (Sent& each : sent_)
    if (each.copy.defined() && !each.tensor.equal(each.copy)) {
      if (at::has_internal_overlap(each.tensor) == at::MemOverlap::No)
        each.tensor.copy_(each.copy);
      else
        each.tensor.set_(each.copy);  // It cannot be written element by element.
    }
}

}  // namespace lockstep::torch_adapter
