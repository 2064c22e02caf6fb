#include "faults/sim/nccl/ring.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "reducer/tensor/half.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {
namespace {

std::size_t divided_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// Returns the float next to x such that a later rounding to fewer bits gives the same result as a
// single rounding: x itself, or the one of its two neighbours with an odd last bit. `rest` is the
// exact number minus x.
float rounded_to_odd(double x, double rest) {
  const auto near = static_cast<float>(x);
  const double missing = (x - static_cast<double>(near)) + rest;
  const auto bits = std::bit_cast<std::uint32_t>(near);
  if (missing == 0 || !std::isfinite(near) || (bits & 1) != 0) return near;
  return std::nextafter(near, missing > 0 ? HUGE_VALF : -HUGE_VALF);
}

// Returns x * k + sum, rounded as a fused operation rounds. The product of x and k must be exact in
// double.
float multiply_and_add(float x, float k, float sum) {
  const double product = static_cast<double>(x) * static_cast<double>(k);
  const auto other = static_cast<double>(sum);
  const double total = product + other;
  if (!std::isfinite(total)) return static_cast<float>(total);
  const double part = total - product;
  const double rest = (product - (total - part)) + (other - part);
  return rounded_to_odd(total, rest);
}

struct Half {
  std::uint16_t bits;
  static float value(std::uint16_t bits) { return half_to_float(bits); }
  static std::uint16_t rounded(float x) { return float_to_half(x); }
};
struct Bfloat {
  std::uint16_t bits;
  static float value(std::uint16_t bits) { return bfloat16_to_float(bits); }
  static std::uint16_t rounded(float x) { return float_to_bfloat16(x); }
};

template <class T>
struct Arithmetic {
  static T scaled(T x, double k) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::uint64_t>(x) *
                            static_cast<std::uint64_t>(static_cast<T>(k)));
    } else {
      return x * static_cast<T>(k);
    }
  }
  static T sum(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(x) + static_cast<Unsigned>(y));
    } else {
      return x + y;
    }
  }
  static T scaled_sum(T x, double k, T y) {
    if constexpr (std::is_integral_v<T>) {
      return sum(scaled(x, k), y);
    } else {
      return std::fma(x, static_cast<T>(k), y);
    }
  }
};

template <class Narrow>
struct NarrowArithmetic {
  static Narrow scaled(Narrow x, double k) {
    return {Narrow::rounded(Narrow::value(x.bits) * static_cast<float>(k))};
  }
  static Narrow sum(Narrow x, Narrow y) {
    return {Narrow::rounded(Narrow::value(x.bits) + Narrow::value(y.bits))};
  }
  static Narrow scaled_sum(Narrow x, double k, Narrow y) {
    return {Narrow::rounded(
        multiply_and_add(Narrow::value(x.bits), static_cast<float>(k), Narrow::value(y.bits)))};
  }
};
template <>
struct Arithmetic<Half> : NarrowArithmetic<Half> {};
template <>
struct Arithmetic<Bfloat> : NarrowArithmetic<Bfloat> {};

// Calls visit(an element) with the C++ type for elements of `type`.
template <class Visitor>
void with_type(NcclDataType type, Visitor&& visit) {
  switch (type) {
    case NcclDataType::kInt8:
      return visit(std::int8_t{});
    case NcclDataType::kUint8:
      return visit(std::uint8_t{});
    case NcclDataType::kInt32:
      return visit(std::int32_t{});
    case NcclDataType::kUint32:
      return visit(std::uint32_t{});
    case NcclDataType::kInt64:
      return visit(std::int64_t{});
    case NcclDataType::kUint64:
      return visit(std::uint64_t{});
    case NcclDataType::kFloat16:
      return visit(Half{});
    case NcclDataType::kFloat32:
      return visit(float{});
    case NcclDataType::kFloat64:
      return visit(double{});
    case NcclDataType::kBfloat16:
      return visit(Bfloat{});
  }
}

template <class T>
T at(const std::byte* data, std::size_t offset) {
  T element;
  std::memcpy(&element, data + offset, sizeof(T));
  return element;
}

}  // namespace

