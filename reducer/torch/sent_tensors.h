// SentTensors are the buffers of a module, which the reducer broadcasts as bytes. A buffer whose
// memory has gaps or repeats elements goes through a dense copy.
//
// Threads: the thread that trains.
// Failure: refuse() (errors.h) where a buffer was replaced by one of other sizes or another dtype.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "reducer/module_state.h"

namespace lockstep::torch_adapter {

class SentTensors {
 public:
  void add(const std::string& name, const at::Tensor& tensor);
  const std::vector<Ref<Buffer>>& buffers() const { return buffers_; }
  // The tensors of now, in the order in which they were added.
  void replace(std::vector<at::Tensor> tensors);
  // Around each broadcast: to the dense copies, and back.
  void stage();
  void unstage();

 private:
  struct Sent {
    at::Tensor tensor;
    at::Tensor copy;  // Undefined for a dense tensor.
  };
  static Sent sent(const at::Tensor& tensor);
  std::vector<Sent> sent_;
  std::vector<Ref<Buffer>> buffers_;
};

}  // namespace lockstep::torch_adapter
