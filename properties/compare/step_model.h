// StepModel: a model without a forward, whose gradients a reducer averages on a device: what a
// reducer step costs over an NCCL library.
//
// A step begins with the call of backward, whose one node hands each parameter its gradient, and
// ends when the averages are on the device.
//
// Threads: one. Ownership: device, group and gradients outlive it. Failure: the reducer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reducer/data_parallel.h"

namespace lockstep::properties {

class StepModel {
 public:
  // A collective operation.
  static Result<std::unique_ptr<StepModel>> create(Device& device, Membership membership,
                                                   const std::vector<std::int64_t>& parameters,
                                                   const std::vector<std::byte>& gradients);
  Status prepare();  // not timed: writes the gradients that arrive, and makes the graph of a pass
  Status step();     // returns when the device has the averages
  Status read_averages(std::span<std::byte> into) const;

 private:
  class Root;
  StepModel(Device& device, const std::vector<std::byte>& gradients)
      : device_(device), gradients_(gradients), engine_(device.index()) {}

  Device& device_;
  const std::vector<std::byte>& gradients_;
  Engine engine_;
  std::vector<Ref<Parameter>> parameters_;
  std::vector<Tensor> arriving_;
  std::vector<Tensor> root_gradient_;
  std::unique_ptr<DataParallel> parallel_;
  std::vector<Edge> outputs_;
};

}  // namespace lockstep::properties
