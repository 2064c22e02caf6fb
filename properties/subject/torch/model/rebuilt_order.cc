#include "properties/subject/torch/model/rebuilt_order.h"

#include <algorithm>
#include <utility>

#include "reference/arithmetic.h"
#include "reference/buckets.h"

namespace lockstep::properties::torch_model {

using namespace reference;  // NOLINT: the vocabulary of programs

Contract layout_rules() {
  Contract contract;
  contract.alignment_bytes = 0;
  return contract;
}

std::vector<ExpectedBucket> first_buckets(const Program& program, const Policies& policies) {
  const bool has_limits = !policies.starts_without_limits ||
                          program.options.mode == Mode::kDynamic ||
                          program.options.last_bucket_bytes != 0 || program.options.pinned != 0;
  if (has_limits) return assign_buckets(program, layout_rules());
  Program unlimited = program;
  unlimited.options.first_bucket_bytes = unlimited.options.bucket_bytes = ~std::uint64_t{0};
  return assign_buckets(unlimited, layout_rules());
}

void order_rebuilt(const Replicated& options, const std::vector<std::uint32_t>& order,
                   std::vector<ExpectedBucket>& buckets) {
  std::vector<std::pair<std::int64_t, ExpectedBucket>> keyed;
  const std::vector<std::uint64_t> limits = bucket_limits(options);
  std::vector<DType> dtypes;
  std::vector<std::size_t> closed;  // by dtype: how many of its buckets came before
  const auto last = static_cast<std::int64_t>(order.size() + buckets.size());
  for (const ExpectedBucket& bucket : buckets) {
    const auto at = std::find(order.begin(), order.end(), bucket.parameters.back());
    if (bucket.sparse) {
      keyed.emplace_back(at - order.begin(), bucket);
      continue;
    }
    const std::uint64_t bytes = bucket.count * size_of(bucket.dtype);
    auto dtype = std::find(dtypes.begin(), dtypes.end(), bucket.dtype);
    if (dtype == dtypes.end()) {
      dtype = dtypes.insert(dtype, bucket.dtype);
      closed.push_back(0);
    }
    std::size_t& before = closed[static_cast<std::size_t>(dtype - dtypes.begin())];
    const std::uint64_t limit = limits[std::min(before++, limits.size() - 1)];
    keyed.emplace_back(bytes >= limit ? at - order.begin() : last - (dtype - dtypes.begin()),
                       bucket);
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t b = 0; b < buckets.size(); ++b) buckets[b] = std::move(keyed[b].second);
}

}  // namespace lockstep::properties::torch_model
