// ParameterMemory: where a model keeps the values of each parameter that is trained, one after the
// other in the parameter's own memory order, and how they come there and out again. What a model
// does with them in between is its own.
//
// Plain data; one thread; nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "properties/subject/torch/model/graph.h"
#include "reference/program.h"

namespace lockstep::properties::torch_model {

using reference::Program;

class ParameterMemory {
 public:
  struct Place {
    std::size_t start = 0;  // of its values
    std::size_t count = 0;  // 0 for a sparse one
    std::uint32_t bucket = 0;
    std::uint64_t offset = 0;  // in the bucket, in values
  };

  explicit ParameterMemory(const Program& program);

  std::vector<std::uint32_t> owners;   // of every parameter, or kNotTrained
  std::vector<std::uint32_t> trained;  // the owners, ascending
  std::vector<std::uint32_t> parts;    // those of them that are reduced, in every replica (P15)
  std::vector<std::uint32_t> reduced;  // those of the first replica: what each is summed for
  std::vector<Place> places;           // by parameter; buckets are for the model to fill in
  std::size_t total = 0;               // values of all that are trained

  // Adds the tensor of one use to `sums`, of all parameters; the first of a call is not added, but
  // replaces what was there.
  void add_tensor(const Event& event, std::uint32_t rank, std::uint32_t step_key, double* sums);

  // Appends the bits of a parameter's values, in row-major order; where they begin is returned.
  std::uint64_t append_bits(std::uint32_t parameter, const double* values,
                            std::vector<std::uint64_t>& bits) const;

 private:
  const Program& program_;
  std::vector<std::uint32_t> memory_of_;  // by start and row-major index: memory order
  std::vector<double> arrived_;           // the tensor of one use
};

}  // namespace lockstep::properties::torch_model
