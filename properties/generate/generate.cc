#include "properties/generate/generate.h"

#include <algorithm>
#include <array>

#include "properties/case/fields.h"
#include "properties/generate/between.h"
#include "properties/generate/disagreement.h"
#include "properties/generate/draw_switch.h"
#include "properties/generate/fault_plan.h"
#include "properties/generate/graph.h"
#include "properties/generate/interleave.h"
#include "properties/generate/membership.h"
#include "properties/generate/portfolio.h"
#include "properties/generate/program_drawer.h"
#include "properties/generate/random.h"
#include "properties/generate/reach.h"
#include "properties/generate/recompute.h"
#include "properties/generate/rows.h"
#include "properties/generate/tensors.h"
#include "properties/generate/user_abort.h"
#include "properties/generate/user_hook.h"
#include "reference/exclusions.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using reference::Parameter;
using reference::Program;

// Few parameters are large enough for compression, so some become matrices that are.
void draw_matrices(Random& random, Program& program) {
  const bool all_floats = random.percent(60);
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    Parameter& parameter = program.parameters[i];
    if (follows_owner(program, i)) continue;
    if (all_floats) parameter.dtype = DType::kFloat32;
    if (parameter.dtype == DType::kFloat32 && !parameter.sparse && random.percent(80)) {
      parameter.sizes = {random.between(4, 9), random.between(3, 12)};
      parameter.permuted = 0;
    }
  }
}

// The hook is the last draw from the main stream of random numbers, so that it changes nothing that
// is drawn from that stream.
void draw_hook(Random& random, const GenerateOptions& options, Program& program) {
  if (!options.capabilities.has(Capability::kHooks) || !random.percent(38)) return;
  program.options.hook =
      static_cast<reference::Hook>(random.weighted(fields::weights<reference::Hook>()));
  if (program.options.hook == reference::Hook::kPowerSgd) draw_matrices(random, program);
}

// Draws whether parameters are on a GPU, and the transport of their gradients. It uses random
// numbers of its own.
void draw_transport(Random random, const GenerateOptions& options, Program& program) {
  const bool is_able =
      options.lane != GenerateOptions::Lane::kGloo && options.capabilities.has(Capability::kGpu);
  using reference::Transport;
  const bool is_drawn = random.percent(10);
  Transport transport = random.percent(55) ? Transport::kNccl : Transport::kStaged;
  if (!is_drawn) transport = Transport::kHost;
  if (options.lane == GenerateOptions::Lane::kNccl) transport = Transport::kNccl;
  transport = options.transport.value_or(transport);
  if (transport == Transport::kHost || !is_able) return;
  program.options.transport = transport;
}

void draw_schedule(Random& random, const GenerateOptions& options, Schedule& schedule) {
  if (options.lane != GenerateOptions::Lane::kSim) return;  // real threads follow no schedule
  const Schedule::Policy drawn = draw_policy(random);
  schedule.policy = options.policy.value_or(drawn);
  schedule.seed = random.word();
  if (schedule.policy != Schedule::Policy::kDefault || random.percent(40)) return;
  const std::uint32_t count = random.between(1, 4);
  std::uint32_t choice = 0;
  schedule.deviations.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    choice += random.below(80);
    schedule.deviations.push_back({choice++, random.below(24)});
  }
}

// Real ranks are threads and processes, so there are few of them. On a GPU that ranks share, each
// collective takes some 10 to 20 ms.
GenerateOptions sized_for_lane(GenerateOptions options) {
  if (options.lane != GenerateOptions::Lane::kSim)
    options.max_world = std::min(options.max_world, kFewRanks);
  if (options.lane != GenerateOptions::Lane::kNccl) return options;
  options.max_world = std::min(options.max_world, 3U);
  options.max_parameters = std::min(options.max_parameters, 8U);
  options.max_steps = std::min(options.max_steps, 5U);
  return options;
}

GenerateOptions limited_to_subject(GenerateOptions options) {
  if (!options.capabilities.has(Capability::kFaults))
    options.faults = GenerateOptions::Faults::kNone;
  return options;
}

}  // namespace

Case generate(std::uint64_t seed, std::uint64_t index, const GenerateOptions& asked) {
  const GenerateOptions options = sized_for_lane(limited_to_subject(asked));
  const auto random_for = [&](std::string_view stream) { return Random(seed, index, stream); };
  Random random(seed, index);
  Case out;
  const Extent extent = draw_extent(random_for("extent"), options);
  draw_program(random, random_for("ways"), random_for("replicas"), extent, options, out.program);
  draw_many_parameters(random_for("many"), options, extent, out.program);
  draw_empty_bucket(random_for("empty-bucket"), options, out.program);
  draw_bad_number(random_for("bad-number"), options, out.program);
  draw_state(random_for("state"), options, out.program);
  draw_join(random_for("join"), options, out.program);
  draw_sparse(random_for("sparse"), options, out.program);
  draw_requires_grad(random_for("requires"), options, out.program);
  draw_rows(random_for, options.capabilities, out.program.options);
  if (extent.has_bucket_each) out.program.options.last_bucket_bytes = 0;
  follow_verify(options.capabilities, out.program.options);
  draw_set_gradients(random_for("setgra"), options, out.program);
  draw_several_reducers(random_for("reducer"), random_for("renewal"), options, out.program);
  draw_groups(random_for("groups"), options, out.program);
  draw_strides(random_for("strides"), options, out.program);
  draw_outputs(random_for("outputs"), options.capabilities, out.program);
  draw_schedule(random, options, out.schedule);
  draw_faults(random, options, out);
  draw_payload_faults(random_for("payload"), options, out);
  draw_hook(random, options, out.program);
  draw_transport(random_for("fabric"), options, out.program);
  reference::leave_out_excluded(out.program);
  draw_policy_over_nccl(random_for("policy"), options, out);
  draw_user_hook(random_for("userhook"), options, out);
  reference::leave_out_excluded(out.program);
  draw_recompute(random_for("recomp"), options, out.program);
  draw_interleaved(random_for("calls-order"), options, out.program);
  draw_between(random_for("between"), options, out.program);
  draw_constant_roots(random_for("constant-roots"), out.program);
  draw_call_faults(random_for("calls"), options, out);
  draw_device_faults(random_for("device-calls"), options, out);
  draw_long_pause(random_for("pause"), options, out);
  draw_disagreement(random_for("misfit"), random_for("misfit-variant"), options, out);
  draw_reset_fault(random_for("reset"), options, out);
  draw_connect_fault(random_for("connect"), options, out);
  draw_memory_faults(random_for("memory"), random_for("step-memory"), options, out);
  draw_store_faults(random_for("store"), options, out);
  draw_user_abort(random_for("user-abort"), options, out);
  draw_delays_in_turn(random_for("turns"), options, out);
  draw_largest(random_for("largest"), options, out.program);
  draw_absent_rank(random_for("absent"), options, out);
  draw_torch_options(random_for, options.capabilities, out);
  out.switched = draw_switch(random_for("switched"), options, out);
  draw_rows(random_for, out.environment);
  normalize_surroundings(out);
  return out;
}

}  // namespace lockstep::properties
