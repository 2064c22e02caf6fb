#include "reference/model/power_sgd.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "reference/arithmetic.h"

namespace lockstep::reference {
namespace {

constexpr DType kFloat = DType::kFloat32;

// Each sum of products is formed in double, ascending, and rounded once.
Matrix product(const Matrix& left, const Matrix& right) {
  assert(left.columns == right.rows);
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
  assert(p.values.size() == p.rows * p.columns);
  assert(p.columns <= p.rows);
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
  assert(q.values.size() == q.rows * q.columns);
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

// The gradients of one parameter on each rank, by position.
using OfRanks = std::vector<Matrix>;

OfRanks products(OfRanks left, const Matrix& right) {
  for (Matrix& each : left) each = product(each, right);
  return left;
}

// Each rank sums all of these matrices in one collective; the sums are returned one by one.
std::vector<Matrix> sum_together(const std::vector<OfRanks>& matrices, const SumOfRanks& sum) {
  std::vector<Floats> joined(matrices.front().size());
  for (const OfRanks& of_ranks : matrices) {
    assert(of_ranks.size() == joined.size());
    for (std::size_t r = 0; r < joined.size(); ++r)
      joined[r].insert(joined[r].end(), of_ranks[r].values.begin(), of_ranks[r].values.end());
  }
  const Floats total = sum(std::move(joined));
  auto from = total.begin();
  std::vector<Matrix> sums;
  for (const OfRanks& of_ranks : matrices) {
    Matrix& out = sums.emplace_back(of_ranks.front());
    const auto end = from + static_cast<std::ptrdiff_t>(out.values.size());
    out.values.assign(from, end);
    from = end;
  }
  assert(from == total.end());
  return sums;
}

// What is lost of a rank's gradient, to be added to the next one.
Floats error_of(Floats compensated, const Floats& mean) {
  for (std::size_t e = 0; e < mean.size(); ++e) {
    const double lost = nearest(kFloat, compensated[e] - mean[e]);
    compensated[e] = std::isfinite(lost) ? lost : 0.0;
  }
  return compensated;
}

// The part of the hook's work that one parameter of the bucket is.
struct Member {
  std::size_t position = 0;  // in the bucket
  PowerMemory& memory;
  std::vector<Floats> compensated;  // by rank: the gradient and what was lost before
  OfRanks scaled;                   // the same, scaled as G2 says
};

Member make_member(const PowerMatrix& shape, std::size_t position, std::uint32_t divisor,
                   const std::vector<Floats>& gradients, PowerMemory& memory) {
  assert(memory.errors.empty() || memory.errors.size() == gradients.size());
  Member m{position, memory, gradients, {}};
  for (std::size_t r = 0; r < gradients.size(); ++r) {
    Floats& values = m.compensated[r];
    if (!memory.errors.empty())
      add_values(kFloat, values.data(), memory.errors[r].data(), values.size());
    Matrix& scaled = m.scaled.emplace_back(Matrix{shape.rows, shape.columns, values});
    scale_values(kFloat, scaled.values.data(), values.data(), scale_factor(kFloat, divisor),
                 values.size());
  }
  return m;
}

}  // namespace

PowerMatrix power_matrix(const Parameter& parameter, std::uint32_t rank) {
  if (parameter.dtype != DType::kFloat32) return {};
  PowerMatrix matrix;
  const std::size_t elements = element_count(parameter);
  for (const std::uint32_t dim : dimensions_in_memory(parameter))
    if (matrix.rows == 0 && parameter.sizes[dim] > 1) matrix.rows = parameter.sizes[dim];
  if (matrix.rows == 0 || elements == 0) return {};
  matrix.columns = elements / matrix.rows;
  assert(matrix.rows * matrix.columns == elements);
  matrix.factors = std::min<std::size_t>({rank, matrix.rows, matrix.columns});
  const bool pays = matrix.factors * (matrix.rows + matrix.columns) < elements;
  return pays ? matrix : PowerMatrix{};
}

double power_start(std::uint32_t number, std::size_t element) {
  assert(number < kMaxParameters);
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

bool uses_power_sgd(const Setting& setting, const ExpectedBucket& bucket) {
  return setting.options().hook == Hook::kPowerSgd && !bucket.sparse &&
         power_sum_counts(setting, bucket).second > 0;
}

std::pair<std::size_t, std::size_t> power_sum_counts(const Setting& setting,
                                                     const ExpectedBucket& bucket) {
  std::pair<std::size_t, std::size_t> counts;
  for (const std::uint32_t p : bucket.parameters) {
    const auto [rows, columns, factors] =
        power_matrix(setting.parameter(p), setting.options().power_sgd_rank);
    counts.first += factors > 0 ? rows * factors : element_count(setting.parameter(p));
    counts.second += columns * factors;
  }
  return counts;
}

// The first sum is over what is not compressed, then over P = SQ of each matrix; the second one
// over Q = S^T P.
std::vector<Floats> run_power_sgd(const Setting& setting, const ExpectedBucket& bucket,
                                  std::uint32_t divisor,
                                  const std::vector<std::vector<Floats>>& gradients,
                                  const SumOfRanks& sum, PowerState& state) {
  assert(gradients.size() == bucket.parameters.size());
  assert(state.size() == setting.program.parameters.size());
  std::vector<Member> compressed;
  std::vector<Member> others;
  for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
    const std::uint32_t p = bucket.parameters[m];
    const PowerMatrix shape = power_matrix(setting.parameter(p), setting.options().power_sgd_rank);
    Member made = make_member(shape, m, divisor, gradients[m], state[p]);
    if (made.memory.q.values.empty())
      made.memory.q = {shape.columns, shape.factors, Floats(shape.columns * shape.factors)};
    made.memory.q = restarted(std::move(made.memory.q), number_of(setting.program, p));
    (shape.factors > 0 ? compressed : others).push_back(std::move(made));
  }
  assert(!compressed.empty());
  std::vector<Floats> means(bucket.parameters.size());
  std::vector<OfRanks> first;
  for (const Member& m : others) first.push_back(m.scaled);
  for (const Member& m : compressed) first.push_back(products(m.scaled, m.memory.q));
  std::vector<Matrix> sums = sum_together(first, sum);
  for (std::size_t i = 0; i < others.size(); ++i)
    means[others[i].position] = std::move(sums[i].values);
  sums.erase(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(others.size()));
  std::vector<OfRanks> second;
  for (std::size_t i = 0; i < compressed.size(); ++i) {
    sums[i] = orthonormal(std::move(sums[i]));
    for (Matrix& each : compressed[i].scaled) each = transposed(each);
    second.push_back(products(compressed[i].scaled, sums[i]));
  }
  const std::vector<Matrix> q = sum_together(second, sum);
  for (std::size_t i = 0; i < compressed.size(); ++i) {
    const Member& m = compressed[i];
    const Floats& mean = means[m.position] = product(sums[i], transposed(q[i])).values;
    m.memory.q = q[i];
    m.memory.errors.clear();
    for (const Floats& each : m.compensated) m.memory.errors.push_back(error_of(each, mean));
  }
  return means;
}

}  // namespace lockstep::reference
