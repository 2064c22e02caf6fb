#include "reducer/comm/collective_header.h"

#include <bit>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

bool CollectiveHeader::is_rank_ordered_sum() const {
  const bool is_ordered = reduction == static_cast<std::uint8_t>(Reduction::kRankOrdered);
  return op == static_cast<std::uint8_t>(Op::kAllReduceSum) && (verify != 0 || is_ordered);
}

CollectiveHeader header_of(const Collective& collective, std::int64_t sequence) {
  LOCKSTEP_CHECK_GE(sequence, 0);
  CollectiveHeader header;
  header.op = static_cast<std::uint8_t>(collective.op);
  header.dtype = static_cast<std::uint8_t>(collective.dtype);
  header.reduction = static_cast<std::uint8_t>(collective.reduction);
  header.verify = collective.verify ? 1 : 0;
  header.root = collective.op == Op::kBroadcast ? collective.root : 0;
  header.bucket = collective.bucket;
  header.count = collective.count;
  header.pass = collective.pass;
  header.sequence = sequence;
  header.reducer_id = collective.reducer_id;
  header.factor_bits = std::bit_cast<std::uint64_t>(collective.factor);
  return header;
}

std::string describe(const CollectiveHeader& header, const std::string& more) {
  LOCKSTEP_CHECK(more.empty() || more.starts_with(", "));
  const Op op = static_cast<Op>(header.op);
  std::string out = std::string(name_of(op)) + " of " + std::to_string(header.count) + " " +
                    name_of(static_cast<DType>(header.dtype));
  const auto factor = std::bit_cast<double>(header.factor_bits);
  if (op == Op::kAllReduceSum && factor != 1.0) out += " times " + std::to_string(factor);
  if (op == Op::kBroadcast) out += " from root " + std::to_string(header.root);
  out += " (";
  if (header.bucket != kNone) out += "bucket " + std::to_string(header.bucket) + ", ";
  if (header.pass != kNone) out += "pass " + std::to_string(header.pass) + ", ";
  out += "sequence " + std::to_string(header.sequence);
  if (header.reducer_id > 0) out += ", reducer " + std::to_string(header.reducer_id);
  if (header.verify != 0) out += ", verified";
  if (header.is_rank_ordered_sum()) out += ", rank-ordered";
  return out + more + ")";
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
