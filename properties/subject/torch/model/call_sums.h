// CallSums: what one backward call sends to each parameter, before it is added to the gradients
// (hook_model.h). A nested call has sums of its own. One thread; nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/subject/torch/model/merged_entries.h"
#include "properties/subject/torch/model/parameter_memory.h"
#include "properties/subject/torch/model/policies.h"

namespace lockstep::properties::torch_model {

class CallSums {
 public:
  // `program` and `memory` must outlive it.
  CallSums(const Program& program, ParameterMemory& memory, const Policies& policies);

  // Adds the tensor of one use. The first tensor of a call replaces what an earlier call left.
  // Returns false if PyTorch has no means to add them.
  [[nodiscard]] bool add_tensor(const Event& event, std::uint32_t rank, std::uint32_t step_key);

  // The sums of the call at this depth: of dense parameters as ParameterMemory places them, and of
  // a sparse parameter.
  const double* dense(std::uint32_t depth) const { return sums_[depth].data(); }
  const Entries& sparse(std::uint32_t depth, std::uint32_t parameter) const {
    return sparse_sums_[depth][parameter];
  }

 private:
  const Program& program_;
  ParameterMemory& memory_;
  const bool merges_sparse_;
  std::vector<double> sums_[reference::kMaxDepth + 1];
  std::vector<Entries> sparse_sums_[reference::kMaxDepth + 1];
};

}  // namespace lockstep::properties::torch_model
