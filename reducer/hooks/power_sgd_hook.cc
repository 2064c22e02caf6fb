#include "reducer/hooks/power_sgd_hook.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "reducer/base/check.h"
#include "reducer/base/float_environment.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using Floats = std::vector<float>;

// A gradient as a matrix, in the order of its memory. It is not compressed if it has no factors.
struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t factors = 0;
  bool operator==(const Matrix&) const = default;
};

Matrix matrix_of(const Tensor& gradient, int rank) {
  const Shape& shape = gradient.shape();
  Matrix matrix;
  std::int64_t outermost = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.dims); ++d) {
    if (shape.sizes[d] <= 1 || shape.strides[d] <= outermost) continue;
    outermost = shape.strides[d];
    matrix.rows = static_cast<std::size_t>(shape.sizes[d]);
  }
  const auto elements = static_cast<std::size_t>(gradient.elements());
  if (gradient.dtype() != DType::kFloat32 || matrix.rows == 0 || elements == 0) return {};
  matrix.columns = elements / matrix.rows;
  LOCKSTEP_CHECK_EQ(matrix.columns * matrix.rows, elements);
  matrix.factors = std::min({static_cast<std::size_t>(rank), matrix.rows, matrix.columns});
  if (matrix.factors * (matrix.rows + matrix.columns) >= elements) return {};
  return matrix;
}

// A number in [-1, 1) that is a multiple of 2^-23.
float start_value(std::uint64_t seed, std::size_t parameter, std::size_t element) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + (parameter + 1) * 0xbf58476d1ce4e5b9u +
                    (element + 1) * 0x94d049bb133111ebu;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return (static_cast<float>(x >> 40) - 8388608.0f) / 8388608.0f;
}

double dot(const float* a, const float* b, std::size_t count, std::size_t a_step,
           std::size_t b_step) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += static_cast<double>(a[i * a_step]) * static_cast<double>(b[i * b_step]);
  return sum;
}

// Gram-Schmidt, column by column. Where a column lies in the space of the columns before it, what
// remains is rounding error without a direction of its own; normalized, it would count twice.
void orthonormalize(float* p, const Matrix& matrix) {
  LOCKSTEP_CHECK_LE(matrix.factors, matrix.rows);
  const DefaultFloats floats_as_declared;
  const std::size_t factors = matrix.factors;
  for (std::size_t c = 0; c < factors; ++c) {
    const double before = dot(p + c, p + c, matrix.rows, factors, factors);
    for (std::size_t d = 0; d < c; ++d) {
      const double along = dot(p + d, p + c, matrix.rows, factors, factors);
      for (std::size_t i = 0; i < matrix.rows; ++i) {
        float& element = p[i * factors + c];
        const double taken = along * static_cast<double>(p[i * factors + d]);
        element = static_cast<float>(static_cast<double>(element) - taken);
      }
    }
    const double square = dot(p + c, p + c, matrix.rows, factors, factors);
    const bool is_lost = std::isfinite(before) && square <= before * 0x1p-32;
    const double length = std::sqrt(square);
    for (std::size_t i = 0; i < matrix.rows; ++i) {
      float& element = p[i * factors + c];
      element = is_lost ? 0.0f : static_cast<float>(static_cast<double>(element) / length);
    }
  }
}

// The state of one parameter.
struct State {
  Matrix matrix;
  Floats error;   // The error of the last pass, which is added to the next gradient.
  Floats sent;    // The gradient plus the error of this pass.
  Floats scaled;  // The same, scaled (G2).
  Floats q;       // A matrix of columns by factors.
};

float* floats(const Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); }

class PowerSgdHook final : public CommunicationHook {
 public:
  explicit PowerSgdHook(const PowerSgdOptions& options) : options_(options) {
    LOCKSTEP_CHECK_GE(options.rank, 1);
  }

  std::string name() const override {
    return "power_sgd(rank " + std::to_string(options_.rank) + ", seed " +
           std::to_string(options_.seed) + ")";
  }
  bool works_on(const Device& device) const override { return device.is_host(); }
  void reset() noexcept override { states_.clear(); }

  Status start(HookBucket& bucket) override;
  Result<Tensor> finish(HookBucket& bucket) override;

 private:
  struct Wire {  // The buffers of one bucket.
    Tensor first;
    Tensor second;
  };
  Status prepare(HookBucket& bucket);
  State& state_of(std::size_t parameter, const Matrix& matrix);
  void renew(State& state, std::size_t parameter) const;
  static void project(const HookBucket& bucket, const Tensor& gradient, State& state, float* p);
  static void project_back(const State& state, const float* p, float* q);
  static void deliver(const Tensor& gradient, State& state, const float* p);
  Wire& wire_of(const HookBucket& bucket) {
    const auto index = static_cast<std::size_t>(bucket.index());
    if (index >= wires_.size()) wires_.resize(index + 1);
    return wires_[index];
  }

