#include "reducer/gradient_search.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

const std::vector<bool>& GradientSearch::reachable_from(Pass& pass) {
  reachable_.assign(count_, false);
  pass.with_outputs([this](std::span<PassOutput* const> outputs) {
    each_reachable(outputs, [this](std::uint32_t number) { reachable_[number] = true; });
  });
  return reachable_;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
