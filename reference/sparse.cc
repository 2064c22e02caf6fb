#include "reference/sparse.h"

#include <algorithm>
#include <cassert>
#include <map>

#include "reference/arithmetic.h"
#include "reference/values.h"

namespace lockstep::reference {

std::uint64_t row_elements(const Parameter& parameter) {
  assert(parameter.sparse && !parameter.sizes.empty());
  std::uint64_t count = parts_of(parameter.dtype);
  for (std::size_t d = 1; d < parameter.sizes.size(); ++d) count *= parameter.sizes[d];
  return count;
}

Entries entries_of(const Program& program, const Parameter& parameter, std::uint32_t rank,
                   const Use& use, double scalar) {
  assert(parameter.sparse);
  assert(use.entries <= kMaxEntries);
  Entries out;
  const std::uint32_t all = parameter.sizes[0];
  if (all == 0) return out;
  const UseValues values(program, parameter, rank, use.step_key, use.node_key);
  const std::uint64_t count = values.number(0) % (use.entries + 1);
  for (std::uint64_t i = 1; i <= count; ++i)
    out.rows.push_back(static_cast<std::uint32_t>(values.number(i) % all));
  out.values.resize(count * row_elements(parameter));
  values.read(out.values.data(), out.values.size());
  multiply_values(parameter.dtype, out.values.data(), scalar, out.values.size());
  return out;
}

void append(Entries& into, const Entries& from) {
  into.rows.insert(into.rows.end(), from.rows.begin(), from.rows.end());
  into.values.insert(into.values.end(), from.values.begin(), from.values.end());
}

Entries coalesced(const Parameter& parameter, const Entries& entries) {
  std::map<std::uint32_t, std::vector<double>> rows;
  const auto width = static_cast<std::ptrdiff_t>(row_elements(parameter));
  assert(entries.values.size() == entries.rows.size() * row_elements(parameter));
  auto from = entries.values.begin();
  for (const std::uint32_t row : entries.rows) {
    assert(row < parameter.sizes[0]);
    const std::vector<double> values(from, from + width);
    from += width;
    const auto [at, is_new] = rows.emplace(row, values);
    if (!is_new) add_values(parameter.dtype, at->second.data(), values.data(), values.size());
  }
  Entries out;
  for (const auto& [row, values] : rows) append(out, {{row}, values});
  return out;
}

std::uint64_t append_bits(const Parameter& parameter, const Entries& entries,
                          std::vector<std::uint64_t>& bits) {
  const std::uint64_t offset = bits.size();
  const std::uint64_t width = row_elements(parameter);
  const Entries rows = coalesced(parameter, entries);
  assert(rows.rows.size() <= parameter.sizes[0]);
  bits.resize(offset + gradient_words(parameter));
  for (std::size_t i = 0; i < rows.rows.size(); ++i) {
    bits[offset + value_count(parameter) + rows.rows[i]] = 1;
    for (std::uint64_t e = 0; e < width; ++e)
      bits[offset + rows.rows[i] * width + e] =
          round_from_double(parameter.dtype, rows.values[i * width + e]);
  }
  return offset;
}

Entries reduce_sparse(const Parameter& parameter, std::uint32_t divisor,
                      const std::vector<Entries>& contributions) {
  const double factor = scale_factor(parameter.dtype, divisor);
  Entries all;
  for (const Entries& each : contributions) append(all, each);
  scale_values(parameter.dtype, all.values.data(), all.values.data(), factor, all.values.size());
  return coalesced(parameter, all);
}

std::vector<ExpectedCollective> gather_rows(std::uint32_t bucket, const Parameter& parameter,
                                            const std::vector<Entries>& contributions) {
  std::uint64_t most = 0;
  for (const Entries& each : contributions) most = std::max<std::uint64_t>(most, each.rows.size());
  assert(most <= parameter.sizes[0]);  // the lists are coalesced
  const std::uint64_t value_bytes = size_of(parameter.dtype) / parts_of(parameter.dtype);
  std::vector<ExpectedCollective> gathered;
  for (const std::uint64_t bytes : {sizeof(std::uint64_t), row_elements(parameter) * value_bytes})
    if (most * bytes > 0)
      gathered.push_back({ExpectedCollective::Op::kGatherSparse, bucket, most * bytes});
  return gathered;
}

}  // namespace lockstep::reference
