#include "reference/job.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>
#include <tuple>

namespace lockstep::reference {

std::vector<bool> synced_outputs(const RankPass& pass, std::size_t forwards) {
  assert(forwards <= pass.forwards.size());
  std::vector<bool> synced;
  for (std::size_t f = 0; f < forwards; ++f) {
    const Forward& forward = pass.forwards[f];
    if (!forward.discard) synced.insert(synced.end(), forward.outputs.size(), !forward.local);
  }
  return synced;
}

bool starts_synced(const RankPass& pass, const Backward& backward, std::size_t forwards) {
  const std::vector<bool> synced = synced_outputs(pass, forwards);
  if (backward.held || synced.empty()) return false;
  if (backward.roots.empty()) return std::ranges::find(synced, true) != synced.end();
  return std::ranges::any_of(backward.roots,
                             [&](std::uint32_t root) { return synced[root % synced.size()]; });
}

bool keeps_a_forward(const RankPass& pass) {
  return std::ranges::any_of(pass.forwards,
                             [](const Forward& forward) { return !forward.discard; });
}

PassKind kind_of(const Step& step, const RankPass& pass) {
  if (!pass.absent) return step.kind;
  if (pass.skip) return PassKind::kNoGrad;
  return keeps_a_forward(pass) ? PassKind::kNoSync : step.kind;
}

void keep_first_steps(Job& job, std::uint32_t count) {
  assert(count <= job.steps.size());
  job.steps.resize(count);
  if (job.rejoin_step >= count) job.rejoin_step = 0;
  if (job.recreate_before_step >= count) job.recreate_before_step = 0;
  if (job.bad_number.step >= count) job.bad_number = {};
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> swapped_gradients(const Job& job) {
  const auto form_of = [](const Parameter& each) {
    return std::tuple(each.reducer, each.device, each.dtype, each.sizes, each.column_major,
                      each.permuted);
  };
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  std::map<decltype(form_of(Parameter{})), std::uint32_t> single;
  for (std::uint32_t i = 0; i < job.parameters.size(); ++i) {
    const Parameter& parameter = job.parameters[i];
    if (!is_reduced(parameter) || !is_original(parameter) || parameter.sparse) continue;
    const auto [left, is_new] = single.emplace(form_of(parameter), i);
    if (is_new) continue;
    pairs.emplace_back(left->second, i);
    single.erase(left);
  }
  return pairs;
}

std::uint32_t reducer_count(const Job& job) {
  std::uint32_t last = 0;
  for (const Parameter& parameter : job.parameters) last = std::max(last, parameter.reducer);
  return last + 1;
}

std::uint64_t element_count(const std::vector<std::uint32_t>& sizes) {
  std::uint64_t count = 1;
  for (const std::uint32_t size : sizes) count *= size;
  return count;
}

std::uint64_t element_count(const Parameter& parameter) { return element_count(parameter.sizes); }

std::uint64_t value_count(const Parameter& parameter) {
  return element_count(parameter) * parts_of(parameter.dtype);
}

std::uint64_t gradient_words(const Parameter& parameter) {
  return value_count(parameter) + (parameter.sparse ? parameter.sizes[0] : 0);
}

std::uint32_t owner_of(const Job& job, std::uint32_t index) {
  assert(index < job.parameters.size());
  while (job.parameters[index].shared_with > 0) {
    assert(job.parameters[index].shared_with <= index);
    index -= job.parameters[index].shared_with;
  }
  return index;
}

std::uint32_t original_of(const Job& job, std::uint32_t index) {
  const std::uint32_t owner = owner_of(job, index);
  assert(job.parameters[owner].copy_of <= owner);
  return owner - job.parameters[owner].copy_of;
}

std::uint32_t memory_orders(std::size_t dims) {
  std::uint32_t orders = 1;
  for (std::uint32_t d = 2; d <= dims; ++d) orders *= d;
  return orders;
}

std::vector<std::uint32_t> dimensions_in_memory(const Parameter& parameter) {
  std::vector<std::uint32_t> order(parameter.sizes.size());
  std::iota(order.begin(), order.end(), 0U);
  if (parameter.column_major) {
    std::ranges::reverse(order);
    return order;
  }
  for (std::uint32_t left = parameter.permuted % memory_orders(order.size()); left > 0; --left)
    std::ranges::next_permutation(order);
  assert(!is_row_major(parameter) || std::ranges::is_sorted(order));
  return order;
}

std::uint64_t row_major_to_memory(const Parameter& parameter, std::uint64_t element) {
  assert(element < value_count(parameter));
  if (is_row_major(parameter)) return element;
  const std::uint64_t parts = parts_of(parameter.dtype);
  const std::uint64_t part = element % parts;
  element /= parts;
  std::vector<std::uint64_t> index(parameter.sizes.size());
  for (std::size_t dim = index.size(); dim-- > 0; element /= parameter.sizes[dim])
    index[dim] = element % parameter.sizes[dim];
  std::uint64_t position = 0;
  for (const std::uint32_t dim : dimensions_in_memory(parameter))
    position = position * parameter.sizes[dim] + index[dim];
  return position * parts + part;
}

}  // namespace lockstep::reference
