// Formats say how a device computes with each dtype of gradients, element by element. The host and
// a GPU run the same code.
//
// Arithmetic (contract G2, G3, G9): on a GPU every operation is an intrinsic that the compiler
// never contracts. The 16-bit formats are computed in float. On a GPU their conversions are the
// GPU's own (whoever compiles for one includes cuda_bf16.h and cuda_fp16.h before this header); on
// the host they are those of tensor/half.h.
#pragma once

#include <bit>
#include <cstdint>

#include "reducer/base/check.h"
#include "reducer/base/dtype.h"
#include "reducer/tensor/half.h"

#ifdef __CUDACC__
#define LOCKSTEP_HD __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HD inline
#endif

namespace lockstep::kernels {

#ifdef __CUDA_ARCH__
LOCKSTEP_HD float product(float a, float b) { return __fmul_rn(a, b); }
LOCKSTEP_HD double product(double a, double b) { return __dmul_rn(a, b); }
LOCKSTEP_HD float sum(float a, float b) { return __fadd_rn(a, b); }
LOCKSTEP_HD double sum(double a, double b) { return __dadd_rn(a, b); }
LOCKSTEP_HD float from_half(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
LOCKSTEP_HD std::uint16_t to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
LOCKSTEP_HD float from_bfloat16(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}
LOCKSTEP_HD std::uint16_t to_bfloat16(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
LOCKSTEP_HD float nearest_float(double value) { return __double2float_rn(value); }
LOCKSTEP_HD std::uint32_t bits_of(float value) { return __float_as_uint(value); }
LOCKSTEP_HD float float_of(std::uint32_t bits) { return __uint_as_float(bits); }
#else
LOCKSTEP_HD float product(float a, float b) { return a * b; }
LOCKSTEP_HD double product(double a, double b) { return a * b; }
LOCKSTEP_HD float sum(float a, float b) { return a + b; }
LOCKSTEP_HD double sum(double a, double b) { return a + b; }
LOCKSTEP_HD float from_half(std::uint16_t bits) { return half_to_float(bits); }
LOCKSTEP_HD std::uint16_t to_half(float value) { return float_to_half(value); }
LOCKSTEP_HD float from_bfloat16(std::uint16_t bits) { return bfloat16_to_float(bits); }
LOCKSTEP_HD std::uint16_t to_bfloat16(float value) { return float_to_bfloat16(value); }
LOCKSTEP_HD float nearest_float(double value) { return static_cast<float>(value); }
LOCKSTEP_HD std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
LOCKSTEP_HD float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
#endif

// Returns a float that rounds to 16 bits as the double does: the double is truncated, and the last
// bit says whether anything was cut off. (Rounding to nearest twice is wrong half-way between two
// 16-bit values.)
LOCKSTEP_HD float rounded_to_odd(double value) {
  const float nearest = nearest_float(value);
  const auto back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  const bool is_away = (back < 0 ? -back : back) > (value < 0 ? -value : value);
  return float_of((bits_of(nearest) - (is_away ? 1u : 0u)) | 1u);
}

// Each format says how one dtype is computed: it loads a value, computes in Compute, and rounds
// once when it stores.
struct Float64 {
  using Memory = double;
  using Compute = double;
  LOCKSTEP_HD static Compute load(Memory value) { return value; }
  LOCKSTEP_HD static Memory store(double value) { return value; }
};
struct Float32 {
  using Memory = float;
  using Compute = float;
  LOCKSTEP_HD static Compute load(Memory value) { return value; }
  LOCKSTEP_HD static Memory store(float value) { return value; }
  LOCKSTEP_HD static Memory store(double value) { return nearest_float(value); }
};
struct Float16 {
  using Memory = std::uint16_t;
  using Compute = float;
  LOCKSTEP_HD static Compute load(Memory value) { return from_half(value); }
  LOCKSTEP_HD static Memory store(float value) { return to_half(value); }
  LOCKSTEP_HD static Memory store(double value) { return to_half(rounded_to_odd(value)); }
};
struct BFloat16 {
  using Memory = std::uint16_t;
  using Compute = float;
  LOCKSTEP_HD static Compute load(Memory value) { return from_bfloat16(value); }
  LOCKSTEP_HD static Memory store(float value) { return to_bfloat16(value); }
  LOCKSTEP_HD static Memory store(double value) { return to_bfloat16(rounded_to_odd(value)); }
};

// Calls f with the format of a dtype, which must be a floating-point type, as gradients have.
template <class F>
void with_format(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat64:
      return f(Float64{});
    case DType::kFloat32:
      return f(Float32{});
    case DType::kFloat16:
      return f(Float16{});
    case DType::kBFloat16:
      return f(BFloat16{});
    default:
      LOCKSTEP_CHECK(dtype == DType::kFloat32);
  }
}

}  // namespace lockstep::kernels
