#include "properties/subject/torch/model/policies_at_work.h"

#include <algorithm>
#include <cstddef>

#include "properties/subject/torch/model/hook_model.h"
#include "reference/expectation.h"

namespace lockstep::properties::torch_model {

using namespace reference;  // NOLINT: the vocabulary of programs

namespace {

struct StepOf {
  const Expected& all;
  std::size_t number;

  const ExpectedStep& step() const { return all.steps[number]; }
};

bool are_same(const Program& program, const StepOf& one, const StepOf& other, std::size_t rank) {
  const ExpectedRankStep& a = one.step().ranks[rank];
  const ExpectedRankStep& b = other.step().ranks[rank];
  if (a.present != b.present || a.outcome != b.outcome || a.error != b.error) return false;
  if (a.outcome == Outcome::kOwnError) return a.error_call == b.error_call;
  for (std::size_t p = 0; p < program.parameters.size(); ++p) {
    const ExpectedGradient& x = a.gradients[p];
    const ExpectedGradient& y = b.gradients[p];
    if (x.known != y.known || x.defined != y.defined) return false;
    if (!x.known || !x.defined) continue;
    const auto words = static_cast<std::ptrdiff_t>(gradient_words(program.parameters[p]));
    const auto first = one.all.bits.begin() + static_cast<std::ptrdiff_t>(x.offset);
    const auto second = other.all.bits.begin() + static_cast<std::ptrdiff_t>(y.offset);
    if (!std::equal(first, first + words, second)) return false;
  }
  return true;
}

bool are_same(const ExpectedCollective& one, const ExpectedCollective& other) {
  return one.op == other.op && one.bucket == other.bucket && one.count == other.count &&
         one.dtype == other.dtype;
}

bool are_same(const Program& program, const StepOf& one, const StepOf& other) {
  if (!other.all.knowledge_of(other.number).is_modelled ||
      one.step().any_error != other.step().any_error)
    return false;
  for (std::size_t rank = 0; rank < program.world; ++rank)
    if (!are_same(program, one, other, rank)) return false;
  const auto& a = one.step().collectives;
  const auto& b = other.step().collectives;
  const auto is_same = [](const auto& x, const auto& y) { return are_same(x, y); };
  return one.step().any_error || std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same);
}

}  // namespace

std::vector<std::string_view> policies_at_work(const Program& program, const TorchOptions& options,
                                               const Policies& policies) {
  std::vector<std::string_view> found;
  const Expected with = run(program, options, policies);
  const std::size_t steps = modelled_steps(with);
  for (const Policy& policy : kPolicies) {
    if (!(policies.*policy.member)) continue;
    Policies others = policies;
    others.*policy.member = false;
    const Expected without = run(program, options, others);
    for (std::size_t s = 0; s < steps; ++s) {
      if (are_same(program, {with, s}, {without, s})) continue;
      found.push_back(policy.name);
      break;
    }
  }
  return found;
}

}  // namespace lockstep::properties::torch_model