std::size_t size_of(NcclDataType type) {
  std::size_t bytes = 0;
  with_type(type, [&](auto element) { bytes = sizeof element; });
  return bytes;
}

double read_scalar(NcclDataType type, const std::byte* data) {
  double value = 0;
  with_type(type, [&](auto element) {
    using T = decltype(element);
    const T scalar = at<T>(data, 0);
    if constexpr (requires { scalar.bits; }) {
      value = static_cast<double>(T::value(scalar.bits));
    } else {
      value = static_cast<double>(scalar);
    }
  });
  return value;
}

void begin_sum(NcclDataType type, const NcclReduction& reduction, std::byte* out,
               const std::byte* x, std::size_t bytes) {
  if (!reduction.is_scaled) {
    if (out != x && bytes != 0) std::memcpy(out, x, bytes);
    return;
  }
  with_type(type, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
      const T result = Arithmetic<T>::scaled(at<T>(x, i), reduction.factor);
      std::memcpy(out + i, &result, sizeof(T));
    }
  });
}

void add_to_sum(NcclDataType type, const NcclReduction& reduction, std::byte* out,
                const std::byte* x, const std::byte* sum, std::size_t bytes) {
  with_type(type, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
      const T local = at<T>(x, i);
      const T so_far = at<T>(sum, i);
      const T result = reduction.is_scaled
                           ? Arithmetic<T>::scaled_sum(local, reduction.factor, so_far)
                           : Arithmetic<T>::sum(local, so_far);
      std::memcpy(out + i, &result, sizeof(T));
    }
  });
}

namespace {

// One iteration of the ring: it moves `bytes` bytes from `in` to `out`, with a chunk of `chunk`
// bytes per rank; the last chunks may be short or empty.
struct Loop {
  const std::byte* in;
  std::byte* out;
  std::size_t bytes;
  std::size_t chunk;
  std::size_t size;

  std::size_t begin(std::size_t c) const { return std::min(c % size * chunk, bytes); }
  std::size_t length(std::size_t c) const { return std::min(chunk, bytes - begin(c)); }
};

bool reduce_loop(Lane& lane, NcclDataType type, const NcclReduction& reduction, const Loop& loop,
                 std::vector<std::byte>& sum) {
  const std::size_t n = loop.size;
  const auto rank = static_cast<std::size_t>(lane.rank());
  // Adds this rank's chunk `c` to what was received, into `sum`.
  const auto take = [&](std::size_t c) {
    const std::span<std::byte> part(sum.data(), loop.length(c));
    if (!lane.receive(lane.previous(), part)) return false;
    add_to_sum(type, reduction, part.data(), loop.in + loop.begin(c), part.data(), part.size());
    return true;
  };
  const auto pass_on = [&](std::size_t c) {
    return lane.send(lane.next(), std::span<const std::byte>(sum.data(), loop.length(c)));
  };
  const std::size_t first = rank + n - 1;
  begin_sum(type, reduction, sum.data(), loop.in + loop.begin(first), loop.length(first));
  if (!pass_on(first)) return false;
  for (std::size_t step = 1; step < n; ++step) {
    const std::size_t c = rank + n - 1 - step;
    if (!take(c)) return false;
    if (step + 1 == n && loop.length(c) != 0)
      std::memcpy(loop.out + loop.begin(c), sum.data(), loop.length(c));
    if (!pass_on(c)) return false;
  }
  for (std::size_t step = 1; step < n; ++step) {
    const std::size_t c = rank + n - step;
    std::byte* const to = loop.out + loop.begin(c);
    if (!lane.receive(lane.previous(), std::span(to, loop.length(c)))) return false;
    if (step + 1 == n) return true;
    if (!lane.send(lane.next(), std::span<const std::byte>(to, loop.length(c)))) return false;
  }
  return true;
}

}  // namespace

