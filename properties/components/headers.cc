// How collectives are told apart and put into words (reducer/comm/collective_header.h). Ranks of a
// program rarely differ in one field alone, as the agreement of a construction compares most of
// them (B4).
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "properties/components/checks.h"
#include "reducer/comm/collective_header.h"
#include "reducer/comm/nccl/compare_headers.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Each of these changes one field, so that other ranks must notice.
constexpr void (*kChanges[])(Collective&) = {
    [](Collective& c) { c.op = c.op == Op::kBroadcast ? Op::kAllGather : Op::kBroadcast; },
    [](Collective& c) { c.dtype = c.dtype == DType::kInt32 ? DType::kFloat64 : DType::kInt32; },
    [](Collective& c) {
      c.reduction =
          c.reduction == Reduction::kNative ? Reduction::kRankOrdered : Reduction::kNative;
    },
    [](Collective& c) { c.verify = !c.verify; },
    [](Collective& c) { ++c.bucket; },
    [](Collective& c) { ++c.count; },
    [](Collective& c) { ++c.pass; },
    [](Collective& c) { ++c.reducer_id; },
    [](Collective& c) { c.factor *= 2; },
};

Collective drawn(Choices& chance) {
  constexpr Op kOps[] = {Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather};
  Collective collective;
  collective.op = kOps[chance.below(3)];
  collective.dtype = chance.percent(50) ? DType::kFloat32 : DType::kInt32;
  collective.reduction = chance.percent(50) ? Reduction::kRankOrdered : Reduction::kNative;
  collective.verify = chance.percent(50);
  collective.root = static_cast<int>(chance.below(3));
  collective.bucket = static_cast<int>(chance.below(3)) - 1;
  collective.count = chance.below(3);
  collective.pass = static_cast<std::int64_t>(chance.below(3)) - 1;
  collective.reducer_id = static_cast<std::int64_t>(chance.below(3));
  collective.factor = chance.percent(50) ? 1.0 : 0.25;
  return collective;
}

std::string words_for(const Collective& collective, std::uint32_t sequence) {
  const bool is_sum = collective.op == Op::kAllReduceSum;
  const bool is_ordered =
      is_sum && (collective.verify || collective.reduction == Reduction::kRankOrdered);
  const auto if_so = [](bool is, std::string words) { return is ? words : std::string(); };
  return fmt::format(
      "{} of {} {}{}{} ({}{}sequence {}{}{}{})", name_of(collective.op), collective.count,
      name_of(collective.dtype),
      if_so(is_sum && collective.factor != 1.0, fmt::format(" times {:f}", collective.factor)),
      if_so(collective.op == Op::kBroadcast, fmt::format(" from root {}", collective.root)),
      if_so(collective.bucket != kNone, fmt::format("bucket {}, ", collective.bucket)),
      if_so(collective.pass != kNone, fmt::format("pass {}, ", collective.pass)), sequence,
      if_so(collective.reducer_id > 0, fmt::format(", reducer {}", collective.reducer_id)),
      if_so(collective.verify, ", verified"), if_so(is_ordered, ", rank-ordered"));
}

}  // namespace

std::string check_headers(Choices& choices) {
  const Collective collective = drawn(choices);
  const std::uint32_t sequence = choices.below(5);
  const CollectiveHeader header = header_of(collective, sequence);
  const std::string text = describe(header);
  const std::string right = words_for(collective, sequence);
  if (text != right) return fmt::format("it calls a collective '{}', which is '{}'", text, right);
  const auto is_same = [&](const Collective& other) {
    return header_of(other, sequence) == header;
  };
  for (const auto change : kChanges) {
    Collective other = collective;
    change(other);
    if (is_same(other))
      return fmt::format("it cannot tell '{}' from '{}'", words_for(other, sequence), right);
  }
  Collective of_other_root = collective;
  ++of_other_root.root;
  if (is_same(of_other_root) != (collective.op != Op::kBroadcast))
    return fmt::format("it takes the root of '{}' for another thing than it is", right);
  if (header_of(collective, sequence + 1) == header) return "it cannot tell two numbers apart";
  return {};
}

namespace {

// Returns the rank that all ranks have to name: the first one that has not entered what more than
// half of them have; kNone if there is no such majority.
int outsider(const std::vector<CollectiveHeader>& headers) {
  for (const CollectiveHeader& each : headers) {
    const auto is_other = [&](const CollectiveHeader& header) { return header != each; };
    const auto others = std::count_if(headers.begin(), headers.end(), is_other);
    if (static_cast<std::size_t>(others) * 2 < headers.size())
      return static_cast<int>(std::find_if(headers.begin(), headers.end(), is_other) -
                              headers.begin());
  }
  return kNone;
}

}  // namespace

std::string check_mismatches(Choices& choices) {
  Collective collective = drawn(choices);
  std::vector<CollectiveHeader> kinds;
  for (const std::uint32_t count : {7u, 8u, 9u}) {
    collective.count = count;
    kinds.push_back(header_of(collective, 0));
  }
  std::vector<CollectiveHeader> headers(choices.between(2, 5));
  for (CollectiveHeader& each : headers) each = kinds[choices.below(3) * choices.below(2)];
  const int suspect = outsider(headers);
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    const CollectiveHeader& mine = headers[rank];
    const Status status = compare_headers(headers, static_cast<int>(rank));
    const auto wrong = [&](const char* what) {
      return fmt::format("of {} ranks that have entered different collectives, rank {} {}: {}",
                         headers.size(), rank, what, status.to_string());
    };
    const bool are_alike = std::all_of(headers.begin(), headers.end(),
                                       [&](const CollectiveHeader& each) { return each == mine; });
    if (status.ok() != are_alike) return wrong("does not say whether they are different");
    if (are_alike) continue;
    const Failure& failure = status.failure();
    if (failure.code != Code::kMismatch || !failure.definite) return wrong("has no mismatch");
    if (failure.suspect < 0 || failure.suspect >= static_cast<int>(headers.size()))
      return wrong("suspects nobody");
    const bool is_right = suspect == kNone
                              ? headers[static_cast<std::size_t>(failure.suspect)] != mine
                              : failure.suspect == suspect;
    if (!is_right) return wrong("suspects a rank that has done its part");
    const std::string own = fmt::format("rank {} entered {}; rank ", rank, describe(mine));
    bool has_both = false;
    for (std::size_t other = 0; other < headers.size(); ++other)
      has_both |=
          headers[other] != mine &&
          failure.detail == own + fmt::format("{} entered {}", other, describe(headers[other]));
    if (!has_both) return wrong("does not show both sides");
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
