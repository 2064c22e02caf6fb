// explain_by_weights(): the result is a weighted sum of what the ranks contribute. The weights are
// solved from all values by least squares, made simple fractions if they are, and tested on each
// value.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "properties/explain/average.h"
#include "properties/explain/explain_more.h"
#include "reference/arithmetic.h"

namespace lockstep::properties {
namespace {

using Found = std::vector<BitsExplanation>;
using Weights = std::vector<double>;

constexpr double kRoundings = 4;  // that a value may have had, beside one for each rank
constexpr std::uint64_t kMostDenominator = 4096;
constexpr std::uint32_t kMostSolvedRanks = 16;

// Solves the symmetric system a x = b by elimination; nothing if it is singular.
std::optional<Weights> solve(std::vector<Weights> a, Weights b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t row = i + 1; row < n; ++row)
      if (std::fabs(a[row][i]) > std::fabs(a[pivot][i])) pivot = row;
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    if (!(std::fabs(a[i][i]) > 1e-9)) return std::nullopt;
    for (std::size_t row = i + 1; row < n; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (std::size_t column = i; column < n; ++column) a[row][column] -= factor * a[i][column];
      b[row] -= factor * b[i];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t column = i + 1; column < n; ++column) b[i] -= a[i][column] * b[column];
    b[i] /= a[i][i];
  }
  return b;
}

// The numbers are scaled so that the largest is 1, or a factor of 65536 would look singular.
std::optional<Weights> least_squares(const Average& average, const std::vector<double>& result) {
  const std::uint32_t world = average.world();
  double largest = 0;
  double largest_result = 0;
  for (const auto& rank : average.ranks)
    for (const double each : rank) largest = std::max(largest, std::fabs(each));
  for (const double each : result) largest_result = std::max(largest_result, std::fabs(each));
  if (!(largest > 0) || !(largest_result > 0) || !std::isfinite(largest + largest_result))
    return std::nullopt;
  std::vector<Weights> a(world, Weights(world));
  Weights b(world);
  for (std::size_t e = 0; e < average.count(); ++e) {
    for (std::uint32_t i = 0; i < world; ++i) {
      const double x = average.ranks[i][e] / largest;
      b[i] += x * (result[e] / largest_result);
      for (std::uint32_t j = 0; j < world; ++j) a[i][j] += x * (average.ranks[j][e] / largest);
    }
  }
  auto weights = solve(std::move(a), std::move(b));
  if (weights)
    for (double& each : *weights) each *= largest_result / largest;
  return weights;
}

bool is_near(double a, double b, double epsilon) {
  return std::fabs(a - b) <= epsilon * std::max(std::fabs(a), std::fabs(b));
}

// Every value is the weighted sum, but for the roundings of the dtype.
bool fits(const Average& average, const std::vector<double>& result, const Weights& weights) {
  for (std::size_t e = 0; e < result.size(); ++e) {
    double sum = 0;
    double magnitude = 0;
    for (std::size_t rank = 0; rank < weights.size(); ++rank) {
      sum += weights[rank] * average.ranks[rank][e];
      magnitude += std::fabs(weights[rank] * average.ranks[rank][e]);
    }
    const double most =
        (kRoundings + static_cast<double>(weights.size())) * average.epsilon() * magnitude +
        std::ldexp(1, -140);
    if (!(std::fabs(sum - result[e]) <= most)) return false;
  }
  return true;
}

// "3/7", "1024", "1/65536", or the number itself.
std::string text_of_number(double number, double tolerance) {
  for (std::uint64_t denominator = 1; denominator <= kMostDenominator; ++denominator) {
    const double numerator = std::round(number * static_cast<double>(denominator));
    if (numerator == 0 || !is_near(number, numerator / static_cast<double>(denominator), tolerance))
      continue;
    return denominator == 1 ? fmt::format("{}", numerator)
                            : fmt::format("{}/{}", numerator, denominator);
  }
  const double inverse = std::round(1 / number);
  if (number != 0 && is_near(1 / number, inverse, tolerance))
    return fmt::format("1/{:.0f}", inverse);
  return fmt::format("{:.7g}", number);
}

