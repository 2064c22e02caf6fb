#include "properties/explain/telling_values.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <set>

#include "reference/arithmetic.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using reference::OrderRun;

// SplitMix64: the same numbers on every machine.
std::uint64_t mixed(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15;
  state = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27U)) * 0x94d049bb133111eb;
  return state ^ (state >> 31U);
}

// A value of either sign with a random mantissa, within a factor of 32 of the others.
double drawn(DType dtype, std::uint64_t seed) {
  const std::uint64_t bits = mixed(seed);
  const double mantissa = 1 + static_cast<double>(bits >> 12U) / static_cast<double>(1ULL << 52U);
  const int exponent = static_cast<int>(bits & 7U) % 6 - 3;
  return reference::nearest(dtype, std::ldexp((bits & 8U) != 0 ? -mantissa : mantissa, exponent));
}

// Rounds to the stored bits of the mantissa. Subnormal results do not occur for telling values.
double rounded_by_hand(DType dtype, double x, bool towards_zero) {
  const int dropped = 52 - reference::format_of(dtype).mantissa_bits;
  if (dropped <= 0 || !std::isfinite(x)) return x;
  std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  if (!towards_zero) bits += std::uint64_t{1} << (dropped - 1);
  return std::bit_cast<double>(bits >> dropped << dropped);
}

double added(DType dtype, Rounding rounding, double a, double b) {
  switch (rounding) {
    case Rounding::kEachAddition: return reference::nearest(dtype, a + b);
    case Rounding::kFloatOnce:
    case Rounding::kFloatOnceTowardsZero: return reference::nearest(DType::kFloat32, a + b);
    case Rounding::kEachHalfAway: return rounded_by_hand(dtype, a + b, false);
    case Rounding::kEachTowardsZero: return rounded_by_hand(dtype, a + b, true);
    case Rounding::kDoubleOnce: break;
  }
  return a + b;
}

// Puts rank `rank` beside each part of the order, in all 2 rank - 1 ways: beside a rank or a sum.
// An order is a list of pairs that are added; in the result the new rank goes into the pair's first
// summand before any later addition of that.
void grow(const OrderRun& order, std::uint32_t rank, std::vector<OrderRun>& out) {
  const std::uint32_t additions = rank - 1;
  // Beside the sum that addition i makes (behind it), or beside a rank (before everything).
  const auto inserted = [&](std::uint32_t at, std::uint8_t into) {
    OrderRun next = order;
    for (std::uint32_t i = additions; i > at; --i) next.additions[i] = order.additions[i - 1];
    next.additions[at] = {into, static_cast<std::uint8_t>(rank)};
    return next;
  };
  for (std::uint32_t other = 0; other < rank; ++other)
    out.push_back(inserted(0, static_cast<std::uint8_t>(other)));
  for (std::uint32_t i = 0; i < additions; ++i)
    out.push_back(inserted(i + 1, order.additions[i].into));
}

// How many different sums the orders make.
std::size_t count_different(DType dtype, const std::vector<OrderRun>& orders,
                            const std::vector<double>& tuple) {
  std::set<std::uint64_t> sums;
  for (const OrderRun& order : orders)
    sums.insert(sum_of(order, dtype, Rounding::kEachAddition, tuple));
  return sums.size();
}

}  // namespace

const char* text_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::kEachAddition: return "rounded at each addition";
    case Rounding::kFloatOnce: return "added in float32, rounded once";
    case Rounding::kDoubleOnce: return "added in double, rounded once";
    case Rounding::kEachHalfAway: return "rounded at each addition, halves away from zero";
    case Rounding::kEachTowardsZero: return "cut off at each addition";
    case Rounding::kFloatOnceTowardsZero: return "added in float32, cut off once";
  }
  return "";
}

Rounding rounding_of(reference::RowTypes types) {
  return types == reference::RowTypes::kBFloat16Wide ? Rounding::kFloatOnce
                                                     : Rounding::kEachAddition;
}

std::vector<Rounding> roundings_of(DType dtype) {
  using enum Rounding;
  if (dtype == DType::kFloat64) return {kEachAddition};
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16)
    return {kEachAddition, kFloatOnce,       kDoubleOnce,
            kEachHalfAway, kEachTowardsZero, kFloatOnceTowardsZero};
  return {kEachAddition, kDoubleOnce};
}

double wide_sum_of(const OrderRun& run, DType dtype, Rounding rounding,
                   const std::vector<double>& contributions) {
  assert(contributions.size() <= reference::kMaxWorld);
  std::array<double, reference::kMaxWorld> x{};
  std::copy(contributions.begin(), contributions.end(), x.begin());
  for (std::size_t i = 0; i + 1 < contributions.size(); ++i)
    x[run.additions[i].into] =
        added(dtype, rounding, x[run.additions[i].into], x[run.additions[i].from]);
  return x[run.result];
}

std::uint64_t sum_of(const OrderRun& run, DType dtype, Rounding rounding,
                     const std::vector<double>& contributions) {
  const double sum = wide_sum_of(run, dtype, rounding, contributions);
  return reference::round_from_double(
      dtype, rounding == Rounding::kFloatOnceTowardsZero ? rounded_by_hand(dtype, sum, true) : sum);
}

std::vector<OrderRun> all_orders(std::uint32_t ranks) {
  assert(ranks >= 1 && ranks <= kMostEliminatedRanks);
  std::vector<OrderRun> orders(1);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    std::vector<OrderRun> next;
    for (const OrderRun& order : orders) grow(order, rank, next);
    orders = std::move(next);
  }
  return orders;
}

std::uint32_t tuple_of(std::uint64_t element) {
  return static_cast<std::uint32_t>(mixed(element) % kTellingTuples);
}

std::vector<std::vector<double>> telling_tuples(DType dtype, std::uint32_t ranks) {
  constexpr std::uint64_t kDraws = 400;  // of which the best is taken
  const std::vector<OrderRun> orders = all_orders(std::min(ranks, std::uint32_t{4}));
  std::vector<std::vector<double>> tuples;
  for (std::uint64_t number = 0; number < kTellingTuples; ++number) {
    std::vector<double> best;
    std::size_t most = 0;
    for (std::uint64_t draw = 0; draw < kDraws && most < orders.size(); ++draw) {
      std::vector<double> tuple;
      for (std::uint64_t rank = 0; rank < ranks; ++rank)
        tuple.push_back(drawn(dtype, ((number * kDraws + draw) << 6U) + rank));
      std::vector<double> first = tuple;
      first.resize(std::min<std::size_t>(4, ranks));
      const std::size_t different = count_different(dtype, orders, first);
      if (different <= most) continue;
      most = different;
      best = tuple;
    }
    tuples.push_back(best);
  }
  return tuples;
}

}  // namespace lockstep::properties
