#include "reference/power_sgd.h"

#include <algorithm>
#include <cmath>

#include "reference/arithmetic.h"

namespace lockstep::reference {
namespace {

constexpr DType kFloat = DType::kFloat32;

using Floats = PowerSgd::Floats;

// left (rows by inner) times right (inner by columns), each sum in ascending order and double.
Floats product(const Floats& left, const Floats& right, std::size_t rows, std::size_t inner,
               std::size_t columns) {
  Floats out;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < inner; ++k) sum += left[i * inner + k] * right[k * columns + j];
      out.push_back(nearest(kFloat, sum));
    }
  }
  return out;
}

Floats transposed(const Floats& matrix, std::size_t rows, std::size_t columns) {
  Floats out;
  for (std::size_t j = 0; j < columns; ++j)
    for (std::size_t i = 0; i < rows; ++i) out.push_back(matrix[i * columns + j]);
  return out;
}

void orthonormalize(Floats& p, const PowerMatrix& matrix) {
  const auto at = [&](std::size_t row, std::size_t column) -> double& {
    return p[row * matrix.factors + column];
  };
  const auto squares = [&](std::size_t column) {
    double sum = 0;
    for (std::size_t i = 0; i < matrix.rows; ++i) sum += at(i, column) * at(i, column);
    return sum;
  };
  for (std::size_t c = 0; c < matrix.factors; ++c) {
    const double before = squares(c);
    for (std::size_t d = 0; d < c; ++d) {
      double along = 0;
      for (std::size_t i = 0; i < matrix.rows; ++i) along += at(i, d) * at(i, c);
      for (std::size_t i = 0; i < matrix.rows; ++i)
        at(i, c) = nearest(kFloat, at(i, c) - along * at(i, d));
    }
    const double after = squares(c);
    const bool is_lost = std::isfinite(before) && after <= std::ldexp(before, -32);
    for (std::size_t i = 0; i < matrix.rows; ++i)
      at(i, c) = is_lost ? 0.0 : nearest(kFloat, at(i, c) / std::sqrt(after));
  }
}

Floats slice(const Floats& values, std::size_t& begin, std::size_t count) {
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
  begin += count;
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

void append(Floats& to, const Floats& values) { to.insert(to.end(), values.begin(), values.end()); }

}  // namespace

PowerMatrix power_matrix(const Parameter& parameter) {
  if (parameter.dtype != kFloat) return {};
  std::vector<std::uint32_t> outermost_first = parameter.sizes;
  if (parameter.column_major) std::reverse(outermost_first.begin(), outermost_first.end());
  PowerMatrix matrix;
  const std::size_t elements = element_count(parameter);
  for (const std::uint32_t size : outermost_first)
    if (matrix.rows == 0 && size > 1) matrix.rows = size;
  if (matrix.rows == 0 || elements == 0) return {};
  matrix.columns = elements / matrix.rows;
  matrix.factors = std::min<std::size_t>({kPowerSgdRank, matrix.rows, matrix.columns});
  const bool pays = matrix.factors * (matrix.rows + matrix.columns) < elements;
  return pays ? matrix : PowerMatrix{};
}

double power_start(std::uint32_t number, std::size_t element) {
  std::uint64_t hash = kPowerSgdSeed * 0x9e3779b97f4a7c15ULL;
  hash += (std::uint64_t{number} + 1) * 0xbf58476d1ce4e5b9ULL;
  hash += (std::uint64_t{element} + 1) * 0x94d049bb133111ebULL;
  hash ^= hash >> 30;
  hash *= 0xbf58476d1ce4e5b9ULL;
  hash ^= hash >> 27;
  hash *= 0x94d049bb133111ebULL;
  hash ^= hash >> 31;
  const double top = static_cast<double>(hash >> 40);  // 24 bits
  return std::ldexp(top, -23) - 1;
}

PowerSgd::PowerSgd(const Program& program) {
  if (program.options.hook != Hook::kPowerSgd) return;
  states_.resize(program.parameters.size());
  std::uint32_t distinct = 0;
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    if (!is_original(program.parameters[i]) || program.parameters[i].ignored) continue;
    states_[i].matrix = power_matrix(program.parameters[i]);
    states_[i].number = distinct++;
    states_[i].elements = element_count(program.parameters[i]);
    states_[i].errors.resize(program.world);
  }
  forget();
}

