#include "reference/atlas.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>

#include "reference/arithmetic.h"
#include "reference/atlas_rows.h"

namespace lockstep::reference {
namespace {

constexpr std::array<const char*, 5> kCollectives = {"all_reduce", "iall_reduce", "reduce",
                                                     "reduce_scatter", "reduce_scatter_block"};

std::uint64_t size_in(SizeUnit unit, const OrderQuestion& question) {
  switch (unit) {
    case SizeUnit::kElements:
      break;
    case SizeUnit::kBytes:
      return question.elements * size_of(question.dtype);
    case SizeUnit::kRankBytes:
      return question.elements / question.ranks * size_of(question.dtype);
  }
  return question.elements;
}

bool holds_for(RowTypes types, DType dtype) {
  return types == RowTypes::kAll ||
         (types == RowTypes::kBFloat16Wide) == (dtype == DType::kBFloat16);
}

// The number before the next dot, which is taken off the text.
std::uint64_t take_number(std::string_view& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  static_cast<void>(error);  // what is no number counts as 0
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  const std::size_t dot = text.find('.');
  text = dot == std::string_view::npos ? std::string_view() : text.substr(dot + 1);
  return number;
}

std::string with_commas(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

const char* name_of(Collective collective) {
  return kCollectives[static_cast<std::size_t>(collective)];
}

std::optional<Collective> collective_named(std::string_view name) {
  for (std::size_t i = 0; i < kCollectives.size(); ++i)
    if (name == kCollectives[i]) return static_cast<Collective>(i);
  return std::nullopt;
}

const std::vector<AtlasRow>& atlas() {
  static const std::vector<AtlasRow> rows = atlas_rows();
  return rows;
}

int compare_versions(std::string_view a, std::string_view b) {
  while (!a.empty() || !b.empty()) {
    const std::uint64_t of_a = take_number(a);
    const std::uint64_t of_b = take_number(b);
    if (of_a != of_b) return of_a < of_b ? -1 : 1;
  }
  return 0;
}

const AtlasRow* find_order(const OrderQuestion& question) {
  assert(question.ranks >= 1 && question.ranks <= kMaxWorld);
  assert(question.call >= 1);
  for (const AtlasRow& row : atlas()) {
    const std::uint64_t size = size_in(row.unit, question);
    if (question.library == row.library && holds_for(row.types, question.dtype) &&
        question.collective == row.collective &&
        compare_versions(row.first_version, question.version) <= 0 &&
        compare_versions(question.version, row.last_version) <= 0 &&
        row.first_ranks <= question.ranks && question.ranks <= row.last_ranks &&
        row.first_size <= size && size <= row.last_size && row.first_call <= question.call &&
        question.call <= row.last_call)
      return &row;
  }
  return nullptr;
}

std::string sizes_of(const AtlasRow& row, std::uint32_t ranks, std::uint64_t element_bytes) {
  // The least number of elements with so many bytes, or the most.
  const std::uint64_t factor = row.unit == SizeUnit::kRankBytes ? ranks : 1;
  const std::uint64_t unit = row.unit == SizeUnit::kElements ? 1 : element_bytes;
  const std::uint64_t first = (row.first_size + unit - 1) / unit * factor;
  const std::string out = "for " + with_commas(std::max<std::uint64_t>(1, first)) + " to " +
                          with_commas((row.last_size / unit + 1) * factor - 1) + " elements";
  return out + " at " + std::to_string(ranks) + " ranks";
}

}  // namespace lockstep::reference
