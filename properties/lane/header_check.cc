#include "properties/lane/header_check.h"

#include <fmt/format.h>

#include "properties/generate/random.h"
#include "reducer/comm/collective_header.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::uint32_t kCollectives = 4;  // of each key
constexpr std::uint32_t kFields = 10;

// Changes one field. Returns false where that makes no difference: only a broadcast has a root.
bool change(std::uint32_t field, Collective& collective) {
  const bool is_broadcast = collective.op == Op::kBroadcast;
  switch (field) {
    case 0:
      collective.op = is_broadcast ? Op::kAllGather : Op::kBroadcast;
      return true;
    case 1:
      collective.dtype = collective.dtype == DType::kFloat32 ? DType::kFloat64 : DType::kFloat32;
      return true;
    case 2:
      collective.reduction = collective.reduction == Reduction::kRankOrdered
                                 ? Reduction::kNative
                                 : Reduction::kRankOrdered;
      return true;
    case 3:
      collective.verify = !collective.verify;
      return true;
    case 4:
      ++collective.root;
      return is_broadcast;
    case 5:
      ++collective.bucket;
      return true;
    case 6:
      ++collective.count;
      return true;
    case 7:
      ++collective.pass;
      return true;
    case 8:
      ++collective.reducer_id;
      return true;
    default:
      collective.factor *= 2;
      return true;
  }
}

Collective drawn(properties::Random& chance) {
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
      if_so(collective.reducer_id > 0, fmt::format(", source {}", collective.reducer_id)),
      if_so(collective.verify, ", verified"), if_so(is_ordered, ", rank-ordered"));
}

}  // namespace

std::string wrongly_described(std::uint32_t key) {
  properties::Random chance(key, 0, "headers");
  for (std::uint32_t i = 0; i < kCollectives; ++i) {
    const Collective collective = drawn(chance);
    const std::uint32_t sequence = chance.below(5);
    const CollectiveHeader header = header_of(collective, sequence);
    const std::string text = describe(header);
    const std::string right = words_for(collective, sequence);
    if (text != right) return fmt::format("it calls a collective '{}', which is '{}'", text, right);
    for (std::uint32_t field = 0; field < kFields; ++field) {
      Collective other = collective;
      if (change(field, other) && header_of(other, sequence) == header)
        return fmt::format("it cannot tell '{}' from '{}'", words_for(other, sequence), right);
    }
    if (header_of(collective, sequence + 1) == header) return "it cannot tell two numbers apart";
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
