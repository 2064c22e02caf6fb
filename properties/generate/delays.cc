// Delays of a rank's collectives in turn: its peers meet it at each of them, or at a later one.
#include <algorithm>
#include <vector>

#include "properties/case/fields.h"
#include "properties/generate/fault_plan.h"
#include "reference/program.h"

namespace lockstep::properties {
namespace {

using faults::Fault;
using faults::Kind;

constexpr std::uint32_t kPercent = 3;  // of cases
// Over NCCL ranks look into the store while a collective is late, and notice most of what fails so.
constexpr std::uint32_t kNcclPercent = 20;
constexpr std::uint32_t kMostDelays = 6;
constexpr std::uint32_t kLeastUs = 20;

}  // namespace

void draw_delays_in_turn(Random random, const GenerateOptions& options, Case& value) {
  const reference::Program& program = value.program;
  std::vector<Fault>& plan = value.faults.faults;
  const bool is_nccl = program.options.transport == reference::Transport::kNccl;
  const bool is_able = options.lane == GenerateOptions::Lane::kSim && program.world > 1 &&
                       !program.steps.empty() && options.faults != GenerateOptions::Faults::kNone &&
                       drawable_kinds(options).has(Kind::kOperationDelay);
  if (!is_able || !random.percent(is_nccl ? kNcclPercent : kPercent)) return;
  Fault delay;
  delay.kind = Kind::kOperationDelay;
  delay.rank = random.below(program.world);
  delay.step = draw_synced_step(random, program);
  // Half of them last for longer than a group over NCCL waits before it looks into the store.
  delay.duration_us = kLeastUs << random.below(random.percent(50) ? 6 : 13);
  const std::uint32_t count = random.between(2, kMostDelays);
  const std::uint32_t first = random.percent(50) ? 0 : random.below(bucket_count(program) + 1);
  for (std::uint32_t i = 0; i < count && plan.size() < fields::kMaxFaults; ++i) {
    delay.site = first + i;
    plan.push_back(delay);
    if (value.timeout_ms != 0) value.timeout_ms += 1 + 2 * (delay.duration_us / 1000);
  }
}

}  // namespace lockstep::properties
