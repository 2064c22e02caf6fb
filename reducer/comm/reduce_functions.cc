#include "reducer/comm/reduce_functions.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "reducer/base/check.h"
#include "reducer/tensor/half.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// These are the vector types of gcc and clang: plain loops would not be vectorised at -O2, because
// the three pointers may overlap. Lanes of 32 bytes become two instructions on a processor that has
// 16.
constexpr std::size_t kVectorBytes = 32;
template <typename T>
using Vector [[gnu::vector_size(kVectorBytes)]] = T;

template <typename T>
void sum(void* out, const void* local, const void* incoming, std::size_t elements) {
  static_assert(kVectorBytes % sizeof(T) == 0);
  auto* to = static_cast<std::byte*>(out);
  const auto* a = static_cast<const std::byte*>(local);
  const auto* b = static_cast<const std::byte*>(incoming);
  const std::size_t bytes = elements * sizeof(T);
  std::size_t i = 0;
  for (; i + kVectorBytes <= bytes; i += kVectorBytes) {
    Vector<T> left;
    Vector<T> right;
    std::memcpy(&left, a + i, kVectorBytes);
    std::memcpy(&right, b + i, kVectorBytes);
    left += right;
    std::memcpy(to + i, &left, kVectorBytes);
  }
  for (; i < bytes; i += sizeof(T)) {
    T left;
    T right;
    std::memcpy(&left, a + i, sizeof(T));
    std::memcpy(&right, b + i, sizeof(T));
    left = static_cast<T>(left + right);
    std::memcpy(to + i, &left, sizeof(T));
  }
}

// No multiplication is fused with an addition, because the build passes -ffp-contract=off.
template <typename T, bool kScaleLocal, bool kScaleIncoming>
void scaled_sum_of(void* out, const void* local, const void* incoming, std::size_t elements,
                   T factor) {
  static_assert(kVectorBytes % sizeof(T) == 0);
  auto* to = static_cast<std::byte*>(out);
  const auto* a = static_cast<const std::byte*>(local);
  const auto* b = static_cast<const std::byte*>(incoming);
  const std::size_t bytes = elements * sizeof(T);
  // `left` is passed for its type, a vector or a single element.
  const auto add = [=](std::size_t i, auto&& left) {
    std::remove_reference_t<decltype(left)> right;
    std::memcpy(&left, a + i, sizeof left);
    std::memcpy(&right, b + i, sizeof right);
    if constexpr (kScaleLocal) left *= factor;
    if constexpr (kScaleIncoming) right *= factor;
    left += right;
    std::memcpy(to + i, &left, sizeof left);
  };
  std::size_t i = 0;
  for (; i + kVectorBytes <= bytes; i += kVectorBytes) add(i, Vector<T>{});
  for (; i < bytes; i += sizeof(T)) add(i, T{});
}

template <typename T>
void scaled_sum(void* out, const void* local, const void* incoming, std::size_t elements,
                double factor, Scaled scaled) {
  const auto k = static_cast<T>(factor);
  switch (scaled) {
    case Scaled::kBoth:
      return scaled_sum_of<T, true, true>(out, local, incoming, elements, k);
    case Scaled::kLocal:
      return scaled_sum_of<T, true, false>(out, local, incoming, elements, k);
    case Scaled::kIncoming:
      return scaled_sum_of<T, false, true>(out, local, incoming, elements, k);
  }
}

template <float (*kWiden)(std::uint16_t), std::uint16_t (*kRound)(float)>
void sum_16(void* out, const void* local, const void* incoming, std::size_t elements) {
  auto* to = static_cast<std::byte*>(out);
  const auto* a = static_cast<const std::byte*>(local);
  const auto* b = static_cast<const std::byte*>(incoming);
  for (std::size_t i = 0; i < elements * 2; i += 2) {
    std::uint16_t left;
    std::uint16_t right;
    std::memcpy(&left, a + i, 2);
    std::memcpy(&right, b + i, 2);
    left = kRound(kWiden(left) + kWiden(right));
    std::memcpy(to + i, &left, 2);
  }
}

