#include "reference/model/power_sgd.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/arithmetic.h"
#include "reference/power_sgd.h"

namespace lockstep::reference {
namespace {

constexpr DType kFloat = DType::kFloat32;

// Each sum of products is formed in double, ascending, and rounded once.
Matrix product(const Matrix& left, const Matrix& right) {
  Matrix out{left.rows, right.columns, {}};
  for (std::size_t i = 0; i < left.rows; ++i)
    for (std::size_t j = 0; j < right.columns; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < left.columns; ++k)
        sum += left.values[i * left.columns + k] * right.values[k * right.columns + j];
      out.values.push_back(nearest(kFloat, sum));
    }
  return out;
}

Matrix transposed(const Matrix& matrix) {
  Matrix out{matrix.columns, matrix.rows, {}};
  for (std::size_t j = 0; j < matrix.columns; ++j)
    for (std::size_t i = 0; i < matrix.rows; ++i)
      out.values.push_back(matrix.values[i * matrix.columns + j]);
  return out;
}

Matrix orthonormal(Matrix p) {
  const auto at = [&](std::size_t row, std::size_t column) -> double& {
    return p.values[row * p.columns + column];
  };
  const auto dot = [&](std::size_t c, std::size_t d) {
    double sum = 0;
    for (std::size_t i = 0; i < p.rows; ++i) sum += at(i, c) * at(i, d);
    return sum;
  };
  for (std::size_t c = 0; c < p.columns; ++c) {
    const double before = dot(c, c);
    for (std::size_t d = 0; d < c; ++d) {
      const double along = dot(d, c);
      for (std::size_t i = 0; i < p.rows; ++i)
        at(i, c) = nearest(kFloat, at(i, c) - along * at(i, d));
    }
    const double after = dot(c, c);
    const bool is_lost = std::isfinite(before) && after <= std::ldexp(before, -32);
    for (std::size_t i = 0; i < p.rows; ++i)
      at(i, c) = is_lost ? 0.0 : nearest(kFloat, at(i, c) / std::sqrt(after));
  }
  return p;
}

// A column that is zeros, or holds what is not finite, starts anew. `number` is that of the
// parameter among the distinct ones, frozen ones included.
Matrix restarted(Matrix q, std::uint32_t number) {
  for (std::size_t c = 0; c < q.columns; ++c) {
    bool is_zero = true;
    bool is_finite = true;
    for (std::size_t at = c; at < q.values.size(); at += q.columns) {
      is_zero = is_zero && q.values[at] == 0;
      is_finite = is_finite && std::isfinite(q.values[at]);
    }
    for (std::size_t at = c; at < q.values.size(); at += q.columns)
      if (is_zero || !is_finite) q.values[at] = power_start(number, at);
  }
  return q;
}

std::uint32_t number_of(const Program& program, std::uint32_t parameter) {
  const auto is_distinct = [](const Parameter& each) { return is_original(each) && !each.ignored; };
  return static_cast<std::uint32_t>(std::count_if(
      program.parameters.begin(), program.parameters.begin() + parameter, is_distinct));
}

// What is lost of a rank's gradient, to be added to the next one.
Matrix error_of(Matrix compensated, const Floats& mean) {
  for (std::size_t e = 0; e < mean.size(); ++e) {
    const double lost = nearest(kFloat, compensated.values[e] - mean[e]);
    compensated.values[e] = std::isfinite(lost) ? lost : 0.0;
  }
  return compensated;
}

// The part of the hook's work that one parameter of the bucket is.
struct Member {
  PowerMatrix shape;
  PowerMemory& memory;
  std::vector<Matrix> compensated;  // by rank: the gradient and what was lost before
  std::vector<Matrix> scaled;       // the same, scaled as G2 says
  Matrix p;

