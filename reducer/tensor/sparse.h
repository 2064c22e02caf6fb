// Functions on sparse gradients (contract S1). A sparse gradient is a list of entries, each the
// number of a row of the parameter and that row's values; a Tensor holds one (tensor.h).
//
// No function changes a tensor that it is given, so tensors may share entries. Row numbers are in
// host memory, values are where the tensor lives, and the device adds values row by row.
// Threads: as for tensors.
// Failure: an allocation that the device refuses is reported; a failed allocation for row numbers
// is std::bad_alloc.
#pragma once

#include <vector>

#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The shape of `rows` rows of a dense tensor of shape `whole`, which has at least one dimension.
// The rows lie one after the other, each row-major.
Shape rows_shape(const Shape& whole, std::int64_t rows);

// Whether the tensor is sparse, and its entries are rows of a dense tensor of shape `whole`.
bool is_sparse_of(const Tensor& tensor, const Shape& whole);

// Allocates memory for these rows of a dense tensor of shape `whole`. The memory is not
// initialised.
Result<Tensor> empty_sparse(Device& device, DType dtype, const Shape& whole,
                            std::vector<std::int64_t> rows);

// Returns a tensor with the same storage and without entries.
Tensor without_entries(const Tensor& sparse);

// Returns the sum of two tensors: the entries of `first`, followed by those of `second`.
Result<Tensor> append(const Tensor& first, const Tensor& second);

// Returns a tensor with each row once, ascending. The entries of one row are added in their order
// and rounded at each step. An entry with a negative number is padding, and is left out.
Result<Tensor> coalesce(const Tensor& sparse, const Shape& whole);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
