#include "reference/values.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

#include "reference/arithmetic.h"

namespace lockstep::reference {
namespace {

// A bijection that leaves no trace of the order of its arguments (the finalizer of SplitMix64).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

std::uint64_t pair_of(std::uint32_t high, std::uint32_t low) {
  return std::uint64_t{high} << 32 | low;
}

// One round of mixing is enough, since `shared` is mixed already.
std::uint64_t own_hash(std::uint64_t shared, std::uint32_t rank) {
  const std::uint64_t x = (shared + (std::uint64_t{rank} + 1) * kGolden) * 0xbf58476d1ce4e5b9;
  return x ^ x >> 32;
}

}  // namespace

UseValues::UseValues(const Program& program, const Parameter& parameter, std::uint32_t rank,
                     std::uint32_t step_key, std::uint32_t node_key)
    : values_(program.values),
      dtype_(parameter.dtype),
      rank_(rank),
      unit_(static_cast<double>(program.world)),
      top_exponent_(format_of(parameter.dtype).max_exponent - static_cast<int>(program.headroom)),
      dropped_bits_(52 - format_of(parameter.dtype).mantissa_bits),
      seed_(mix(mix(pair_of(program.key, parameter.key) + kGolden) ^ pair_of(step_key, node_key))) {
  assert(rank < kMaxWorld);
  assert(program.headroom <= kMaxHeadroom);
  const BadNumber& bad = program.bad_number;
  if (bad.kind == BadNumber::Kind::kNone || bad.rank != rank || bad.step >= program.steps.size() ||
      program.steps[bad.step].key != step_key || bad.parameter >= program.parameters.size() ||
      &program.parameters[bad.parameter] != &parameter)
    return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  bad_ = bad.kind == BadNumber::Kind::kInfinity        ? kInfinity
         : bad.kind == BadNumber::Kind::kMinusInfinity ? -kInfinity
                                                       : std::numeric_limits<double>::quiet_NaN();
  bad_at_ = bad.element;
}

// `shared` is the same on all ranks. A number below 16 keeps the ranks apart: each rank adds
// another multiple of an odd number to it, modulo 16. So no two of 16 ranks get the same number,
// and no two of the first 8 get the same lowest three bits.
inline double UseValues::exact(std::uint64_t shared) const {
  const std::uint64_t distinct = (shared >> 32) + rank_ * (shared >> 60 | 1);
  const double magnitude = static_cast<double>((distinct & 7) + 1) * unit_;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(magnitude) | (distinct & 8) << 60);
}

inline double UseValues::general(std::uint64_t shared) const {
  const std::uint64_t distinct = ((shared >> 32) + rank_ * (shared >> 60 | 1)) & 7;
  const std::uint64_t own = own_hash(shared, rank_);
  const std::uint64_t exponent = 1023 - 4 + (own >> 52 & 7);
  // The upper bits of the mantissa from `own`, the lowest three that the dtype has from `distinct`.
  const int kept_from = dropped_bits_ + 3;
  const std::uint64_t upper = (own & ((std::uint64_t{1} << 52) - 1)) >> kept_from << kept_from;
  const std::uint64_t mantissa = upper | distinct << dropped_bits_;
  return std::bit_cast<double>((own >> 55 & 1) << 63 | exponent << 52 | mantissa);
}

// In 20 of 64 elements something special; which, is chosen by bits 58 and up.
inline double UseValues::special(std::uint64_t shared) const {
  const std::uint64_t own = own_hash(shared, rank_);
  const std::uint64_t what = own >> 58;
  if (what >= 20) return general(shared);
  const Format format = format_of(dtype_);
  const std::uint64_t top = (std::uint64_t{1} << format.exponent_bits) - 1;
  const std::uint64_t sign = (own >> 55 & 1) << (8 * format.bytes - 1);
  const std::uint64_t mantissa = own & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  const std::uint64_t infinity = top << format.mantissa_bits;
  if (what < 1) return to_double(dtype_, sign | infinity | mantissa | 1);  // NaN
  if (what < 2) return to_double(dtype_, sign | infinity);
  if (what < 4) return to_double(dtype_, sign);  // zeros
  std::uint64_t exponent = 0;                    // below 8: subnormals
  // The smallest normal values: scaled they are subnormal.
  if (what >= 8) exponent = 1 + (own >> 56 & 1);
  // Near the largest: a few of them overflow when they are added unscaled.
  if (what >= 12) exponent = top - 1 - (own >> 56 & 3);
  return to_double(dtype_, sign | exponent << format.mantissa_bits | mantissa);
}

// This takes sign and mantissa from general(), so they are the rank's own, and replaces the
// exponent by the highest one or the one below it.
inline double UseValues::largest(std::uint64_t shared) const {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(general(shared));
  const std::uint64_t exponent_bits = std::uint64_t{0x7ff} << 52;
  const auto exponent = static_cast<std::uint64_t>(1023 + top_exponent_) - (bits >> 52 & 1);
  return std::bit_cast<double>((bits & ~exponent_bits) | exponent << 52);
}

template <class Place>
inline void UseValues::read_to(double* into, std::size_t count, Place place) const {
  const auto shared = [&](std::size_t i) { return mix(seed_ + i * kGolden); };
  switch (values_) {
    case Values::kExact:
      for (std::size_t i = 0; i < count; ++i) into[place(i)] = exact(shared(i));
      break;
    case Values::kGeneral:
      for (std::size_t i = 0; i < count; ++i) into[place(i)] = general(shared(i));
      break;
    case Values::kSpecial:
      for (std::size_t i = 0; i < count; ++i) into[place(i)] = special(shared(i));
      break;
    case Values::kLargest:
      for (std::size_t i = 0; i < count; ++i) into[place(i)] = largest(shared(i));
      break;
  }
  if (bad_ == 0) return;
  const std::size_t first = bad_at_ == 0 ? 0 : bad_at_ - 1;
  const std::size_t end = bad_at_ == 0 ? count : std::min(count, first + 1);
  for (std::size_t i = first; i < end; ++i) into[place(i)] = bad_;
}

double UseValues::at(std::uint64_t element) const {
  if (is_bad(element)) return bad_;
  double value = 0;
  UseValues from = *this;
  from.bad_ = 0;
  from.seed_ += element * kGolden;
  from.read(&value, 1);
  return value;
}

std::uint64_t UseValues::number(std::uint64_t index) const {
  return mix(mix(~seed_ + rank_ * kGolden) + index * kGolden) >> 8;
}

void UseValues::read(double* into, const std::uint32_t* position, std::size_t count) const {
  read_to(into, count, [position](std::size_t i) { return position[i]; });
}

void UseValues::read(double* into, std::size_t count) const {
  read_to(into, count, [](std::size_t i) { return i; });
}

}  // namespace lockstep::reference