void PowerSgd::forget() {
  for (State& state : states_) {
    const PowerMatrix& matrix = state.matrix;
    for (Floats& error : state.errors) error.assign(matrix.rows * matrix.columns, 0.0);
    state.q.assign(matrix.columns * matrix.factors, 0.0);
  }
}

std::size_t PowerSgd::second_count(const ExpectedBucket& bucket) const {
  std::size_t count = 0;
  for (const std::uint32_t parameter : bucket.parameters)
    count += states_[parameter].matrix.columns * states_[parameter].matrix.factors;
  return count;
}

std::size_t PowerSgd::first_count(const ExpectedBucket& bucket) const {
  if (second_count(bucket) == 0) return 0;
  std::size_t count = 0;
  for (const std::uint32_t parameter : bucket.parameters) {
    const auto& [rows, columns, factors] = states_[parameter].matrix;
    count += factors > 0 ? rows * factors : states_[parameter].elements;
  }
  return count;
}

void PowerSgd::renew(State& state) const {
  const std::size_t factors = state.matrix.factors;
  for (std::size_t c = 0; c < factors; ++c) {
    bool is_good = false;
    for (std::size_t at = c; at < state.q.size(); at += factors)
      is_good = is_good || state.q[at] != 0;
    for (std::size_t at = c; at < state.q.size(); at += factors)
      is_good = is_good && std::isfinite(state.q[at]);
    for (std::size_t at = c; at < state.q.size() && !is_good; at += factors)
      state.q[at] = power_start(state.number, at);
  }
}

std::vector<Floats> PowerSgd::reduce(const ExpectedBucket& bucket,
                                     const std::vector<std::uint32_t>& ranks, std::uint32_t divisor,
                                     const std::vector<std::vector<Floats>>& given,
                                     const Sum& sum) {
  const std::size_t members = bucket.parameters.size();
  const double factor = scale_factor(kFloat, divisor);
  for (const std::uint32_t parameter : bucket.parameters) renew(states_[parameter]);

  // What a rank would have in its gradient with what was lost before, unscaled and scaled.
  std::vector<std::vector<Floats>> sent = given;
  std::vector<std::vector<Floats>> scaled_ones = given;
  std::vector<Floats> parts(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Floats matrices;
    for (std::size_t m = 0; m < members; ++m) {
      const State& state = states_[bucket.parameters[m]];
      const auto& [rows, columns, factors] = state.matrix;
      if (factors > 0)
        add_values(kFloat, sent[r][m].data(), state.errors[ranks[r]].data(), state.elements);
      scale_values(kFloat, scaled_ones[r][m].data(), sent[r][m].data(), factor, state.elements);
      if (factors > 0)
        append(matrices, product(scaled_ones[r][m], state.q, rows, columns, factors));
      else
        append(parts[r], scaled_ones[r][m]);
    }
    append(parts[r], matrices);
  }

  std::vector<Floats> results(members);
  std::vector<Floats> ps(members);
  const Floats first = sum(std::move(parts));
  std::size_t at = 0;
  for (std::size_t m = 0; m < members; ++m) {
    const State& state = states_[bucket.parameters[m]];
    if (state.matrix.factors == 0) results[m] = slice(first, at, state.elements);
  }
  parts.assign(ranks.size(), {});
  for (std::size_t m = 0; m < members; ++m) {
    const auto& [rows, columns, factors] = states_[bucket.parameters[m]].matrix;
    if (factors == 0) continue;
    ps[m] = slice(first, at, rows * factors);
    orthonormalize(ps[m], states_[bucket.parameters[m]].matrix);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      append(parts[r],
             product(transposed(scaled_ones[r][m], rows, columns), ps[m], columns, rows, factors));
  }
  const Floats second = sum(std::move(parts));
  at = 0;
  for (std::size_t m = 0; m < members; ++m) {
    State& state = states_[bucket.parameters[m]];
    const auto& [rows, columns, factors] = state.matrix;
    if (factors == 0) continue;
    state.q = slice(second, at, columns * factors);
    results[m] = product(ps[m], transposed(state.q, columns, factors), rows, factors, columns);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (std::size_t e = 0; e < state.elements; ++e) {
        const double lost = nearest(kFloat, sent[r][m][e] - results[m][e]);
        state.errors[ranks[r]][e] = std::isfinite(lost) ? lost : 0.0;
      }
  }
  return results;
}

}  // namespace lockstep::reference
