#include "faults/sim/arithmetic.h"

#include <cstdint>
#include <cstring>

#include "reducer/base/check.h"
#include "reducer/tensor/half.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

namespace {

template <class T, class Add>
void sum(std::byte* into, const std::byte* from, std::size_t bytes, Add add) {
  for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, into + i, sizeof(T));
    std::memcpy(&b, from + i, sizeof(T));
    a = add(a, b);
    std::memcpy(into + i, &a, sizeof(T));
  }
}

}  // namespace

// A pair of floats (complex64) is summed as two floats.
bool can_sum(DType dtype) { return dtype != DType::kByte && dtype != DType::kComplex64; }

void sum_into(DType dtype, std::byte* into, const std::byte* from, std::size_t bytes) {
  switch (dtype) {
    case DType::kFloat64:
      return sum<double>(into, from, bytes, [](double a, double b) { return a + b; });
    case DType::kFloat32:
      return sum<float>(into, from, bytes, [](float a, float b) { return a + b; });
    case DType::kFloat16:
      return sum<std::uint16_t>(into, from, bytes, [](std::uint16_t a, std::uint16_t b) {
        return float_to_half(half_to_float(a) + half_to_float(b));
      });
    case DType::kBFloat16:
      return sum<std::uint16_t>(into, from, bytes, [](std::uint16_t a, std::uint16_t b) {
        return float_to_bfloat16(bfloat16_to_float(a) + bfloat16_to_float(b));
      });
    case DType::kInt32:
      return sum<std::uint32_t>(into, from, bytes,
                                [](std::uint32_t a, std::uint32_t b) { return a + b; });
    case DType::kComplex64:
    case DType::kByte:
      break;
  }
  LOCKSTEP_CHECK(can_sum(dtype));
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
