#include "properties/compare/bisect.h"

#include <utility>

#include "reducer/base/check.h"

namespace lockstep::properties {

Result<Bisection> bisect(std::size_t count, const ProbeLibrary& probe) {
  LOCKSTEP_CHECK_GE(count, std::size_t{2});
  Bisection out;
  const auto look = [&](std::size_t library) -> Result<bool> {
    Result<Probed> probed = probe(library);
    if (!probed) return failed(probed.error());
    out.steps.emplace_back(library, *probed);
    return probed->is_different;
  };
  Result<bool> differs = look(count - 1);
  if (!differs) return failed(differs.error());
  if (!*differs)
    return failed(Status(Code::kIncomplete, "the first and the last library agree (" +
                                                out.steps.back().second.what + ")"));
  std::size_t same = 0;
  std::size_t different = count - 1;
  while (different - same > 1) {
    const std::size_t middle = same + (different - same) / 2;
    differs = look(middle);
    if (!differs) return failed(differs.error());
    (*differs ? different : same) = middle;
  }
  out.first = different;
  return out;
}

}  // namespace lockstep::properties
