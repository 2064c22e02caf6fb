// GradientBits: what an observation records of a gradient (ObservedGradient::offset).
// Threads: the one that trains.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/observe/tensor_memory.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Appends the bits of a gradient's elements in row-major order, whatever its strides; of a sparse
// gradient of a parameter of shape `whole`, those that reference::gradient_words() counts.
void append_gradient(const Tensor& gradient, const Shape& whole, TensorMemory& memory,
                     std::vector<std::uint64_t>& bits);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