  const PowerSgdOptions options_;
  std::vector<State> states_;  // One entry for each parameter.
  std::vector<Wire> wires_;    // One entry for each bucket.
};

State& PowerSgdHook::state_of(std::size_t parameter, const Matrix& matrix) {
  LOCKSTEP_CHECK(matrix.factors > 0);  // What is not compressed has no state.
  if (parameter >= states_.size()) states_.resize(parameter + 1);
  State& state = states_[parameter];
  if (state.matrix != matrix) {
    const std::size_t elements = matrix.rows * matrix.columns;
    state.error.assign(elements, 0.0f);
    state.sent.resize(elements);
    state.scaled.resize(elements);
    state.q.assign(matrix.columns * matrix.factors, 0.0f);
    state.matrix = matrix;  // This comes last, so that a state that is incomplete is made again.
  }
  return state;
}

// Restarts each column that is zero or not finite, and so cannot improve; in the first pass, all
// columns.
void PowerSgdHook::renew(State& state, std::size_t parameter) const {
  const DefaultFloats floats_as_declared;
  const std::size_t factors = state.matrix.factors;
  LOCKSTEP_CHECK_EQ(state.q.size(), state.matrix.columns * factors);
  for (std::size_t c = 0; c < factors; ++c) {
    bool is_zero = true;
    bool is_finite = true;
    for (std::size_t at = c; at < state.q.size(); at += factors) {
      is_zero = is_zero && state.q[at] == 0;
      is_finite = is_finite && std::isfinite(state.q[at]);
    }
    if (is_finite && !is_zero) continue;
    for (std::size_t at = c; at < state.q.size(); at += factors)
      state.q[at] = start_value(options_.seed, parameter, at);
  }
}

// Makes buffers of the right size for a bucket.
Status PowerSgdHook::prepare(HookBucket& bucket) {
  std::size_t first = 0;
  std::size_t second = 0;
  for (const Tensor& view : bucket.views()) {
    const Matrix matrix = matrix_of(view, options_.rank);
    const bool is_compressed = matrix.factors > 0;
    first +=
        is_compressed ? matrix.rows * matrix.factors : static_cast<std::size_t>(view.elements());
    second += matrix.columns * matrix.factors;
  }
  // What is sent in both sums is no more than the bucket.
  LOCKSTEP_CHECK_LE(first + second, static_cast<std::size_t>(bucket.flat().elements()));
  Wire& wire = wire_of(bucket);
  if (second == 0) {
    wire = {};
    return {};
  }
  for (const auto& [tensor, elements] : {std::pair(&wire.first, first), {&wire.second, second}}) {
    const auto count = static_cast<std::int64_t>(elements);
    if (tensor->defined() && tensor->elements() == count) continue;
    Result<Tensor> made =
        Tensor::empty(bucket.flat().device(), DType::kFloat32, Shape::row_major({count}));
    if (!made) return made.error();
    *tensor = std::move(*made);
  }
  return {};
}

// P = scaled * Q
void PowerSgdHook::project(const HookBucket& bucket, const Tensor& gradient, State& state,
                           float* p) {
  const DefaultFloats floats_as_declared;
  const Matrix& matrix = state.matrix;
  LOCKSTEP_CHECK_EQ(state.sent.size(), matrix.rows * matrix.columns);
  LOCKSTEP_CHECK_EQ(state.q.size(), matrix.columns * matrix.factors);
  const auto k = static_cast<float>(bucket.factor());
  const float* given = floats(gradient);
  for (std::size_t e = 0; e < state.sent.size(); ++e) {
    state.sent[e] = given[e] + state.error[e];
    state.scaled[e] = state.sent[e] * k;
  }
  for (std::size_t i = 0; i < matrix.rows; ++i)
    for (std::size_t c = 0; c < matrix.factors; ++c)
      p[i * matrix.factors + c] =
          static_cast<float>(dot(state.scaled.data() + i * matrix.columns, state.q.data() + c,
                                 matrix.columns, 1, matrix.factors));
}

// Q = scaled^T * P
void PowerSgdHook::project_back(const State& state, const float* p, float* q) {
  const DefaultFloats floats_as_declared;
  const Matrix& matrix = state.matrix;
  LOCKSTEP_CHECK_EQ(state.scaled.size(), matrix.rows * matrix.columns);
  for (std::size_t j = 0; j < matrix.columns; ++j)
    for (std::size_t c = 0; c < matrix.factors; ++c)
      q[j * matrix.factors + c] = static_cast<float>(
          dot(state.scaled.data() + j, p + c, matrix.rows, matrix.columns, matrix.factors));
}