  bool is_compressed() const { return shape.factors > 0; }
};

Member make_member(const Setting& setting, std::uint32_t parameter, std::uint32_t divisor,
                   const std::vector<Floats>& gradients, PowerMemory& memory) {
  const double factor = scale_factor(kFloat, divisor);
  Member m{power_matrix(setting.parameter(parameter)), memory, {}, {}, {}};
  if (memory.q.values.empty())
    memory.q = {m.shape.columns, m.shape.factors, Floats(m.shape.columns * m.shape.factors)};
  memory.q = restarted(std::move(memory.q), number_of(setting.program, parameter));
  for (std::size_t r = 0; r < gradients.size(); ++r) {
    Matrix matrix{m.shape.rows, m.shape.columns, gradients[r]};
    Floats& values = matrix.values;
    if (!memory.errors.empty())
      add_values(kFloat, values.data(), memory.errors[r].values.data(), values.size());
    m.compensated.push_back(matrix);
    scale_values(kFloat, values.data(), values.data(), factor, values.size());
    m.scaled.push_back(std::move(matrix));
  }
  return m;
}

void append(Floats& to, const Floats& values) { to.insert(to.end(), values.begin(), values.end()); }

Floats take(const Floats& from, std::size_t& begin, std::size_t count) {
  const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
  begin += count;
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

bool uses_power_sgd(const Setting& setting, const ExpectedBucket& bucket) {
  return setting.options().hook == Hook::kPowerSgd && !bucket.sparse &&
         second_sum_count(setting, bucket) > 0;
}

std::size_t first_sum_count(const Setting& setting, const ExpectedBucket& bucket) {
  std::size_t count = 0;
  for (const std::uint32_t p : bucket.parameters) {
    const auto [rows, columns, factors] = power_matrix(setting.parameter(p));
    count += factors > 0 ? rows * factors : element_count(setting.parameter(p));
  }
  return count;
}

std::size_t second_sum_count(const Setting& setting, const ExpectedBucket& bucket) {
  std::size_t count = 0;
  for (const std::uint32_t p : bucket.parameters) {
    const auto [rows, columns, factors] = power_matrix(setting.parameter(p));
    count += columns * factors;
  }
  return count;
}

// The first sum is over what is not compressed, then over P = SQ of each matrix; the second one
// over Q = S^T P.
PowerResult run_power_sgd(const Setting& setting, const ExpectedBucket& bucket,
                          std::uint32_t divisor, const std::vector<std::vector<Floats>>& gradients,
                          const SumOfRanks& sum, PowerState state) {
  std::vector<Member> members;
  for (std::size_t m = 0; m < bucket.parameters.size(); ++m)
    members.push_back(make_member(setting, bucket.parameters[m], divisor, gradients[m],
                                  state[bucket.parameters[m]]));
  std::vector<Floats> first(gradients[0].size());
  for (std::size_t r = 0; r < first.size(); ++r) {
    for (const Member& m : members)
      if (!m.is_compressed()) append(first[r], m.scaled[r].values);
    for (const Member& m : members)
      if (m.is_compressed()) append(first[r], product(m.scaled[r], m.memory.q).values);
  }
  const Floats first_sum = sum(std::move(first));
  PowerResult result{{}, std::vector<Floats>(members.size())};
  std::size_t at = 0;
  for (std::size_t m = 0; m < members.size(); ++m)
    if (!members[m].is_compressed())
      result.means[m] = take(first_sum, at, members[m].scaled[0].values.size());
  for (Member& m : members)
    if (m.is_compressed())
      m.p = orthonormal(
          {m.shape.rows, m.shape.factors, take(first_sum, at, m.shape.rows * m.shape.factors)});
  std::vector<Floats> second(gradients[0].size());
  for (std::size_t r = 0; r < second.size(); ++r)
    for (const Member& m : members)
      if (m.is_compressed()) append(second[r], product(transposed(m.scaled[r]), m.p).values);
  const Floats second_sum = sum(std::move(second));
  at = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    Member& m = members[i];
    if (!m.is_compressed()) continue;
    m.memory.q.values = take(second_sum, at, m.memory.q.values.size());
    result.means[i] = product(m.p, transposed(m.memory.q)).values;
    m.memory.errors.clear();
    for (const Matrix& compensated : m.compensated)
      m.memory.errors.push_back(error_of(compensated, result.means[i]));
  }
  result.state = std::move(state);
  return result;
}

}  // namespace lockstep::reference
