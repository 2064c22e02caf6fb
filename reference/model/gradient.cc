#include "reference/model/gradient.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "reference/arithmetic.h"
#include "reference/values.h"

namespace lockstep::reference {
namespace {

// The user has put another tensor there: that is no use (P10).
void set_another(Gradient& gradient) {
  gradient.is_used = false;
  gradient.in_bucket = false;
}

// What one use of parameter `p` sends.
Tensor tensor_of(const Setting& setting, std::uint32_t p, std::uint32_t rank,
                 std::uint32_t step_key, const UseGradient& term) {
  assert(setting.roles.owners[p] == p);
  const Parameter& parameter = setting.parameter(p);
  if (parameter.sparse)
    return entries_of(setting.program, parameter, rank,
                      {step_key, term.use->key, term.use->entries}, term.scalar);
  const std::vector<std::uint32_t>& positions = setting.roles.positions[p];
  assert(positions.size() == value_count(parameter));
  Tensor tensor;
  tensor.values.resize(positions.size());
  const UseValues values(setting.program, parameter, rank, step_key, term.use->key);
  values.read(tensor.values.data(), positions.data(), positions.size());
  multiply_values(parameter.dtype, tensor.values.data(), term.scalar, positions.size());
  return tensor;
}

// Entries of a sparse parameter are put one after the other instead (S1).
void add_to(Tensor& sum, const Parameter& parameter, const Tensor& term) {
  if (parameter.sparse) return append(sum, term);
  assert(term.values.size() == sum.values.size());
  add_values(parameter.dtype, sum.values.data(), term.values.data(), sum.values.size());
}

// Whether sums of such values are the same in every order: integers far below the last place. The
// 16-bit types run out of bits after a few additions.
bool adds_exactly(DType dtype, const Tensor& tensor) {
  if (size_of(dtype) < 4) return false;
  return std::ranges::all_of(tensor.values, [](double value) {
    return std::abs(value) < 1 << 20 && value == std::trunc(value);
  });
}

// The backward calls that sent these sums run side by side: two sums commute, but a third one, or
// what was there before, does not; nor do two lists of entries (E).
bool depends_on_order(const Parameter& parameter, const Gradient& before,
                      const std::vector<Tensor>& sums) {
  assert(!before.tensor || parameter.sparse || before.tensor->rows.empty());
  if (sums.size() < 2) return false;
  if (!parameter.sparse && !before.tensor && sums.size() == 2) return false;
  const auto is_exact = [&](const Tensor& each) { return adds_exactly(parameter.dtype, each); };
  if (before.tensor && !is_exact(*before.tensor)) return true;
  return !std::ranges::all_of(sums, is_exact);
}

Tensor sum_of(const Setting& setting, std::uint32_t rank, std::uint32_t step_key,
              const AutogradHook& hook) {
  const std::uint32_t p = hook.parameter;
  Tensor sum = tensor_of(setting, p, rank, step_key, hook.terms[0]);
  for (std::size_t i = 1; i < hook.terms.size(); ++i)
    add_to(sum, setting.parameter(p), tensor_of(setting, p, rank, step_key, hook.terms[i]));
  return sum;
}

// G11, for what one hook brings.
Gradient with_sum(const Parameter& parameter, Gradient gradient, Tensor sum) {
  assert(parameter.sparse || sum.rows.empty());
  if (gradient.tensor) {
    Tensor total = *gradient.tensor;
    add_to(total, parameter, sum);
    sum = std::move(total);
  }
  gradient.tensor = std::make_shared<const Tensor>(std::move(sum));
  gradient.is_used = gradient.is_touched = true;
  gradient.is_reduced = false;
  return gradient;
}

}  // namespace

Gradients zero_grad(const Setting& setting, ZeroGrad kind, Gradients gradients) {
  assert(gradients.size() == setting.roles.owners.size());
  if (kind == ZeroGrad::kSwap) {
    for (const auto& [a, b] : swapped_gradients(setting.program)) {
      assert(setting.roles.positions[a].size() == setting.roles.positions[b].size());
      std::swap(gradients[a], gradients[b]);
      for (Gradient* each : {&gradients[a], &gradients[b]}) {
        each->is_misplaced = each->is_misplaced || each->in_bucket;
        set_another(*each);
      }
    }
    return gradients;
  }
  for (const std::uint32_t p : setting.roles.trained) {
    Gradient& gradient = gradients[p];
    if (kind == ZeroGrad::kUndefine) gradient = {};
    if (kind == ZeroGrad::kReplace && gradient.tensor && !setting.parameter(p).sparse) {
      set_another(gradient);
      gradient.is_misplaced = gradient.requires_grad = false;
    }
    if (kind != ZeroGrad::kFill) continue;
    gradient.is_used = gradient.requires_grad = gradient.is_order_dependent = false;
    if (!gradient.tensor) continue;
    Tensor zeros;  // a sparse gradient has no entry then
    zeros.values.resize(setting.roles.positions[p].size());
    gradient.tensor = std::make_shared<const Tensor>(std::move(zeros));
  }
  return gradients;
}

Gradients accumulate(const Setting& setting, std::uint32_t rank, std::uint32_t step_key,
                     const std::vector<AutogradHook>& hooks,
                     const std::vector<std::uint32_t>& ready_twice, Gradients gradients) {
  assert(gradients.size() == setting.roles.owners.size());
  for (const std::uint32_t p : setting.roles.trained) {
    if (contains(ready_twice, p)) continue;
    Gradient& gradient = gradients[p];
    // A hook runs once in each backward call that reaches the parameter: the outermost, and nested
    // ones.
    std::vector<Tensor> sums;
    for (const AutogradHook& hook : hooks) {
      if (hook.parameter != p || !hook.is_defined()) continue;
      sums.push_back(sum_of(setting, rank, step_key, hook));
      if (hook.requires_grad()) gradient.requires_grad = true;
    }
    if (depends_on_order(setting.parameter(p), gradient, sums)) gradient.is_order_dependent = true;
    for (Tensor& sum : sums)
      gradient = with_sum(setting.parameter(p), std::move(gradient), std::move(sum));
  }
  return gradients;
}

}  // namespace lockstep::reference
