#include "reducer/comm/nccl/compare_headers.h"

#include <algorithm>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Status compare_headers(std::span<const CollectiveHeader> headers, int rank) {
  LOCKSTEP_CHECK_LT(static_cast<std::size_t>(rank), headers.size());
  const CollectiveHeader& mine = headers[static_cast<std::size_t>(rank)];
  const auto differing = [&](const CollectiveHeader& from) {
    const auto it = std::find_if(headers.begin(), headers.end(),
                                 [&](const CollectiveHeader& header) { return header != from; });
    return it == headers.end() ? kNone : static_cast<int>(it - headers.begin());
  };
  const int other = differing(mine);
  if (other == kNone) return {};
  Failure failure;
  failure.code = Code::kMismatch;
  failure.suspect = other;
  failure.definite = true;
  // If there is a majority, every rank names the same rank: the first one outside of it.
  for (const CollectiveHeader& header : headers) {
    const auto alike = std::count(headers.begin(), headers.end(), header);
    if (2 * alike > static_cast<std::ptrdiff_t>(headers.size()))
      failure.suspect = differing(header);
  }
  LOCKSTEP_CHECK_LE(0, failure.suspect);
  // The suspect may have entered what this rank has; the text shows two that differ.
  const bool differs = headers[static_cast<std::size_t>(failure.suspect)] != mine;
  const int told = differs ? failure.suspect : other;
  LOCKSTEP_CHECK(told != rank);
  failure.detail = "rank " + std::to_string(rank) + " entered " + describe(mine) + "; rank " +
                   std::to_string(told) + " entered " +
                   describe(headers[static_cast<std::size_t>(told)]);
  return failure;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
