#include "reducer/comm/gloo/roll_call.h"

#include <algorithm>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

ChainEnd end_of_chain(const Standings& standings, int self) {
  const int ranks = static_cast<int>(standings.size());
  LOCKSTEP_CHECK_LE(0, self);
  LOCKSTEP_CHECK_LT(self, ranks);
  LOCKSTEP_CHECK(standings[static_cast<std::size_t>(self)].has_value());
  const auto known = std::count_if(standings.begin(), standings.end(),
                                   [](const auto& standing) { return standing.has_value(); });
  int at = self;
  for (int steps = 0; steps < ranks; ++steps) {
    const auto& standing = standings[static_cast<std::size_t>(at)];
    if (!standing) return {.rank = at, .is_alone = known == 1 && ranks > 2};
    const int next = standing->waits_for;
    const bool is_end = next < 0 || next >= ranks || standing->has_operation == 0;
    if (is_end)
      return {.rank = at,
              .has_answered = true,
              .has_operation = standing->has_operation != 0,
              .started = standing->started};
    at = next;
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