namespace {

// The bytes of a unit, by what NCCL computes in alignUp() of all_reduce.h (2.22), in
// computeCollAlignCount() of enqueue.cc (2.20), and in runRing() of all_reduce.h with the threads
// of getAlgoInfo() of enqueue.cc (2.18).
std::size_t unit_bytes(faults::RingUnits units, std::size_t payload_bytes) {
  constexpr std::size_t kWarp = 32;
  constexpr std::size_t kThreadThreshold = 64;  // bytes
  switch (units) {
    case faults::RingUnits::k16Bytes:
      return 16;
    case faults::RingUnits::k4096Bytes:
      return kWarp * 8 * 16;
    case faults::RingUnits::kThreads:
      break;
  }
  std::size_t threads = 16 * kWarp;
  while (payload_bytes < threads * kThreadThreshold && threads % (4 * kWarp) == 0) threads /= 2;
  return threads * sizeof(std::uint64_t);
}

}  // namespace

bool nccl_ring_all_reduce(Lane& lane, NcclDataType type, const NcclReduction& reduction,
                          std::span<const std::byte> in, std::byte* out, std::size_t chunk_bytes,
                          faults::RingUnits units) {
  const auto n = static_cast<std::size_t>(lane.size());
  if (n == 1) {
    begin_sum(type, reduction, out, in.data(), in.size());
    return true;
  }
  const std::size_t element = size_of(type);
  const std::size_t largest = std::max(element, chunk_bytes / element * element);
  std::vector<std::byte> sum;
  for (std::size_t base = 0; base < in.size(); base += n * largest) {
    const std::size_t left = in.size() - base;
    std::size_t chunk = largest;
    if (left < n * largest) {
      const std::size_t even = divided_up(left / element, n);
      const std::size_t whole = unit_bytes(units, in.size()) / element;
      chunk = divided_up(even, whole) * whole * element;
    }
    sum.resize(std::max(sum.size(), chunk));
    const Loop loop{in.data() + base, out + base, std::min(left, n * largest), chunk, n};
    if (!reduce_loop(lane, type, reduction, loop, sum)) return false;
  }
  return true;
}

bool nccl_ring_reduce_scatter(Lane& lane, NcclDataType type, const NcclReduction& reduction,
                              std::span<const std::byte> in, std::byte* out) {
  const auto n = static_cast<std::size_t>(lane.size());
  const auto rank = static_cast<std::size_t>(lane.rank());
  const std::size_t bytes = in.size() / n;
  std::vector<std::byte> sum(bytes);
  for (std::size_t step = 0; step < n; ++step) {
    const std::byte* const mine = in.data() + (rank + 2 * n - 1 - step) % n * bytes;
    if (step == 0) {
      begin_sum(type, reduction, sum.data(), mine, bytes);
    } else {
      if (!lane.receive(lane.previous(), sum)) return false;
      add_to_sum(type, reduction, sum.data(), mine, sum.data(), bytes);
    }
    if (step + 1 < n && !lane.send(lane.next(), sum)) return false;
  }
  if (bytes != 0) std::memcpy(out, sum.data(), bytes);
  return true;
}

bool nccl_ring_all_gather(Lane& lane, std::span<const std::byte> mine, std::byte* out) {
  const auto n = static_cast<std::size_t>(lane.size());
  const auto rank = static_cast<std::size_t>(lane.rank());
  const std::size_t bytes = mine.size();
  const auto part = [&](std::size_t of) { return std::span(out + of % n * bytes, bytes); };
  if (part(rank).data() != mine.data() && bytes != 0)
    std::memcpy(part(rank).data(), mine.data(), bytes);
  for (std::size_t step = 1; step < n; ++step) {
    if (!lane.send(lane.next(), part(rank + n + 1 - step))) return false;
    if (!lane.receive(lane.previous(), part(rank + n - step))) return false;
  }
  return true;
}

bool nccl_ring_broadcast(Lane& lane, int root, std::span<const std::byte> in, std::byte* out) {
  const std::span<std::byte> to(out, in.size());
  if (lane.rank() != root) {
    if (!lane.receive(lane.previous(), to)) return false;
  } else if (out != in.data() && !in.empty()) {
    std::memcpy(out, in.data(), in.size());
  }
  return lane.next() == root || lane.send(lane.next(), to);
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
