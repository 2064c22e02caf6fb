#include "reducer/torch/tensors.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "reducer/base/check.h"

namespace lockstep::torch_adapter {

HostDevice& host_device() {
  static HostDevice* const device = new HostDevice;
  return *device;
}

std::optional<DType> gradient_dtype(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::kFloat64;
    case at::kFloat:
      return DType::kFloat32;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kComplexFloat:
      return DType::kComplex64;
    default:
      return std::nullopt;
  }
}

std::optional<Shape> shape_of(const at::Tensor& tensor) {
  const int most = tensor.is_complex() ? kMaxDims - 1 : kMaxDims;
  if (tensor.dim() > most) return std::nullopt;
  Shape shape;
  shape.dims = static_cast<int>(tensor.dim());
  const at::IntArrayRef sizes = tensor.sizes();
  const at::IntArrayRef strides = tensor.strides();
  std::copy(sizes.begin(), sizes.end(), shape.sizes.begin());
  std::copy(strides.begin(), strides.end(), shape.strides.begin());
  return shape;
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense();
}

Tensor bytes_of(const at::Tensor& tensor) {
  LOCKSTEP_CHECK(is_dense(tensor));
  const auto bytes =
      static_cast<std::int64_t>(tensor.numel()) * static_cast<std::int64_t>(tensor.element_size());
  const Ref<Storage> storage = Storage::of_others(host_device());
  storage->point_to(static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(bytes));
  return Tensor(storage, 0, DType::kByte, Shape::row_major({bytes}));
}

// Ends a share of as_torch(). storage_of() knows shared memory by this function.
static void drop_share(void* share) { delete static_cast<Ref<Storage>*>(share); }

at::Tensor as_torch(const Tensor& tensor, const at::TensorOptions& options) {
  LOCKSTEP_CHECK(tensor.defined());
  LOCKSTEP_CHECK(!tensor.is_sparse());
  const Shape& shape = tensor.shape();
  const auto dims = static_cast<std::size_t>(shape.dims);
  return at::for_blob(tensor.data(), at::IntArrayRef(shape.sizes.data(), dims))
      .strides(at::IntArrayRef(shape.strides.data(), dims))
      .context(new Ref<Storage>(tensor.storage()), &drop_share)
      .options(options)
      .make_tensor();
}

// Of a tensor without elements PyTorch says that it lies nowhere.
Ref<Storage> storage_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  const at::DataPtr& memory = tensor.storage().data_ptr();
  if (memory.get_deleter() != &drop_share) return {};
  return *static_cast<Ref<Storage>*>(memory.get_context());
}

at::Tensor as_torch_sparse(const Tensor& tensor, at::IntArrayRef sizes,
                           const at::TensorOptions& options) {
  LOCKSTEP_CHECK(tensor.is_sparse());
  const std::span<const std::int64_t> rows = tensor.rows();
  at::Tensor indices =
      at::empty({1, static_cast<std::int64_t>(rows.size())}, options.dtype(at::kLong));
  if (!rows.empty()) std::memcpy(indices.data_ptr(), rows.data(), rows.size_bytes());
  std::vector<std::int64_t> value_sizes(sizes.begin(), sizes.end());
  value_sizes[0] = static_cast<std::int64_t>(rows.size());
  const at::Tensor values = at::from_blob(
      tensor.data(), value_sizes, [storage = tensor.storage()](void*) {}, options);
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes, options.layout(at::kSparse));
}

}  // namespace lockstep::torch_adapter
