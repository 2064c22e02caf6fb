// LaneState: one rank's values of parameters and buffers (S3), as reference/state.h defines them,
// and the forwards that change them.
//
// Threads: the training thread. Ownership: parameters and devices outlive it.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/observe/tensor_memory.h"
#include "reducer/module_state.h"
#include "reference/state.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class LaneState {
 public:
  LaneState(const reference::Program& program, std::uint32_t rank,
            const std::vector<Ref<Parameter>>& parameters, const std::vector<Device*>& devices);

  const std::vector<Ref<Buffer>>& buffers() const { return buffers_; }

  // Call this before the reducer is constructed and before a reset.
  void start();
  void run_forward(std::uint32_t step_key, std::uint32_t forward);
  void train(std::uint32_t step_key);
  // Appends one hash_of_state() per tensor.
  void record(std::vector<std::uint64_t>& hashes);

 private:
  void write(const Tensor& tensor, const std::vector<std::uint64_t>& bits);
  std::vector<std::uint64_t> read(const Tensor& tensor);
  Tensor make(const reference::StateTensor& tensor, const Shape& shape) const;
  const Tensor& value(std::size_t tensor) const;

  const reference::Program& program_;
  const std::uint32_t rank_;
  const std::vector<reference::StateTensor> tensors_;
  const std::vector<Device*> devices_;  // by the program's numbers
  TensorMemory memory_;
  std::vector<Ref<Parameter>> parameters_;  // of the first tensors
  std::vector<Ref<Buffer>> buffers_;        // of the last tensors
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
