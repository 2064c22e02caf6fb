// Sparse gradients (contract S1): lists of entries, each the number of a row of the parameter and
// that row's values. Functions on them; a Tensor holds one (tensor.h).
//
// Nothing here changes a tensor that it is given, so entries may be shared between many. Row
// numbers are in host memory, values where the tensor lives; values are added by the device, row by
// row. Threads: as for tensors. Failure: memory that the device refuses is reported, memory for
// numbers is std::bad_alloc.
#pragma once

#include <vector>

#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Of a whole of this shape, one dimension at least: the shape of so many of its rows. Rows lie one
// after the other, each row-major.
Shape rows_shape(const Shape& whole, std::int64_t rows);

// Whether it is sparse, and its entries are rows of a whole of this shape.
bool is_sparse_of(const Tensor& tensor, const Shape& whole);

// New memory for these rows of a whole, not initialised.
Result<Tensor> empty_sparse(Device& device, DType dtype, const Shape& whole,
                            std::vector<std::int64_t> rows);

// The same storage, and no entry.
Tensor without_entries(const Tensor& sparse);

// The sum of two: the entries of one, then those of the other.
Result<Tensor> append(const Tensor& first, const Tensor& second);

// Each row once, ascending; the entries of one row folded in their order, rounded at each step. An
// entry with a negative number is padding, and left out.
Result<Tensor> coalesce(const Tensor& sparse, const Shape& whole);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