// Adds eight bfloat16 at a time in integer lanes; the rounding is that of float_to_bfloat16.
void sum_bfloat16(void* out, const void* local, const void* incoming, std::size_t elements) {
  using Narrow [[gnu::vector_size(16)]] = std::uint16_t;
  using Wide = Vector<std::uint32_t>;
  using Float = Vector<float>;
  static_assert(sizeof(Wide) == 2 * sizeof(Narrow) && sizeof(Float) == sizeof(Wide));
  auto* to = static_cast<std::byte*>(out);
  const auto* a = static_cast<const std::byte*>(local);
  const auto* b = static_cast<const std::byte*>(incoming);
  std::size_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    Narrow left;
    Narrow right;
    std::memcpy(&left, a + 2 * i, sizeof left);
    std::memcpy(&right, b + 2 * i, sizeof right);
    const Wide left_bits = __builtin_convertvector(left, Wide) << 16;
    const Wide right_bits = __builtin_convertvector(right, Wide) << 16;
    const Float result =
        __builtin_bit_cast(Float, left_bits) + __builtin_bit_cast(Float, right_bits);
    const Wide bits = __builtin_bit_cast(Wide, result);
    const Wide rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const Wide quiet = (bits >> 16) | 0x40u;
    const auto is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const Wide chosen = is_nan ? quiet : rounded;
    const Narrow narrow = __builtin_convertvector(chosen, Narrow);
    std::memcpy(to + 2 * i, &narrow, sizeof narrow);
  }
  sum_16<bfloat16_to_float, float_to_bfloat16>(to + 2 * i, a + 2 * i, b + 2 * i, elements - i);
}

#if defined(__x86_64__)
[[gnu::target("avx,f16c")]] void sum_float16_f16c(void* out, const void* local,
                                                  const void* incoming, std::size_t elements) {
  auto* to = static_cast<std::byte*>(out);
  const auto* a = static_cast<const std::byte*>(local);
  const auto* b = static_cast<const std::byte*>(incoming);
  std::size_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    __m128i left;
    __m128i right;
    std::memcpy(&left, a + 2 * i, sizeof left);
    std::memcpy(&right, b + 2 * i, sizeof right);
    const __m256 result = _mm256_add_ps(_mm256_cvtph_ps(left), _mm256_cvtph_ps(right));
    const __m128i narrow = _mm256_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    std::memcpy(to + 2 * i, &narrow, sizeof narrow);
  }
  sum_float16_portable(to + 2 * i, a + 2 * i, b + 2 * i, elements - i);
}

// __builtin_cpu_supports knows whether the system saves the wide registers. The one of clang 14
// does not know f16c, so that bit is read directly.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (!__builtin_cpu_supports("avx")) return false;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}
#endif

SumFunction float16_function() {
#if defined(__x86_64__)
  static const bool use_f16c = has_f16c();
  if (use_f16c) return sum_float16_f16c;
#endif
  return sum_float16_portable;
}

}  // namespace

void sum_float16_portable(void* out, const void* local, const void* incoming,
                          std::size_t elements) {
  sum_16<half_to_float, float_to_half>(out, local, incoming, elements);
}

ScaledSumFunction scaled_sum_function(DType dtype) {
  if (dtype == DType::kFloat64) return scaled_sum<double>;
  if (dtype == DType::kFloat32) return scaled_sum<float>;
  return nullptr;
}

void add_in_order(const Collective& collective, const std::byte* parts, std::size_t stride,
                  std::size_t bytes, std::uint64_t ranks, std::byte* sum) {
  LOCKSTEP_CHECK_LT(1u, ranks);
  LOCKSTEP_CHECK_LE(bytes, stride);
  LOCKSTEP_CHECK_EQ(bytes % size_of(collective.dtype), 0u);
  const std::size_t elements = bytes / size_of(collective.dtype);
  if (collective.factor == 1.0) {
    std::memcpy(sum, parts, bytes);
    for (std::uint64_t r = 1; r < ranks; ++r)
      sum_function(collective.dtype)(sum, sum, parts + r * stride, elements);
    return;
  }
  const auto add = scaled_sum_function(collective.dtype);
  add(sum, parts, parts + stride, elements, collective.factor, Scaled::kBoth);
  for (std::uint64_t r = 2; r < ranks; ++r)
    add(sum, sum, parts + r * stride, elements, collective.factor, Scaled::kIncoming);
}

SumFunction sum_function(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return sum<double>;
    case DType::kFloat32:
      return sum<float>;
    case DType::kFloat16:
      return float16_function();
    case DType::kBFloat16:
      return sum_bfloat16;
    case DType::kInt32:
      return sum<std::uint32_t>;  // The sum is unsigned, so it may wrap.
    case DType::kComplex64:       // Its parts are summed as float32.
    case DType::kByte:
      return nullptr;
  }
  return nullptr;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
