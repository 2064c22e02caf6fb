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
// The weights favour what finds the planted bugs of the transport that need a schedule in the least
// time: round robin and the random walk on the host, partial order sampling over NCCL. Cases with
// urw and surw run twice.
constexpr Share kShares[] = {
    {Policy::kDefault, 14, 2},     {Policy::kRandomWalk, 27, 3}, {Policy::kStayBiased, 4, 5},
    {Policy::kRoundRobin, 30, 2},  {Policy::kPos, 9, 78},        {Policy::kPct, 7, 4},
    {Policy::kDelayBounded, 2, 2}, {Policy::kUrw, 2, 2},         {Policy::kSurw, 5, 2},
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
