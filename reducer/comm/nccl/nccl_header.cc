#include "reducer/comm/nccl/nccl_header.h"

#include <algorithm>

#include "reducer/base/check.h"

namespace lockstep::inline LOCKSTEP_NS {

NcclHeader nccl_header_of(const Collective& collective, std::int64_t sequence) {
  NcclHeader header;
  header.op = static_cast<std::uint8_t>(collective.op);
  header.dtype = static_cast<std::uint8_t>(collective.dtype);
  header.reduction = static_cast<std::uint8_t>(collective.reduction);
  header.verify = collective.verify ? 1 : 0;
  header.root = collective.op == Op::kBroadcast ? collective.root : 0;
  header.bucket = collective.bucket;
  header.count = collective.count;
  header.pass = collective.pass;
  header.sequence = sequence;
  header.source = collective.source;
  return header;
}

std::string describe(const NcclHeader& header) {
  const Op op = static_cast<Op>(header.op);
  std::string out = std::string(name_of(op)) + " of " + std::to_string(header.count) + " " +
                    name_of(static_cast<DType>(header.dtype));
  if (op == Op::kBroadcast) out += " from root " + std::to_string(header.root);
  out += " (";
  if (header.bucket != kNone) out += "bucket " + std::to_string(header.bucket) + ", ";
  if (header.pass != kNone) out += "pass " + std::to_string(header.pass) + ", ";
  out += "sequence " + std::to_string(header.sequence);
  if (header.source > 0) out += ", source " + std::to_string(header.source);
  const bool is_ordered = header.reduction == static_cast<std::uint8_t>(Reduction::kRankOrdered);
  if (header.verify != 0) out += ", verified";
  if (op == Op::kAllReduceSum && (header.verify != 0 || is_ordered)) out += ", rank-ordered";
  return out + ")";
}

Status compare_headers(std::span<const NcclHeader> headers, int rank) {
  LOCKSTEP_CHECK_LT(static_cast<std::size_t>(rank), headers.size());
  const NcclHeader& mine = headers[static_cast<std::size_t>(rank)];
  const auto differing = [&](const NcclHeader& from) {
    const auto it = std::find_if(headers.begin(), headers.end(),
                                 [&](const NcclHeader& header) { return header != from; });
    return it == headers.end() ? kNone : static_cast<int>(it - headers.begin());
  };
  const int other = differing(mine);
  if (other == kNone) return {};
  Failure failure;
  failure.code = Code::kMismatch;
  failure.suspect = other;
  failure.definite = true;
  // With a majority everyone names the same rank, the first that is not of it.
  for (const NcclHeader& header : headers) {
    const auto alike = std::count(headers.begin(), headers.end(), header);
    if (2 * alike > static_cast<std::ptrdiff_t>(headers.size()))
      failure.suspect = differing(header);
  }
  const int told = failure.suspect == rank ? other : failure.suspect;
  failure.detail = "rank " + std::to_string(rank) + " entered " + describe(mine) + "; rank " +
                   std::to_string(told) + " entered " +
                   describe(headers[static_cast<std::size_t>(told)]);
  return failure;
}

}  // namespace lockstep::inline LOCKSTEP_NS