// Writes the approximation of the ranks' sum to the gradient, and what it lost to the error. An
// error that is not finite is dropped, because it would stay so for ever.
void PowerSgdHook::deliver(const Tensor& gradient, State& state, const float* p) {
  const DefaultFloats floats_as_declared;
  const Matrix& matrix = state.matrix;
  LOCKSTEP_CHECK_EQ(static_cast<std::size_t>(gradient.elements()), state.sent.size());
  LOCKSTEP_CHECK_EQ(state.error.size(), state.sent.size());
  float* result = floats(gradient);
  for (std::size_t i = 0; i < matrix.rows; ++i) {
    for (std::size_t j = 0; j < matrix.columns; ++j) {
      const std::size_t e = i * matrix.columns + j;
      result[e] = static_cast<float>(
          dot(p + i * matrix.factors, state.q.data() + j * matrix.factors, matrix.factors, 1, 1));
      const float lost = state.sent[e] - result[e];
      state.error[e] = std::isfinite(lost) ? lost : 0.0f;
    }
  }
}

// Sends everything that is not compressed first, if there is any, and then the matrices P.
Status PowerSgdHook::start(HookBucket& bucket) {
  LOCKSTEP_RETURN_IF_ERROR(prepare(bucket));
  const Tensor& first = wire_of(bucket).first;
  Device& device = bucket.flat().device();
  if (!first.defined()) {
    const Transfer in_place{&bucket.flat(), bucket.flat().data(), &bucket.flat().shape()};
    device.pack_bucket(device.current_stream(), {&in_place, 1}, bucket.factor());
    return bucket.all_reduce(bucket.flat());
  }
  float* at = floats(first);
  for (const bool is_compressed : {false, true}) {
    for (std::size_t v = 0; v < bucket.views().size(); ++v) {
      const Tensor& view = bucket.views()[v];
      const Matrix matrix = matrix_of(view, options_.rank);
      if ((matrix.factors > 0) != is_compressed) continue;
      if (is_compressed) {
        State& state = state_of(bucket.parameters()[v], matrix);
        renew(state, bucket.parameters()[v]);
        project(bucket, view, state, at);
        at += matrix.rows * matrix.factors;
      } else {
        const Transfer apart{&view, reinterpret_cast<std::byte*>(at), &view.shape()};
        device.pack_bucket(device.current_stream(), {&apart, 1}, bucket.factor());
        at += view.elements();
      }
    }
  }
  LOCKSTEP_CHECK(at == floats(first) + first.elements());
  return bucket.all_reduce(first);
}

Result<Tensor> PowerSgdHook::finish(HookBucket& bucket) {
  const Wire& wire = wire_of(bucket);
  if (!wire.first.defined()) return bucket.flat();
  float* at = floats(wire.first);
  for (const Tensor& view : bucket.views()) {
    if (matrix_of(view, options_.rank).factors > 0) continue;
    const auto elements = static_cast<std::size_t>(view.elements());
    if (elements > 0) std::memcpy(view.data(), at, elements * sizeof(float));
    at += elements;
  }
  float* const sums = at;
  float* q = floats(wire.second);
  for (std::size_t v = 0; v < bucket.views().size(); ++v) {
    const Matrix matrix = matrix_of(bucket.views()[v], options_.rank);
    if (matrix.factors == 0) continue;
    LOCKSTEP_CHECK_LT(bucket.parameters()[v], states_.size());
    const State& state = states_[bucket.parameters()[v]];
    LOCKSTEP_CHECK(state.matrix == matrix);
    orthonormalize(at, matrix);
    project_back(state, at, q);
    q += matrix.columns * matrix.factors;
    at += matrix.rows * matrix.factors;
  }
  LOCKSTEP_CHECK(at == floats(wire.first) + wire.first.elements());
  LOCKSTEP_CHECK(q == floats(wire.second) + wire.second.elements());
  Status status = bucket.all_reduce(wire.second);
  if (status.ok()) status = bucket.wait();
  if (!status.ok()) return failed(std::move(status));
  at = sums;
  q = floats(wire.second);
  for (std::size_t v = 0; v < bucket.views().size(); ++v) {
    const Matrix matrix = matrix_of(bucket.views()[v], options_.rank);
    if (matrix.factors == 0) continue;
    State& state = states_[bucket.parameters()[v]];
    std::copy_n(q, state.q.size(), state.q.begin());
    deliver(bucket.views()[v], state, at);
    q += state.q.size();
    at += matrix.rows * matrix.factors;
  }
  return bucket.flat();
}

}  // namespace

std::shared_ptr<CommunicationHook> make_power_sgd_hook(const PowerSgdOptions& options) {
  return std::make_shared<PowerSgdHook>(options);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
