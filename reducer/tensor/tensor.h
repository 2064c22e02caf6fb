// Tensor: a strided view of typed memory on a device. Storage: that memory, shared by all views of
// it.
//
// Shapes are in elements. Strides are in elements, not negative; an element must not be reached
// twice unless a stride is 0 (expanded). Counts do not wrap around: a shape of more elements than
// can be counted has kTooLarge of them (base/sizes.h), is not dense, and no tensor has it. A Tensor
// is a handle: copies share the storage; a default-constructed one is undefined. Threads: handles
// are values; the memory is guarded by whoever shares it. Identity: two tensors have the same
// storage iff storage() pointers are equal.
//
// A *sparse* tensor (S1) is a list of entries of something larger, a gradient of an embedding: the
// number of a row of that, and the row's values. It is a tensor of these values, one row an entry,
// that knows the numbers; what can be done with it is in sparse.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "reducer/base/dtype.h"
#include "reducer/base/ref.h"
#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Device;

class Storage final : public RefCounted {
 public:
  Storage(Device& device, std::byte* data, std::size_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  ~Storage() override;
  Device& device() const { return device_; }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Device& device_;
  std::byte* data_;
  std::size_t bytes_;
};

constexpr int kMaxDims = 7;  // of a complex tensor one fewer: see as_real()

struct Shape {
  int dims = 0;
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<std::int64_t, kMaxDims> strides{};

  static Shape row_major(std::span<const std::int64_t> sizes);
  static Shape column_major(std::span<const std::int64_t> sizes);
  static Shape row_major(std::initializer_list<std::int64_t> sizes) {
    return row_major(std::span<const std::int64_t>(sizes.begin(), sizes.size()));
  }

  std::int64_t elements() const;
  bool same_sizes(const Shape& other) const;
  bool same_strides(
      const Shape& other) const;  // where a size is 1 or there is no element, strides do not matter
  bool is_dense()
      const;  // every element of a contiguous range exactly once, in some order of dimensions
  std::int64_t extent()
      const;                 // elements from the first to the last that are reached, both included
  bool is_expanded() const;  // some element is reached twice
  std::string to_string() const;  // its sizes: "[2 3]"
  // Of that many bytes, from the first element to the last that are reached, or kTooLarge.
  std::int64_t bytes(DType dtype) const;
  // Of elements that are pairs: with the two parts as a last dimension.
  Shape of_pairs() const;
};

// Which rows the entries of a sparse tensor are of: in any order, and a row may come several times.
class RowNumbers final : public RefCounted {
 public:
  explicit RowNumbers(std::vector<std::int64_t> numbers) : numbers_(std::move(numbers)) {}
  std::span<const std::int64_t> numbers() const { return numbers_; }

 private:
  const std::vector<std::int64_t> numbers_;
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(Ref<Storage> storage, std::int64_t offset, DType dtype, const Shape& shape);
  // Sparse: as many numbers as `values` has rows. Not an undefined one.
  Tensor(const Tensor& values, Ref<const RowNumbers> rows);

  // New memory on `device`, not initialised. kOutOfMemory when the device has none left;
  // kInvalidArgument for a shape of more bytes than any memory has.
  static Result<Tensor> empty(Device& device, DType dtype, const Shape& shape);

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return elements_; }
  std::byte* data() const {
    return storage_->data() + offset_ * static_cast<std::int64_t>(size_of(dtype_));
  }
  const Ref<Storage>& storage() const { return storage_; }
  Device& device() const { return storage_->device(); }

  // Part of a graph itself: a gradient that was computed in such a way that it can be
  // differentiated again. What is computed from it is not marked by itself.
  bool requires_grad() const { return requires_grad_; }
  void set_requires_grad(bool requires_grad) { requires_grad_ = requires_grad; }

  // The same memory as real numbers: of a complex tensor the parts are a last dimension.
  Tensor as_real() const;

  bool is_sparse() const { return static_cast<bool>(rows_); }
  // Of a sparse one: by entry.
  std::span<const std::int64_t> rows() const { return rows_->numbers(); }

 private:
  Ref<Storage> storage_;
  Ref<const RowNumbers> rows_;
  std::int64_t offset_ = 0;
  std::int64_t elements_ = 0;
  DType dtype_ = DType::kFloat32;
  bool requires_grad_ = false;
  Shape shape_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
