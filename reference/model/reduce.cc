#include "reference/model/reduce.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "reference/arithmetic.h"
#include "reference/model/replicas.h"
#include "reference/order.h"

namespace lockstep::reference {
namespace {

// The declared order of additions in a sum of `count` numbers of the type `wire`.
std::vector<OrderRun> order_of(const Setting& setting, std::size_t ranks, std::uint64_t count,
                               DType wire) {
  const auto n = static_cast<std::uint32_t>(ranks);
  const std::uint64_t bytes = size_of(wire) / parts_of(wire);
  if (setting.options().order == Order::kRankOrder) return rank_order(n, count);
  if (setting.options().order == Order::kBcube) return gloo_bcube(n, count);
  if (setting.options().transport == Transport::kNccl)
    return nccl_ring(n, count, bytes, kNcclChunkBytes, setting.contract.nccl_ring);
  return gloo_ring(n, count, bytes, setting.contract.max_segment_bytes);
}

// Returns the sum of the contributions of all ranks in the declared order (G3). They begin at
// `offset` of a buffer of `count` numbers, on which that order depends. Padding between members is
// zeros, and stays zeros: of each run only what lies in the parameter is added.
Elements sum_by(const std::vector<OrderRun>& order, DType wire, std::uint64_t offset,
                std::vector<Elements> contributions) {
  const std::size_t values = contributions.front().size();
  std::size_t begin = 0;
  for (const OrderRun& run : order) {
    if (run.end <= offset + begin) continue;
    if (begin == values) break;
    const std::size_t end = std::min<std::size_t>(values, run.end - offset);
    for (std::size_t i = 0; i + 1 < contributions.size(); ++i)
      add_values(wire, contributions[run.additions[i].into].data() + begin,
                 contributions[run.additions[i].from].data() + begin, end - begin);
    if (run.result != 0)
      std::copy_n(contributions[run.result].data() + begin, end - begin,
                  contributions[0].data() + begin);
    begin = end;
  }
  assert(begin == values);
  return std::move(contributions[0]);
}

Elements sum_in_order(const Setting& setting, DType wire, std::uint64_t count, std::uint64_t offset,
                      std::vector<Elements> contributions) {
  assert(offset + contributions.front().size() <= count);
  const std::vector<OrderRun> order = order_of(setting, contributions.size(), count, wire);
  return sum_by(order, wire, offset, std::move(contributions));
}

// Whether some replica of some rank has it in a part of the parameter.
bool any_part(const Setting& setting, const Contributors& contributors, std::uint32_t parameter,
              bool Gradient::*has) {
  for (const Gradients* gradients : contributors)
    for (const std::uint32_t part : setting.roles.replicas[parameter])
      if (gradients && (*gradients)[part].*has) return true;
  return false;
}

// What each rank contributes, not scaled: zeros where it has no gradient or shadows the pass (G7).
std::vector<Elements> dense_contributions(const Setting& setting, const Contributors& contributors,
                                          std::uint32_t parameter) {
  assert(!setting.parameter(parameter).sparse);
  std::vector<Elements> contributions;
  contributions.reserve(contributors.size());
  for (const Gradients* gradients : contributors) {
    std::optional<Elements> sum;
    if (gradients) sum = sum_replicas(setting, parameter, *gradients);
    if (!sum) sum.emplace(setting.roles.positions[parameter].size());
    contributions.push_back(std::move(*sum));
  }
  return contributions;
}

bool is_before(Scaling scaling) {
  return scaling == Scaling::kMultiplyBefore || scaling == Scaling::kDivideBefore;
}

// The values scaled once. A quotient of two numbers of a dtype that is rounded to double and then
// to the dtype is the one that is rounded once: double has more than twice the bits and two (for
// float64 the second rounding does nothing).
Elements scaled(Scaling scaling, DType dtype, std::uint32_t divisor, Elements values) {
  if (scaling == Scaling::kMultiplyBefore || scaling == Scaling::kMultiplyAfter)
    scale_values(dtype, values.data(), values.data(), scale_factor(dtype, divisor), values.size());
  if (scaling == Scaling::kDivideBefore || scaling == Scaling::kDivideAfter)
    for (double& value : values) value = nearest(dtype, value / divisor);
  return values;
}

// Returns what one rank sends: scaled, if that comes before the sum (G2), and rounded (S4).
Elements sent(Scaling scaling, DType dtype, DType wire, std::uint32_t divisor, Elements values) {
  if (is_before(scaling)) values = scaled(scaling, dtype, divisor, std::move(values));
  if (wire != dtype)
    for (double& value : values) value = nearest(wire, value);
  return values;
}

// The sum of a gradient for which somebody else's reducer has a collective of its own. Where nobody
// knows the order, it is that of the ranks, and `knows_order` is false: the bits are not judged.
Elements sum_as_declared(const Setting& setting, DType wire, std::vector<Elements> contributions,
                         bool& knows_order) {
  const auto ranks = static_cast<std::uint32_t>(contributions.size());
  const std::uint64_t count = contributions.front().size();
  std::vector<OrderRun> order = setting.contract.sums.order(ranks, count, wire);
  knows_order = !order.empty() || count == 0;
  if (!knows_order) order = rank_order(ranks, count);
  return sum_by(order, wire, 0, std::move(contributions));
}

Tensor reduce_dense(const Setting& setting, const ExpectedBucket& bucket, std::size_t member,
                    std::uint32_t divisor, const Contributors& contributors, bool& knows_order) {
  assert(member < bucket.parameters.size());
  const DType wire = wire_dtype(setting.options().hook, bucket.dtype);
  std::vector<Elements> values =
      dense_contributions(setting, contributors, bucket.parameters[member]);
  const HookResult result = setting.options().hook_result;
  if (result == HookResult::kZeros) return {{}, Elements(values.front().size())};
  const Scaling scaling =
      result == HookResult::kMean ? setting.contract.sums.scaling : Scaling::kNone;
  if (result == HookResult::kMean)
    for (Elements& each : values)
      each = sent(scaling, bucket.dtype, wire, divisor, std::move(each));
  const std::uint64_t parts = parts_of(bucket.dtype);
  Elements sum = setting.contract.sums.order
                     ? sum_as_declared(setting, wire, std::move(values), knows_order)
                     : sum_in_order(setting, wire, bucket.count * parts,
                                    bucket.offsets[member] * parts, std::move(values));
  if (!is_before(scaling)) sum = scaled(scaling, bucket.dtype, divisor, std::move(sum));
  return {{}, std::move(sum)};
}

// A parameter that no rank used takes part, too, as a hook does not know (S4).
std::vector<Reduced> reduce_by_power_sgd(const Setting& setting, const ExpectedBucket& bucket,
                                         std::uint32_t divisor, const Contributors& contributors,
                                         PowerState& power) {
  std::vector<std::vector<Elements>> contributions;
  for (const std::uint32_t parameter : bucket.parameters)
    contributions.push_back(dense_contributions(setting, contributors, parameter));
  const auto sum = [&](std::vector<Floats> of_ranks) {
    const std::uint64_t count = of_ranks.front().size();
    return sum_in_order(setting, DType::kFloat32, count, 0, std::move(of_ranks));
  };
  std::vector<Floats> means = run_power_sgd(setting, bucket, divisor, contributions, sum, power);
  assert(means.size() == bucket.parameters.size());
  std::vector<Reduced> reduced;
  for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
    const std::uint32_t parameter = bucket.parameters[m];
    PowerMemory& memory = power[parameter];
    const bool keeps_error = !memory.errors.empty();
    const bool depends = any_part(setting, contributors, parameter, &Gradient::is_order_dependent);
    memory.is_order_dependent = depends || (keeps_error && memory.is_order_dependent);
    reduced.push_back({parameter, {{{}, std::move(means[m])}}, memory.is_order_dependent});
  }
  return reduced;
}

}  // namespace