// The same factor for every rank: the average times it.
Found by_factor(const Average& average, double weight, double tolerance) {
  const double factor = weight * average.divisor;
  if (is_near(factor, 1, tolerance)) return {};  // explain_by_rounding() says so, last of all
  const auto count = static_cast<double>(average.buffer_count);
  std::string mistake;
  if (is_near(weight * count, 1, tolerance) && average.buffer_count != average.divisor)
    mistake = fmt::format("it is divided by the {} elements and not by {}", average.buffer_count,
                          average.divisor);
  else if (factor < 1)
    mistake = fmt::format("it is {} of that", text_of_number(factor, tolerance));
  else
    mistake = fmt::format("it is {} times that", text_of_number(factor, tolerance));
  return {{"some order", mistake, average.count()}};
}

// Of ranks with equal weights and ranks with none.
Found by_some_ranks(const Average& average, const Weights& weights, double tolerance) {
  std::vector<std::string> present;
  double weight = 0;
  for (std::size_t rank = 0; rank < weights.size(); ++rank) {
    if (std::fabs(weights[rank]) <= tolerance) continue;
    if (weight != 0 && !is_near(weight, weights[rank], tolerance)) return {};
    weight = weights[rank];
    present.push_back(fmt::format("{}", rank));
  }
  const bool is_mean = is_near(weight * static_cast<double>(present.size()), 1, tolerance);
  return {{"",
           fmt::format("the {} of the ranks {} alone{}", is_mean ? "average" : "sum",
                       fmt::join(present, ", "),
                       is_mean ? "" : fmt::format(", times {}", text_of_number(weight, tolerance))),
           average.count()}};
}

std::vector<double> values_of(const Average& average) {
  std::vector<double> values;
  for (const std::uint64_t each : average.result)
    values.push_back(reference::to_double(average.dtype, each));
  return values;
}

}  // namespace

Found explain_by_rounding(const AverageInputs& inputs, const std::vector<std::uint64_t>& bits) {
  const Average average(inputs, bits);
  const Weights weights(average.world(), 1.0 / average.divisor);
  if (average.count() < 2 * average.world() + 4 || !fits(average, values_of(average), weights))
    return {};
  return {{"some order", "no order that is known gives the last bits", average.count()}};
}

Found explain_by_weights(const AverageInputs& inputs, const std::vector<std::uint64_t>& bits) {
  const Average average(inputs, bits);
  // Values beside those that the weights are solved from have to test them.
  if (average.world() > kMostSolvedRanks || average.count() < 2 * average.world() + 4) return {};
  const std::vector<double> result = values_of(average);
  const auto solved = least_squares(average, result);
  if (!solved || !fits(average, result, *solved)) return {};
  const Weights& weights = *solved;
  // Solved from n values, a weight is good to about epsilon.
  const double tolerance = 8 * average.epsilon();
  const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
  if (is_near(*least, *most, tolerance)) return by_factor(average, *most, tolerance);
  const double largest = std::max(std::fabs(*least), std::fabs(*most));
  const bool some_are_missing = std::any_of(weights.begin(), weights.end(), [&](double each) {
    return std::fabs(each) <= tolerance * largest;
  });
  if (some_are_missing)
    if (Found found = by_some_ranks(average, weights, tolerance); !found.empty()) return found;
  std::vector<std::string> texts;
  for (const double each : weights)
    texts.push_back(std::fabs(each) <= tolerance * largest ? "0" : text_of_number(each, tolerance));
  return {{"",
           fmt::format("a sum with weights: {} of the ranks 0 to {}", fmt::join(texts, ", "),
                       average.world() - 1),
           average.count()}};
}

}  // namespace lockstep::properties
