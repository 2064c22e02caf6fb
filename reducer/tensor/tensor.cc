#include "reducer/tensor/tensor.h"

#include <algorithm>

#include "reducer/base/check.h"
#include "reducer/base/sizes.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

namespace {

// Returns whether the elements lie one after the other, with the last dimension innermost. For a
// shape without elements it returns false.
bool is_row_major(const Shape& shape) {
  std::int64_t expected = 1;
  for (auto i = static_cast<std::size_t>(shape.dims); i-- > 0;) {
    if (shape.sizes[i] == 1) continue;
    if (shape.strides[i] != expected || shape.sizes[i] == 0) return false;
    expected = multiply_sizes(expected, shape.sizes[i]);
  }
  return expected != kTooLarge;
}

}  // namespace

Storage::~Storage() {
  if (!is_of_others_) device_.release(data_, bytes_);
}

Ref<Storage> Storage::of_others(Device& device) {
  return Ref<Storage>(new Storage(device, OfOthers()));
}

void Storage::point_to(std::byte* data, std::size_t bytes) {
  LOCKSTEP_CHECK(is_of_others_);
  LOCKSTEP_CHECK(data != nullptr || bytes == 0);
  data_ = data;
  bytes_ = bytes;
}

Shape Shape::row_major(std::span<const std::int64_t> sizes) {
  LOCKSTEP_CHECK_LE(sizes.size(), static_cast<std::size_t>(kMaxDims));
  Shape shape;
  shape.dims = static_cast<int>(sizes.size());
  std::int64_t stride = 1;
  for (int d = shape.dims - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    LOCKSTEP_CHECK_GE(sizes[i], 0);
    shape.sizes[i] = sizes[i];
    shape.strides[i] = stride;
    stride = multiply_sizes(stride, std::max<std::int64_t>(sizes[i], 1));
  }
  return shape;
}

Shape Shape::column_major(std::span<const std::int64_t> sizes) {
  Shape shape = row_major(sizes);
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    shape.strides[i] = stride;
    stride = multiply_sizes(stride, std::max<std::int64_t>(sizes[i], 1));
  }
  return shape;
}

// These functions run for every gradient of a pass, and most shapes have one or two dimensions. So
// they first decide what one loop over the dimensions can decide, without a call.
std::int64_t Shape::elements() const {
  if (dims == 1) return sizes[0];
  std::int64_t count = 1;
  for (int d = 0; d < dims; ++d) count = multiply_sizes(count, sizes[static_cast<std::size_t>(d)]);
  return count;
}

bool Shape::same_sizes(const Shape& other) const {
  if (dims != other.dims) return false;
  for (std::size_t i = 0; i < static_cast<std::size_t>(dims); ++i)
    if (sizes[i] != other.sizes[i]) return false;
  return true;
}

bool Shape::same_strides(const Shape& other) const {
  if (dims != other.dims) return false;
  bool same = true;
  for (std::size_t i = 0; i < static_cast<std::size_t>(dims); ++i) {
    if (sizes[i] != other.sizes[i]) return false;
    if (strides[i] != other.strides[i] && sizes[i] != 1) same = false;
  }
  return same || elements() == 0;
}

bool Shape::is_dense() const {
  if (is_row_major(*this)) return true;
  // Dimensions of size 1 do not matter. The others must nest: each stride must be the extent of
  // those inside it.
  const std::int64_t count = elements();
  if (count == 0) return true;
  if (count == kTooLarge) return false;
  std::int64_t expected = 1;
  while (expected < count) {
    std::size_t i = 0;
    while (i < static_cast<std::size_t>(dims) && (sizes[i] == 1 || strides[i] != expected)) ++i;
    if (i == static_cast<std::size_t>(dims)) return false;
    LOCKSTEP_CHECK_GE(sizes[i], 2);  // So the loop ends.
    expected = multiply_sizes(expected, sizes[i]);
  }
  return expected == count;
}

std::int64_t Shape::extent() const {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(dims); ++i) {
    if (sizes[i] == 0) return 0;
    LOCKSTEP_CHECK_GE(strides[i], 0);  // Otherwise the last element is not the farthest one.
    last = add_sizes(last, multiply_sizes(sizes[i] - 1, strides[i]));
  }
  return add_sizes(last, 1);
}

std::int64_t Shape::bytes(DType dtype) const {
  return multiply_sizes(extent(), static_cast<std::int64_t>(size_of(dtype)));
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int d = 0; d < dims; ++d)
    text.append(d ? " " : "").append(std::to_string(sizes[static_cast<std::size_t>(d)]));
  return text.append("]");
}

bool Shape::is_expanded() const {
  for (std::size_t i = 0; i < static_cast<std::size_t>(dims); ++i)
    if (sizes[i] > 1 && strides[i] == 0) return elements() != 0;
  return false;
}

Shape Shape::of_pairs() const {
  LOCKSTEP_CHECK_LT(dims, kMaxDims);
  Shape shape = *this;
  const auto last = static_cast<std::size_t>(shape.dims++);
  for (std::size_t i = 0; i < last; ++i) shape.strides[i] = multiply_sizes(shape.strides[i], 2);
  shape.sizes[last] = 2;
  shape.strides[last] = 1;
  return shape;
}

Tensor Tensor::as_real() const {
  if (parts_of(dtype_) == 1) return *this;
  const auto offset = (data_ - storage_->data()) / static_cast<std::ptrdiff_t>(size_of(dtype_));
  return Tensor(storage_, 2 * offset, real_of(dtype_), shape_.of_pairs());
}

Tensor::Tensor(Ref<Storage> storage, std::int64_t offset, DType dtype, const Shape& shape)
    : storage_(std::move(storage)), elements_(shape.elements()), dtype_(dtype), shape_(shape) {
  LOCKSTEP_CHECK(static_cast<bool>(storage_));
  LOCKSTEP_CHECK_GE(offset, 0);
  const std::int64_t end =
      multiply_sizes(add_sizes(offset, shape.extent()), static_cast<std::int64_t>(size_of(dtype)));
  LOCKSTEP_CHECK(end != kTooLarge);
  LOCKSTEP_CHECK_LE(static_cast<std::size_t>(end), storage_->bytes());
  data_ = storage_->data() + offset * static_cast<std::int64_t>(size_of(dtype));
}

Tensor::Tensor(const Tensor& values, Ref<const RowNumbers> rows) : Tensor(values) {
  rows_ = std::move(rows);
  LOCKSTEP_CHECK(defined() && is_sparse() && shape_.dims > 0);
  LOCKSTEP_CHECK_EQ(static_cast<std::size_t>(shape_.sizes[0]), rows_->numbers().size());
}

Result<Tensor> Tensor::empty(Device& device, DType dtype, const Shape& shape) {
  const std::int64_t bytes = shape.bytes(dtype);
  if (bytes == kTooLarge || shape.elements() == kTooLarge)
    return failed(Status(Code::kInvalidArgument,
                         "a tensor of sizes " + shape.to_string() + " and dtype " + name_of(dtype) +
                             " has more bytes than any memory: check the sizes"));
  Result<Ref<Storage>> storage = device.allocate(static_cast<std::size_t>(bytes));
  if (!storage) return failed(storage.error());
  return Tensor(std::move(*storage), 0, dtype, shape);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
