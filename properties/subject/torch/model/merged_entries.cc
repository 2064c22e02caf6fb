#include "properties/subject/torch/model/merged_entries.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "reference/arithmetic.h"

namespace lockstep::properties::torch_model {

using namespace reference;  // NOLINT: the vocabulary of programs

Entries merged(const Parameter& parameter, const Entries& one, const Entries& other) {
  if (one.rows.empty()) return other;
  if (other.rows.empty()) return one;
  const std::uint64_t width = row_elements(parameter);
  Entries out;
  const auto add = [&](const Entries& list, std::size_t at) {
    double* sum = out.values.data() + out.values.size() - width;
    add_values(parameter.dtype, sum, list.values.data() + at * width, width);
  };
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < one.rows.size() || j < other.rows.size()) {
    const bool takes_one =
        j == other.rows.size() || (i < one.rows.size() && one.rows[i] <= other.rows[j]);
    const bool takes_other =
        i == one.rows.size() || (j < other.rows.size() && other.rows[j] <= one.rows[i]);
    out.rows.push_back(takes_one ? one.rows[i] : other.rows[j]);
    out.values.resize(out.values.size() + width, 0.0);
    if (takes_one) add(one, i++);
    if (takes_other) add(other, j++);
  }
  return out;
}

bool add_entries(const Parameter& parameter, bool merges, Entries& into, const Entries& next) {
  const bool is_able = parameter.dtype != DType::kFloat16 || into.rows.empty() || next.rows.empty();
  if (merges)
    into = merged(parameter, into, next);
  else
    append(into, next);
  return is_able;
}

bool has_stable_order(const Entries& entries) {
  constexpr std::size_t kSortedStably = 16;
  if (entries.rows.size() <= kSortedStably) return true;
  std::map<std::uint32_t, std::uint32_t> count;
  return std::none_of(entries.rows.begin(), entries.rows.end(),
                      [&count](std::uint32_t row) { return ++count[row] > 2; });
}

}  // namespace lockstep::properties::torch_model
