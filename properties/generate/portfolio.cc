#include "properties/generate/portfolio.h"

#include <array>
#include <cstdint>

#include "properties/case/fields.h"

namespace lockstep::properties {
namespace {

using Policy = Schedule::Policy;

struct Share {
  Policy policy;
  std::uint16_t on_host;  // weights
  std::uint16_t over_nccl;
};
constexpr Share kShares[] = {
    {Policy::kDefault, 14, 4},     {Policy::kRandomWalk, 26, 4}, {Policy::kStayBiased, 12, 4},
    {Policy::kRoundRobin, 12, 4},  {Policy::kPos, 20, 80},       {Policy::kPct, 7, 4},
    {Policy::kDelayBounded, 3, 4}, {Policy::kUrw, 3, 4},         {Policy::kSurw, 3, 4},
};

Policy draw(Random& random, std::uint16_t Share::*weight) {
  std::array<std::uint16_t, std::size(kShares)> weights{};
  static_assert(std::size(weights) == fields::Names<Policy>::list.size());
  for (std::size_t i = 0; i < std::size(weights); ++i) weights[i] = kShares[i].*weight;
  return kShares[random.weighted(weights)].policy;
}

}  // namespace

Policy draw_policy(Random& random) { return draw(random, &Share::on_host); }

void draw_policy_over_nccl(Random random, const GenerateOptions& options, Case& value) {
  if (options.lane != GenerateOptions::Lane::kSim || options.policy) return;
  if (value.program.options.transport != reference::Transport::kNccl) return;
  Schedule& schedule = value.schedule;
  schedule.policy = draw(random, &Share::over_nccl);
  if (schedule.policy != Policy::kDefault) schedule.deviations.clear();
}

}  // namespace lockstep::properties
