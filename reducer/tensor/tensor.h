// Tensor is a strided view of typed memory on a device. Storage is that memory, shared by all views
// of it.
//
// Shapes are in elements. Strides are in elements and not negative; an element must not be reached
// twice unless a stride is 0 (expanded). Counts do not wrap around: a shape with more elements than
// can be counted has kTooLarge of them (base/sizes.h), is not dense, and no tensor has it. A Tensor
// is a handle: copies share the storage, and a default-constructed one is undefined.
// Threads: handles are values; whoever shares the memory guards it.
// Identity: two tensors have the same storage iff their storage() pointers are equal.
//
// A *sparse* tensor (S1) is a list of entries of a larger dense tensor, such as the gradient of an
// embedding. Each entry is the number of a row of the dense tensor, and the row's values. A sparse
// tensor is a tensor of these values, with one row for each entry, that also holds the row numbers;
// sparse.h has the functions on it.
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
  // Memory of the device, which the destructor returns to it.
  Storage(Device& device, std::byte* data, std::size_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  // Memory that somebody else owns, and keeps as long as it is used here. It begins with none.
  static Ref<Storage> of_others(Device& device);
  ~Storage() override;
  Device& device() const { return device_; }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // For storages of_others(): the memory is here from now on. Tensors that were made before still
  // point to where it was, and must not be used any more.
  void point_to(std::byte* data, std::size_t bytes);

 private:
  struct OfOthers {};
  Storage(Device& device, OfOthers) : device_(device), is_of_others_(true) {}

  Device& device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  const bool is_of_others_ = false;
};

constexpr int kMaxDims = 7;  // A complex tensor may have one dimension fewer: see as_real().

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
      // Strides do not matter where a size is 1, or if there is no element.
      const Shape& other) const;
  bool is_dense()
      // True if the shape reaches every element of a contiguous range exactly once, in some order
      // of dimensions.
      const;
  std::int64_t extent()
      // The number of elements from the first to the last that the shape reaches, both included.
      const;
  bool is_expanded() const;       // True if the shape reaches some element twice.
  std::string to_string() const;  // Formats the sizes: "[2 3]".
  // The number of bytes from the first to the last element that the shape reaches, or kTooLarge.
  std::int64_t bytes(DType dtype) const;
  // For elements that are pairs: the shape with the two parts as a last dimension.
  Shape of_pairs() const;
};

// The row numbers of the entries of a sparse tensor, in any order; a row may appear several times.
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
  // Makes a sparse tensor. `rows` has as many numbers as `values` has rows; `values` must be
  // defined.
  Tensor(const Tensor& values, Ref<const RowNumbers> rows);

  // Allocates memory on `device`, which is not initialised. It returns kOutOfMemory when the device
  // has no memory left, and kInvalidArgument for a shape with more bytes than any memory has.
  static Result<Tensor> empty(Device& device, DType dtype, const Shape& shape);

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return elements_; }
  std::byte* data() const { return data_; }
  const Ref<Storage>& storage() const { return storage_; }
  Device& device() const { return storage_->device(); }

  // True if the tensor is itself part of a graph: a gradient that was computed in such a way that
  // it can be differentiated again. Tensors that are computed from it are not marked automatically.
  bool requires_grad() const { return requires_grad_; }
  void set_requires_grad(bool requires_grad) { requires_grad_ = requires_grad; }

  // The same memory as real numbers: the two parts of a complex element become a last dimension.
  Tensor as_real() const;

  bool is_sparse() const { return static_cast<bool>(rows_); }
  // The row number of each entry; only for sparse tensors.
  std::span<const std::int64_t> rows() const { return rows_->numbers(); }

 private:
  Ref<Storage> storage_;
  Ref<const RowNumbers> rows_;
  std::byte* data_ =
      nullptr;  // That of the first element, so that who reads it need not read storage_.
  std::int64_t elements_ = 0;
  DType dtype_ = DType::kFloat32;
  bool requires_grad_ = false;
  Shape shape_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
