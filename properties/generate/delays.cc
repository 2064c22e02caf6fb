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

constexpr std::uint32_t kPercent = 3;         // of cases
constexpr std::uint32_t kDynamicPercent = 5;  // in dynamic mode
// Over NCCL ranks look into the store while a collective is late, and notice most of what fails so.
constexpr std::uint32_t kNcclPercent = 20;
constexpr std::uint32_t kMostDelays = 6;
constexpr std::uint32_t kLeastUs = 20;
// Four such delays together are longer than what a caller waits behind a group: two timeouts and a
// second (deadline_behind() of reducer/comm/process_group.h).
constexpr std::uint32_t kTightPercent = 15;  // where no rank waits for the last collective first
constexpr std::uint32_t kTightUs = 1'200'000;
constexpr std::uint32_t kTightMostUs = 1'500'000;

// A timeout begins when the collective runs (F1), so that it needs to be longer than one delay
// alone.
void draw_tight_timeout(Random& random, Fault& delay, Case& value) {
  delay.duration_us = random.between(kTightUs, kTightMostUs);
  value.timeout_ms = delay.duration_us / 1000 + random.between(100, 300);
}

// A rank waits for two delays of a peer where the collective before made it wait for nobody: one
// without elements, and a broadcast from it. Over NCCL a collective may have two delays, and each
// of two reducers has its own collectives.
bool may_have_tight_timeout(const reference::Program& program) {
  const bool may_broadcast = program.options.rebuild || !program.buffers.empty();
  const bool is_nccl = program.options.transport == reference::Transport::kNccl;
  if (may_broadcast || is_nccl) return false;
  return reference::reducer_count(program) == 1 &&
         std::none_of(
             program.parameters.begin(), program.parameters.end(),
             [](const reference::Parameter& each) { return reference::element_count(each) == 0; });
}

}  // namespace

void draw_delays_in_turn(Random random, const GenerateOptions& options, Case& value) {
  const reference::Program& program = value.program;
  std::vector<Fault>& plan = value.faults.faults;
  const bool is_nccl = program.options.transport == reference::Transport::kNccl;
  const bool is_able = options.lane == GenerateOptions::Lane::kSim && program.world > 1 &&
                       !program.steps.empty() && options.faults != GenerateOptions::Faults::kNone &&
                       drawable_kinds(options).has(Kind::kOperationDelay);
  const bool is_dynamic = program.options.mode == reference::Mode::kDynamic;
  const std::uint32_t usual = is_dynamic ? kDynamicPercent : kPercent;
  if (!is_able || !random.percent(is_nccl ? kNcclPercent : usual)) return;
  Fault delay;
  delay.kind = Kind::kOperationDelay;
  delay.rank = random.below(program.world);
  delay.step = draw_synced_step(random, program);
  // Half of them last for longer than a group over NCCL waits before it looks into the store.
  delay.duration_us = kLeastUs << random.below(random.percent(50) ? 6 : 13);
  const bool is_tight = plan.empty() && value.timeout_ms == 0 && may_have_tight_timeout(program) &&
                        (random.percent(kTightPercent) || is_dynamic);
  if (is_tight) draw_tight_timeout(random, delay, value);
  const std::uint32_t count = is_tight ? kMostDelays : random.between(2, kMostDelays);
  const std::uint32_t first =
      is_tight || random.percent(50) ? 0 : random.below(bucket_count(program) + 1);
  for (std::uint32_t i = 0; i < count && plan.size() < fields::kMaxFaults; ++i) {
    delay.site = first + i;
    plan.push_back(delay);
    if (value.timeout_ms != 0 && !is_tight) value.timeout_ms += 1 + 2 * (delay.duration_us / 1000);
  }
}

}  // namespace lockstep::properties
