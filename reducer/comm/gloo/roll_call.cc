#include "reducer/comm/gloo/roll_call.h"

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

ChainEnd end_of_chain(const Standings& standings, int self) {
  const int ranks = static_cast<int>(standings.size());
  LOCKSTEP_CHECK_LT(self, ranks);
  int at = self;
  for (int steps = 0; steps < ranks; ++steps) {
    const auto& standing = standings[static_cast<std::size_t>(at)];
    if (!standing) return {at, false, false, 0};
    const int next = standing->waits_for;
    const bool is_end = next < 0 || next >= ranks || standing->has_operation == 0;
    if (is_end) return {at, true, standing->has_operation != 0, standing->started};
    at = next;
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
