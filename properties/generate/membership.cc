#include "properties/generate/membership.h"

#include <algorithm>

#include "properties/generate/change.h"
#include "properties/generate/reach.h"
#include "reference/exclusions.h"

namespace lockstep::properties {
namespace {

using reference::Parameter;
using reference::PassKind;
using reference::Program;
using reference::Step;

// Moves some parameters to a second reducer, with a group of its own or the group of the first one
// (F7). If buckets are reduced while backward runs, hooks may run in a different order on every
// rank of a shared group; that is a mismatch. It uses random numbers of its own.
void draw_reducers(Random random, const GenerateOptions& options, Program& program) {
  const Capabilities can = options.capabilities;
  const bool is_after = random.percent(60) && can.has(Capability::kAfterBackward);
  program.options.group_each = random.percent(55);
  if (!program.options.group_each && is_after)
    program.options.launch = reference::Launch::kAfterBackward;
  if (!program.options.group_each && !is_after && !can.has(Capability::kErrors))
    program.options.group_each = true;
  // Buckets that are equal in everything could be confused with each other.
  const bool are_alike = !program.options.group_each && !is_after && random.percent(60);
  std::uint32_t own = 0;  // parameters of the first reducer that train
  std::uint32_t others = 0;
  for (std::size_t p = 0; p < program.parameters.size(); ++p) {
    Parameter& parameter = program.parameters[p];
    const bool is_second = random.percent(50);
    if (follows_owner(program, p)) continue;
    if (are_alike && !parameter.sparse && !program.parameters[0].sparse) {
      parameter.dtype = program.parameters[0].dtype;
      parameter.sizes = program.parameters[0].sizes;
    }
    const bool trains = reference::is_reduced(parameter);
    parameter.reducer = trains && own > 0 && (others == 0 || is_second) ? 1 : 0;
    if (trains) ++(parameter.reducer > 0 ? others : own);
  }
}

// Draws a reducer that follows another one. It uses random numbers of its own.
void draw_renewal(Random random, Program& program) {
  const auto steps = static_cast<std::uint32_t>(program.steps.size());
  if (steps > 1) program.recreate_before_step = random.between(1, steps - 1);
}

}  // namespace

void draw_join(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(20) || !options.capabilities.has(Capability::kJoin)) return;
  program.options.join = random.percent(50) ? reference::Join::kByAll : reference::Join::kByActive;
  program.options.early_termination =
      random.percent(20) && options.capabilities.has(Capability::kErrors);
  const auto steps = static_cast<std::uint32_t>(program.steps.size());
  // In static mode accumulated parameters must be in use, and the first pass decides which ones
  // are.
  std::uint32_t least = 0;
  const auto is_local = [](const Step& step) { return step.kind == PassKind::kNoSync; };
  const auto is_pass = [](const Step& step) {
    const auto& forwards = step.variants[0].forwards;
    return step.kind == PassKind::kSynced &&
           !std::all_of(forwards.begin(), forwards.end(), [](const auto& f) { return f.discard; });
  };
  if (program.options.mode == reference::Mode::kStatic &&
      std::any_of(program.steps.begin(), program.steps.end(), is_local)) {
    const auto first = std::find_if(program.steps.begin(), program.steps.end(), is_pass);
    least = std::min(steps, static_cast<std::uint32_t>(first - program.steps.begin()) + 1);
  }
  program.steps_per_rank.resize(program.world);
  for (std::uint32_t& inputs : program.steps_per_rank) {
    inputs = steps;
    if (random.percent(12))
      inputs = 0;
    else if (random.percent(55))
      inputs = random.between(1, steps);
    inputs = std::max(inputs, least);
  }
  if (!random.percent(40) || steps < 2) return;
  change_legally(options, program, [&](Program& changed) {
    changed.rejoin_step = random.between(1, steps - 1);
    const std::uint32_t longest = std::max(changed.rejoin_step, steps - changed.rejoin_step);
    for (std::uint32_t& inputs : changed.steps_per_rank)
      if (inputs > longest || random.percent(50))
        inputs = std::max(random.below(longest + 1), least);
  });
}

void draw_groups(Random random, const GenerateOptions& options, Program& program) {
  const bool is_small = program.world == 2 && !random.percent(30);
  const bool is_on = random.percent(17) && options.capabilities.has(Capability::kTwoGroups);
  if (!is_on || is_small || is_excluded(&reference::Replicated::two_groups, program)) return;
  change_legally(options, program, [](Program& changed) { changed.options.two_groups = true; });
}

void draw_absent_rank(Random random, const GenerateOptions& options, Case& value) {
  const Capabilities can = options.capabilities;
  const bool is_able = can.has(Capability::kAbsent) && !value.program.steps.empty();
  const auto& plan = value.faults.faults;
  const bool is_faulty = std::any_of(plan.begin(), plan.end(), [](const faults::Fault& each) {
    return !faults::is_benign(each.kind);
  });
  // In real time ranks wait for seconds.
  using Lane = GenerateOptions::Lane;
  const std::uint32_t percent = options.lane == Lane::kSim    ? 26
                                : options.lane == Lane::kGloo ? 6
                                                              : 0;
  if (!random.percent(percent) || !is_able || is_faulty) return;
  // Most programs in plain mode are legal, and stay so if the subject has others that fail.
  const bool stays_legal =
      value.program.options.mode == reference::Mode::kPlain && can.has(Capability::kErrors);
  if (stays_legal && !fails(value.program)) return;
  Case with_absent = value;
  Program& changed = with_absent.program;
  Step& step = changed.steps[random.below(static_cast<std::uint32_t>(changed.steps.size()))];
  const std::size_t shared = step.variants.size();
  for (std::size_t rank = shared; rank < changed.world; ++rank)
    step.variants.push_back(step.variants[rank % shared]);
  reference::RankPass& pass = step.variants[random.below(changed.world)];
  pass.absent = true;
  const std::uint32_t way = random.below(3);
  pass.skip = way == 0 || !can.has(way == 1 ? Capability::kDiscard : Capability::kNoSync);
  if (way == 1 && !pass.skip)
    for (reference::Forward& forward : pass.forwards) forward.discard = true;
  reference::normalize(changed);
  const bool stays_able = can.has(Capability::kErrors) || missing(with_absent, can).empty();
  if (has_absent_rank(changed) && stays_able) value.program = std::move(changed);
}

void draw_several_reducers(Random reducers, Random renewal, const GenerateOptions& options,
                           Program& program) {
  if (is_excluded(&Parameter::reducer, program)) return;
  const bool is_able = options.capabilities.has(Capability::kReducers);
  if (reducers.percent(20) && is_able)
    change_legally(options, program, [&](Program& p) { draw_reducers(reducers, options, p); });
  if (renewal.percent(14) && is_able)
    change_legally(options, program, [&](Program& p) { draw_renewal(renewal, p); });
}

}  // namespace lockstep::properties
