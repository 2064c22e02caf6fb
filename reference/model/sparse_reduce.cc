#include "reference/model/sparse_reduce.h"

#include <algorithm>

#include "reference/arithmetic.h"

namespace lockstep::reference {

std::vector<Rows> sparse_contributions(const Setting& setting, const Contributors& contributors,
                                       std::uint32_t parameter) {
  std::vector<Rows> contributions;
  for (const Gradients* gradients : contributors) {
    Tensor all;
    for (const std::uint32_t part : setting.roles.replicas[parameter])
      if (gradients && (*gradients)[part].tensor) append(all, *(*gradients)[part].tensor);
    contributions.push_back(coalesced(setting.parameter(parameter), all));
  }
  return contributions;
}

Tensor reduce_sparse(const Parameter& parameter, std::uint32_t divisor,
                     const std::vector<Rows>& contributions) {
  const double factor = scale_factor(parameter.dtype, divisor);
  Tensor all;
  for (const Rows& rows : contributions) {
    Tensor own = entries_of(rows);
    scale_values(parameter.dtype, own.values.data(), own.values.data(), factor, own.values.size());
    append(all, own);
  }
  return entries_of(coalesced(parameter, all));
}

ExpectedCollective gather_row_counts(std::uint32_t bucket) {
  ExpectedCollective gathered;
  gathered.op = ExpectedCollective::Op::kGatherSparse;
  gathered.bucket = bucket;
  gathered.count = sizeof(std::uint64_t);
  return gathered;
}

std::vector<ExpectedCollective> gather_rows(std::uint32_t bucket, const Parameter& parameter,
                                            const std::vector<Rows>& contributions) {
  std::uint64_t most = 0;
  for (const Rows& rows : contributions) most = std::max<std::uint64_t>(most, rows.size());
  const std::uint64_t value_bytes = size_of(parameter.dtype) / parts_of(parameter.dtype);
  std::vector<ExpectedCollective> gathered;
  for (const std::uint64_t bytes : {sizeof(std::uint64_t), row_elements(parameter) * value_bytes}) {
    if (most * bytes == 0) continue;
    gathered.push_back(gather_row_counts(bucket));
    gathered.back().count = most * bytes;
  }
  return gathered;
}

}  // namespace lockstep::reference