std::vector<bool> used_by_some(const Setting& setting, const Contributors& contributors) {
  std::vector<bool> used(setting.program.parameters.size());
  for (const std::uint32_t parameter : setting.roles.reduced)
    used[parameter] = any_part(setting, contributors, parameter, &Gradient::is_used);
  return used;
}

std::vector<Entries> sparse_contributions(const Setting& setting, const Contributors& contributors,
                                          std::uint32_t parameter) {
  assert(setting.parameter(parameter).sparse);
  std::vector<Entries> contributions;
  for (const Gradients* gradients : contributors) {
    Entries all;
    for (const std::uint32_t part : setting.roles.replicas[parameter])
      if (gradients && (*gradients)[part].tensor) append(all, *(*gradients)[part].tensor);
    contributions.push_back(coalesced(setting.parameter(parameter), all));
  }
  return contributions;
}

std::vector<Reduced> reduce_bucket(const Setting& setting, const ExpectedBucket& bucket,
                                   std::uint32_t divisor, const std::vector<bool>& is_reduced,
                                   const Contributors& contributors, PowerState& power) {
  assert(divisor > 0);
  assert(divisor <= contributors.size());
  assert(!bucket.sparse || bucket.parameters.size() == 1);
  assert(bucket.offsets.size() == bucket.parameters.size());
  std::vector<Reduced> all;
  const auto is_untouched = [&](std::uint32_t parameter) { return !is_reduced[parameter]; };
  if (uses_power_sgd(setting, bucket)) {
    all = reduce_by_power_sgd(setting, bucket, divisor, contributors, power);
    std::erase_if(all, [&](const Reduced& each) { return is_untouched(each.parameter); });
    return all;
  }
  for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
    const std::uint32_t p = bucket.parameters[m];
    if (is_untouched(p)) continue;
    Reduced& reduced = all.emplace_back();
    reduced.parameter = p;
    reduced.is_order_dependent = any_part(setting, contributors, p, &Gradient::is_order_dependent);
    if (bucket.sparse)
      reduced.tensors.push_back(reduce_sparse(setting.parameter(p), divisor,
                                              sparse_contributions(setting, contributors, p)));
    else if (setting.options().hook_result == HookResult::kLocal)
      for (Elements& values : dense_contributions(setting, contributors, p))
        reduced.tensors.push_back({{}, std::move(values)});
    else {
      bool knows_order = true;
      reduced.tensors.push_back(
          reduce_dense(setting, bucket, m, divisor, contributors, knows_order));
      if (!knows_order) reduced.is_order_dependent = true;
    }
  }
  return all;
}

}  // namespace lockstep::reference
