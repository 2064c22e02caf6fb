#include "properties/observe/gradient_bits.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "reducer/base/check.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

template <class Bits>
void append(const Tensor& tensor, TensorMemory& memory, std::vector<std::uint64_t>& bits) {
  if (tensor.elements() == 0) return;
  const Shape& shape = tensor.shape();
  const auto count = static_cast<std::size_t>(tensor.elements());
  const auto* elements = reinterpret_cast<const Bits*>(memory.read(tensor));
  const std::size_t begin = bits.size();
  bits.resize(begin + count);
  std::uint64_t* const out = bits.data() + begin;
  if (shape.same_strides(
          Shape::row_major({shape.sizes.data(), static_cast<std::size_t>(shape.dims)}))) {
    std::copy_n(elements, count, out);
    return;
  }
  std::array<std::int64_t, kMaxDims> index{};
  std::int64_t at = 0;
  for (std::size_t n = 0; n < count; ++n) {
    out[n] = elements[at];
    for (int d = shape.dims - 1; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      at += shape.strides[i];
      if (++index[i] < shape.sizes[i]) break;
      at -= index[i] * shape.strides[i];
      index[i] = 0;
    }
  }
}

void append_dense(const Tensor& given, TensorMemory& memory, std::vector<std::uint64_t>& bits) {
  const Tensor tensor = given.as_real();
  switch (size_of(tensor.dtype())) {
    case 8:
      return append<std::uint64_t>(tensor, memory, bits);
    case 4:
      return append<std::uint32_t>(tensor, memory, bits);
    default:
      LOCKSTEP_CHECK_EQ(size_of(tensor.dtype()), sizeof(std::uint16_t));
      return append<std::uint16_t>(tensor, memory, bits);
  }
}

void append_rows(const Tensor& tensor, const Shape& whole, TensorMemory& memory,
                 std::vector<std::uint64_t>& bits) {
  Result<Tensor> rows = until_given([&] { return coalesce(tensor, whole); });
  LOCKSTEP_CHECK(rows.has_value());
  std::vector<std::uint64_t> values;
  append_dense(*rows, memory, values);
  const std::size_t begin = bits.size();
  const auto elements = static_cast<std::size_t>(whole.elements() * parts_of(tensor.dtype()));
  const auto count = static_cast<std::size_t>(whole.sizes[0]);
  bits.resize(begin + elements + count);
  const std::size_t width = count == 0 ? 0 : elements / count;
  for (std::size_t i = 0; i < rows->rows().size(); ++i) {
    const auto row = static_cast<std::size_t>(rows->rows()[i]);
    LOCKSTEP_CHECK_LT(row, count);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                bits.begin() + static_cast<std::ptrdiff_t>(begin + row * width));
    bits[begin + elements + row] = 1;
  }
}

}  // namespace

void append_gradient(const Tensor& gradient, const Shape& whole, TensorMemory& memory,
                     std::vector<std::uint64_t>& bits) {
  if (gradient.is_sparse()) return append_rows(gradient, whole, memory, bits);
  append_dense(gradient, memory, bits);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
