// LastResults: what the last reduction of each bucket left. With skip_all_reduce_unused_params
// PyTorch takes it for the result of a pass that leaves the bucket out (hook_model.h). Any thread;
// nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "properties/subject/torch/model/parameter_memory.h"
#include "properties/subject/torch/model/rank_state.h"
#include "reference/sparse.h"

namespace lockstep::properties::torch_model {

class LastResults {
 public:
  LastResults(const Program& program, const ParameterMemory& memory);

  // New buckets, which were not reduced yet.
  void begin_layout(std::size_t buckets) { has_result_.assign(buckets, false); }
  // A dense parameter's bucket was reduced to this, from `begin` on.
  void keep(std::uint32_t parameter, std::size_t begin, std::size_t end, const double* sums);
  // The bucket of the parameter was reduced; a lazy one keeps no result.
  void end_reduction(std::uint32_t parameter, bool is_lazy);
  // A sparse gradient was reduced to these entries. It is the result itself until another one takes
  // its place: then it is what it was when the user zeroed it.
  void keep(std::uint32_t rank, std::uint32_t parameter, const reference::Entries& entries);
  void leave(std::uint32_t rank, std::uint32_t parameter, const Gradient& own,
             const reference::Entries& entries);

  struct Place {  // of a rank's gradient
    Gradient& own;
    const double* bucket;  // what is in its bucket
    double* dense;
    reference::Entries& sparse;
  };
  // The bucket is left out: its last result is written to the gradients of a rank that a local pass
  // used, or that are views.
  void repeat(std::uint32_t rank, std::uint32_t parameter, bool is_used, const Place& to) const;

 private:
  const Program& program_;
  const ParameterMemory& memory_;
  const bool is_elsewhere_;       // a hook of the user's left it in memory of its own
  std::vector<bool> has_result_;  // by bucket
  std::vector<double> sums_;
  std::vector<reference::Entries> entries_;  // by rank and parameter
};

}  // namespace lockstep::properties::torch_model
