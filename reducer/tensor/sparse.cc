#include "reducer/tensor/sparse.h"

#include <algorithm>

#include "reducer/base/check.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Returns `count` rows of a tensor of rows, from `first` on, as a dense tensor.
Tensor rows_of(const Tensor& tensor, std::size_t first, std::size_t count) {
  const std::int64_t width = rows_shape(tensor.shape(), 1).elements();
  const std::int64_t offset = (tensor.data() - tensor.storage()->data()) /
                              static_cast<std::int64_t>(size_of(tensor.dtype()));
  return Tensor(tensor.storage(), offset + static_cast<std::int64_t>(first) * width, tensor.dtype(),
                rows_shape(tensor.shape(), static_cast<std::int64_t>(count)));
}

}  // namespace

Shape rows_shape(const Shape& whole, std::int64_t rows) {
  LOCKSTEP_CHECK_GE(whole.dims, 1);
  std::array<std::int64_t, kMaxDims> sizes = whole.sizes;
  sizes[0] = rows;
  return Shape::row_major({sizes.data(), static_cast<std::size_t>(whole.dims)});
}

bool is_sparse_of(const Tensor& tensor, const Shape& whole) {
  if (!tensor.is_sparse() || whole.dims == 0) return false;
  const Shape expected = rows_shape(whole, tensor.shape().sizes[0]);
  if (!tensor.shape().same_strides(expected)) return false;
  return std::all_of(tensor.rows().begin(), tensor.rows().end(),
                     [&](std::int64_t row) { return row >= 0 && row < whole.sizes[0]; });
}

Result<Tensor> empty_sparse(Device& device, DType dtype, const Shape& whole,
                            std::vector<std::int64_t> rows) {
  const Shape shape = rows_shape(whole, static_cast<std::int64_t>(rows.size()));
  Result<Tensor> values = Tensor::empty(device, dtype, shape);
  if (!values) return values;
  return Tensor(*values, make_ref<const RowNumbers>(std::move(rows)));
}

Tensor without_entries(const Tensor& sparse) {
  const Tensor nothing(sparse.storage(), 0, sparse.dtype(), rows_shape(sparse.shape(), 0));
  return Tensor(nothing, make_ref<const RowNumbers>(std::vector<std::int64_t>()));
}

Result<Tensor> append(const Tensor& first, const Tensor& second) {
  LOCKSTEP_CHECK(first.is_sparse());
  LOCKSTEP_CHECK(second.is_sparse());
  std::vector<std::int64_t> rows(first.rows().begin(), first.rows().end());
  rows.insert(rows.end(), second.rows().begin(), second.rows().end());
  Device& device = first.device();
  Result<Tensor> sum = empty_sparse(device, first.dtype(), first.shape(), std::move(rows));
  if (!sum) return sum;
  const Stream stream = device.current_stream();
  const std::size_t before = first.rows().size();
  device.copy(stream, first, rows_of(*sum, 0, before));
  device.copy(stream, second, rows_of(*sum, before, second.rows().size()));
  return sum;
}

Result<Tensor> coalesce(const Tensor& sparse, const Shape& whole) {
  LOCKSTEP_CHECK(sparse.is_sparse());
  const std::span<const std::int64_t> given = sparse.rows();
  std::vector<std::size_t> order;
  for (std::size_t entry = 0; entry < given.size(); ++entry)
    if (given[entry] >= 0) order.push_back(entry);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return given[a] < given[b]; });
  std::vector<std::int64_t> rows;
  for (const std::size_t entry : order)
    if (rows.empty() || rows.back() != given[entry]) rows.push_back(given[entry]);
  Device& device = sparse.device();
  Result<Tensor> sum = empty_sparse(device, sparse.dtype(), whole, std::move(rows));
  if (!sum) return sum;
  const Stream stream = device.current_stream();
  std::size_t next = 0;  // The next row of the sum.
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool is_new = i == 0 || given[order[i]] != given[order[i - 1]];
    const Tensor value = rows_of(sparse, order[i], 1);
    if (is_new)
      device.copy(stream, value, rows_of(*sum, next++, 1));
    else
      device.add(stream, value, rows_of(*sum, next - 1, 1));
  }
  LOCKSTEP_CHECK_EQ(next, sum->rows().size());
  return sum;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
