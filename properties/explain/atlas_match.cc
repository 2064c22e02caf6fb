#include "properties/explain/atlas_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "properties/explain/average.h"
#include "reference/arithmetic.h"
#include "reference/order_families.h"

namespace lockstep::properties {
namespace {

using reference::AtlasRow;

constexpr std::size_t kMostListed = 12;
constexpr std::size_t kMostShownParts = 5;

bool is_one_of_sums(const Average& average, const std::vector<reference::OrderRun>& runs,
                    Rounding rounding) {
  if (average.is_made_by(runs, rounding, Division::kBefore) ||
      average.is_made_by(runs, rounding, Division::kAfter))
    return true;
  Average sum = average;
  sum.divisor = 1;
  sum.scaled = sum.ranks;
  return sum.is_made_by(runs, rounding, Division::kBefore);
}

std::string versions_of(const AtlasRow& row) {
  return std::string(row.first_version) == row.last_version
             ? row.last_version
             : fmt::format("{} to {}", row.first_version, row.last_version);
}

std::string calls_of(const AtlasRow& row) {
  if (row.first_call == 1 && row.last_call == reference::kEveryCall) return "";
  if (row.last_call == reference::kEveryCall)
    return fmt::format(", from call {} of a communicator on", row.first_call);
  return fmt::format(", in calls {} to {} of a communicator", row.first_call, row.last_call);
}

std::string text_of_row(const AtlasRow& row, std::uint32_t ranks, std::uint64_t element_bytes) {
  return fmt::format("{} {}, {}: {}, as {}{}", row.library, versions_of(row),
                     name_of(row.collective), row.algorithm,
                     reference::sizes_of(row, ranks, element_bytes), calls_of(row));
}

// The orders at another size, by library, collective and call; libraries that were not measured
// there are left out.
std::map<std::string, std::string> orders_at(const std::vector<AtlasMatch>& matches,
                                             std::uint32_t ranks, std::uint64_t elements,
                                             reference::DType dtype) {
  std::map<std::string, std::string> orders;
  for (const AtlasMatch& match : matches) {
    const AtlasRow& of = *match.row;
    const AtlasRow* row = reference::find_order(
        {of.library, of.last_version, of.collective, ranks, elements, dtype, of.first_call});
    if (row == nullptr || row->order == nullptr) continue;
    std::string& text =
        orders[fmt::format("{} {}{}", of.library, name_of(of.collective), calls_of(of))];
    text.clear();
    for (const reference::OrderRun& run : row->order(ranks, elements, reference::size_of(dtype)))
      text += fmt::format("{} {};", run.end, reference::text_of(run, ranks));
  }
  return orders;
}

std::string text_of_further_input(const std::vector<AtlasMatch>& matches, reference::DType dtype) {
  std::set<std::string> all;
  for (const AtlasMatch& match : matches)
    all.insert(fmt::format("{} {}{}", match.row->library, name_of(match.row->collective),
                           calls_of(*match.row)));
  if (all.size() < 2) return "";
  std::size_t most = 1;
  std::string best;
  for (const std::uint32_t ranks : {3U, 4U, 5U}) {
    for (const std::uint64_t elements : {30U, 100U, 400U, 1000U, 1500U, 3000U, 5000U, 20000U}) {
      const auto orders = orders_at(matches, ranks, elements, dtype);
      std::set<std::string> different;
      for (const auto& [library, order] : orders) different.insert(order);
      if (different.size() <= most) continue;
      most = different.size();
      best = fmt::format(
          "  random values of {} elements on {} ranks would show {} different orders of these {}",
          elements, ranks, most, all.size());
    }
  }
  return best.empty() ? "  no number of ranks and elements that was measured tells these apart\n"
                      : best + "\n";
}

std::string order_of(const AtlasRow& row) {
  if (row.order == nullptr) return "none: as the parts arrive";
  const std::uint64_t bytes = 4;
  const std::uint64_t unit = row.unit == reference::SizeUnit::kElements ? 1 : bytes;
  const std::uint64_t factor = row.unit == reference::SizeUnit::kRankBytes ? row.last_ranks : 1;
  const auto runs =
      row.order(row.last_ranks, std::max<std::uint64_t>(1, row.last_size / unit * factor), bytes);
  std::vector<std::string> texts;
  for (const reference::OrderRun& run : runs) {
    const std::string text = reference::text_of(run, row.last_ranks);
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }
  if (texts.size() > kMostShownParts) texts.resize(kMostShownParts);
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string sizes_in_words(const AtlasRow& row) {
  const char* unit = row.unit == reference::SizeUnit::kElements ? "elements"
                     : row.unit == reference::SizeUnit::kBytes  ? "bytes"
                                                                : "bytes a rank";
  return fmt::format("{} to {} {}", row.first_size, row.last_size, unit);
}

}  // namespace

std::vector<AtlasMatch> match_atlas(const AverageInputs& inputs,
                                    const std::vector<std::uint64_t>& result) {
  const Average average(inputs, result);
  if (average.world() < 2) return {};
  const std::uint64_t bytes = reference::size_of(average.dtype);
  std::vector<AtlasMatch> matches;
  for (const AtlasRow& row : reference::atlas()) {
    if (row.order == nullptr || average.world() < row.first_ranks ||
        average.world() > row.last_ranks)
      continue;
    if ((row.types == reference::RowTypes::kBFloat16Wide) !=
            (average.dtype == reference::DType::kBFloat16) &&
        row.types != reference::RowTypes::kAll)
      continue;
    if (!is_one_of_sums(average, row.order(average.world(), average.buffer_count, bytes),
                        rounding_of(row.types)))
      continue;
    const AtlasRow* here =
        reference::find_order({row.library, row.last_version, row.collective, average.world(),
                               average.buffer_count, average.dtype, row.first_call});
    matches.push_back({&row, here == &row});
  }
  std::stable_sort(matches.begin(), matches.end(), [](const AtlasMatch& a, const AtlasMatch& b) {
    return a.is_at_this_size && !b.is_at_this_size;
  });
  return matches;
}

std::string text_of(const std::vector<AtlasMatch>& matches, const AverageInputs& inputs) {
  if (matches.empty()) return "";
  const auto ranks = static_cast<std::uint32_t>(inputs.ranks.size());
  const std::uint64_t bytes = reference::size_of(inputs.dtype);
  std::vector<AtlasMatch> shown;
  for (const AtlasMatch& match : matches)
    if (match.is_at_this_size == matches.front().is_at_this_size) shown.push_back(match);
  std::string out =
      matches.front().is_at_this_size
          ? "libraries that add so at this size:\n"
          : "libraries that add so, but at other sizes as far as they were measured:\n";
  for (std::size_t i = 0; i < std::min(kMostListed, shown.size()); ++i)
    out += "  " + text_of_row(*shown[i].row, ranks, bytes) + "\n";
  if (shown.size() > kMostListed) out += fmt::format("  and {} more\n", shown.size() - kMostListed);
  return out + text_of_further_input(shown, inputs.dtype);
}

std::string atlas_table() {
  std::string out =
      "| library | version | collective | ranks | sizes | calls | algorithm | order at the most "
      "ranks |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const AtlasRow& row : reference::atlas()) {
    const std::string ranks = row.first_ranks == row.last_ranks
                                  ? fmt::format("{}", row.first_ranks)
                                  : fmt::format("{} to {}", row.first_ranks, row.last_ranks);
    const std::string calls = row.last_call != reference::kEveryCall
                                  ? fmt::format("{} to {}", row.first_call, row.last_call)
                              : row.first_call > 1 ? fmt::format("from {} on", row.first_call)
                                                   : "all";
    const char* types = row.types == reference::RowTypes::kBFloat16Wide
                            ? " (bfloat16, in float32 with one rounding)"
                            : "";
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {}{} | {} |\n", row.library,
                       versions_of(row), name_of(row.collective), ranks, sizes_in_words(row), calls,
                       row.algorithm, types, order_of(row));
  }
  return out;
}

}  // namespace lockstep::properties
