#include "properties/generate/portfolio.h"

#include <array>
#include <cstdint>

#include "properties/case/fields.h"

namespace lockstep::properties {
namespace {

using Policy = Schedule::Policy;

// Partial order sampling finds the planted bug that needs a schedule over NCCL several times sooner
// than the other policies.
constexpr auto weights_over_nccl() {
  std::array<std::uint16_t, fields::Names<Policy>::list.size()> out{};
  out.fill(4);
  out[static_cast<std::size_t>(Policy::kPos)] = 80;
  return out;
}

}  // namespace

void draw_policy_over_nccl(Random random, const GenerateOptions& options, Case& value) {
  if (options.lane != GenerateOptions::Lane::kSim || options.policy) return;
  if (value.program.options.transport != reference::Transport::kNccl) return;
  Schedule& schedule = value.schedule;
  schedule.policy = static_cast<Policy>(random.weighted(weights_over_nccl()));
  if (schedule.policy != Policy::kDefault) schedule.deviations.clear();
}

}  // namespace lockstep::properties
