#include "reference/sparse.h"

#include <cassert>

#include "reference/arithmetic.h"
#include "reference/values.h"

namespace lockstep::reference {

std::uint64_t row_elements(const Parameter& parameter) {
  assert(parameter.sparse && !parameter.sizes.empty());
  std::uint64_t count = parts_of(parameter.dtype);
  for (std::size_t d = 1; d < parameter.sizes.size(); ++d) count *= parameter.sizes[d];
  return count;
}

std::vector<std::uint32_t> looked_up(const Program& program, const Parameter& parameter,
                                     std::uint32_t rank, const Use& use) {
  std::vector<std::uint32_t> rows;
  const std::uint32_t all = parameter.sizes[0];
  if (all == 0) return rows;
  const UseValues values(program, parameter, rank, use.step_key, use.node_key);
  const std::uint64_t count = values.number(0) % (use.entries + 1);
  for (std::uint64_t i = 1; i <= count; ++i)
    rows.push_back(static_cast<std::uint32_t>(values.number(i) % all));
  return rows;
}

Entries entries_of(const Program& program, const Parameter& parameter, std::uint32_t rank,
                   const Use& use, double scalar) {
  Entries out;
  out.rows = looked_up(program, parameter, rank, use);
  out.values.resize(out.rows.size() * row_elements(parameter));
  const UseValues values(program, parameter, rank, use.step_key, use.node_key);
  values.read(out.values.data(), out.values.size());
  multiply_values(parameter.dtype, out.values.data(), scalar, out.values.size());
  return out;
}

void append(Entries& into, const Entries& from) {
  into.rows.insert(into.rows.end(), from.rows.begin(), from.rows.end());
  into.values.insert(into.values.end(), from.values.begin(), from.values.end());
}

Rows coalesced(const Parameter& parameter, const Entries& entries) {
  Rows out;
  const auto width = static_cast<std::ptrdiff_t>(row_elements(parameter));
  auto from = entries.values.begin();
  for (const std::uint32_t row : entries.rows) {
    const std::vector<double> values(from, from + width);
    from += width;
    const auto [at, is_new] = out.emplace(row, values);
    if (!is_new) add_values(parameter.dtype, at->second.data(), values.data(), values.size());
  }
  return out;
}

Entries entries_of(const Rows& rows) {
  Entries out;
  for (const auto& [row, values] : rows) {
    out.rows.push_back(row);
    out.values.insert(out.values.end(), values.begin(), values.end());
  }
  return out;
}

std::uint64_t append_bits(const Parameter& parameter, const Entries& entries,
                          std::vector<std::uint64_t>& bits) {
  const std::uint64_t offset = bits.size();
  const std::uint64_t elements = value_count(parameter);
  const std::uint64_t width = row_elements(parameter);
  bits.resize(offset + gradient_words(parameter));
  for (const auto& [row, values] : coalesced(parameter, entries)) {
    bits[offset + elements + row] = 1;
    for (std::uint64_t e = 0; e < width; ++e)
      bits[offset + row * width + e] = round_from_double(parameter.dtype, values[e]);
  }
  return offset;
}

}  // namespace lockstep::reference
