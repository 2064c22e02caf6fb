#include "properties/subject/torch/model/averaging.h"

#include "reference/arithmetic.h"
#include "reference/buckets.h"

namespace lockstep::properties::torch_model {

using namespace reference;  // NOLINT: the vocabulary of programs

double divided(DType dtype, double value, std::uint32_t n) {
  if (dtype == DType::kFloat64) return value / static_cast<double>(n);
  const float quotient = static_cast<float>(value) / static_cast<float>(n);
  return nearest(dtype, static_cast<double>(quotient));
}

void divide(DType dtype, std::uint32_t n, const double* values, double* out, std::size_t count) {
  for (std::size_t e = 0; e < count; ++e) out[e] = divided(dtype, values[e], n);
}

void multiply(DType dtype, std::uint32_t n, const Policies& policies, const double* values,
              double* out, std::size_t count) {
  const double exact = scale_factor(dtype, n);
  scale_values(dtype, out, values, policies.rounds_factor ? nearest(dtype, exact) : exact, count);
}

bool is_lazy(const TorchOptions& options, const Policies& policies) {
  return options.lazy_bucket_allocation && policies.divides_lazy_views;
}

bool is_batched(const TorchOptions& options, const Policies& policies) {
  return options.batched_grad_copy && policies.divides_batched;
}

bool divides(const TorchOptions& options, const Policies& policies, const Gradient& own) {
  const bool is_there = is_lazy(options, policies) ? own.in_new_bucket : own.in_bucket;
  return (is_there && policies.divides_views) || is_batched(options, policies);
}

Hook averaging_hook(const Replicated& options) {
  if (options.hook == Hook::kElsewhere) return Hook::kAllReduce;
  const bool averages = options.hook == Hook::kAllReduce || options.hook == Hook::kFloat16;
  return averages ? options.hook : Hook::kNone;
}

void run_hook(Hook hook, DType dtype, std::uint32_t n, const Policies& policies, double* values,
              std::size_t count) {
  const DType wire = wire_dtype(hook, dtype);
  const bool divides =
      hook == Hook::kFloat16 ? policies.compresses_first : policies.divides_in_hooks;
  for (std::size_t e = 0; e < count; ++e) {
    // Doubles are rounded by way of float.
    const double narrow =
        wire == dtype ? values[e] : nearest(wire, nearest(DType::kFloat32, values[e]));
    values[e] = divides ? divided(wire, narrow, n)
                        : nearest(wire, scaled(dtype, values[e], scale_factor(dtype, n)));
  }
}

}  // namespace lockstep::properties::torch_model
