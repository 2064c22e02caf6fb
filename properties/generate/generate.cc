#include "properties/generate/generate.h"

#include <algorithm>
#include <array>
#include <bit>

#include "properties/case/fields.h"
#include "properties/generate/between.h"
#include "properties/generate/draw_switch.h"
#include "properties/generate/fault_plan.h"
#include "properties/generate/graph.h"
#include "properties/generate/interleave.h"
#include "properties/generate/misfit.h"
#include "properties/generate/portfolio.h"
#include "properties/generate/random.h"
#include "properties/generate/reach.h"
#include "properties/generate/recompute.h"
#include "properties/generate/rows.h"
#include "properties/generate/user_abort.h"
#include "properties/generate/user_hook.h"
#include "reference/arithmetic.h"
#include "reference/model.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using reference::Parameter;
using reference::PassKind;
using reference::Program;
using reference::RankPass;
using reference::Replicated;
using reference::Step;
using reference::ZeroGrad;

// How often an option has another value than its default.
template <auto member>
constexpr std::uint32_t percent_of = fields::row_of<member>().percent;

// The features that a case may have at all: drawn once (swarm), within the subject's capabilities.
struct Features {
  GraphFeatures graph;
  bool dynamic = false;
  bool is_static = false;
  bool views = false;
  bool rebuild = false;
  bool no_sync = false;
  bool no_grad = false;
  bool errors = false;
  bool local_only_params = false;  // static: parameters that no synced step uses accumulate locally
  bool asymmetric = false;
  bool shared = false;
  bool frozen = false;
  bool zero_size = false;
  bool column_major = false;
  bool devices = false;
};

class ProgramDrawer {
 public:
  ProgramDrawer(Random& random, Random run_mode_random, Random replica_random, const Extent& extent,
                const GenerateOptions& options, Program& program)
      : random_(random),
        extent_(extent),
        run_mode_random_(run_mode_random),
        replica_random_(replica_random),
        options_(options),
        can_(options.capabilities),
        program_(program) {}

  void draw();

 private:
  bool on(Capability capability, std::uint32_t percent) {
    return can_.has(capability) && random_.percent(percent);
  }
  void draw_features();
  void draw_world();
  void draw_options();
  void draw_dtypes();
  void draw_parameters();
  void draw_sizes(Parameter& parameter);
  std::uint32_t draw_elements(const Parameter& parameter);
  bool is_shared(std::size_t owner) const;
  void freeze();
  void ignore();
  void replicate();
  void tie_copies(std::uint32_t original, std::uint32_t copy, std::uint32_t count);
  void collect_names();
  void draw_run_modes();
  void draw_steps();
  void draw_kind(Step& step, PassKind before);
  std::uint32_t draw_variant_count();
  void draw_graph_step(Step& step);
  void draw_no_grad_step(Step& step);
  static void join_all_calls(Step& step);
  PassConstraints draw_constraints(PassKind kind, bool may_fail, ParameterSet common);
  ParameterSet subset(ParameterSet set, std::uint32_t percent);

  Random& random_;
  const Extent extent_;
  Random run_mode_random_;
  Random replica_random_;
  const GenerateOptions& options_;
  Capabilities can_;
  Program& program_;
  Features features_;
  std::array<DType, 5> dtypes_{};
  std::uint32_t dtype_count_ = 1;
  std::uint32_t replica_limit_ = 0;  // the most parameters, counting those of all replicas
  ParameterSet trains_ = 0;
  ParameterSet frozen_ = 0;
  Names names_;
  // Static mode: the passes of every legal synced step, once drawn, and the parameters that they
  // use.
  std::vector<RankPass> same_passes_;
  ParameterSet used_by_same_ = 0;
};

void ProgramDrawer::draw_features() {
  Features& f = features_;
  const std::uint32_t mode = random_.below(100);
  f.dynamic = can_.has(Capability::kDynamic) && mode < 42;
  f.is_static = can_.has(Capability::kStatic) && mode >= 75;
  f.views = on(Capability::kViews, 40);
  f.rebuild = on(Capability::kRebuild, 50);
  f.no_sync = on(Capability::kNoSync, 60);
  f.no_grad = on(Capability::kNoGrad, 30);
  f.errors = on(Capability::kErrors, f.is_static ? 32 : 16) && can_.has(Capability::kRecovery);
  f.local_only_params =
      f.is_static && f.errors && can_.has(Capability::kNoSync) && random_.percent(70);
  f.no_sync = f.no_sync || f.local_only_params;
  f.asymmetric = random_.percent(75);
  f.shared = on(Capability::kShared, 25);
  f.frozen = on(Capability::kFrozen, 30);
  f.zero_size = on(Capability::kZeroSize, 25);
  f.column_major = on(Capability::kStrides, 35);
  f.devices = on(Capability::kTwoDevices, 30);
  GraphFeatures& g = f.graph;
  g.checkpoint = on(Capability::kCheckpoint, 30);
  g.several_forwards = on(Capability::kSeveralForwards, 35);
  g.several_backwards = on(Capability::kSeveralBackwards, 35);
  g.discard = on(Capability::kDiscard, 35);
  g.keep_outputs = on(Capability::kKeepOutputs, 35);
  g.unused_outputs = random_.percent(40);
  g.stop = random_.percent(40) && can_.has(Capability::kUndefined);
  g.detach = random_.percent(35);
  g.split = random_.percent(35);
  g.scale = random_.percent(45);
  g.zero_scale = g.scale && random_.percent(40);
  g.fan_out = random_.percent(50);
  g.repeat = random_.percent(50);
  g.row_major = f.column_major && random_.percent(60);
  // In static mode accumulated parameters must be in use, and a stop would prevent that.
  if (f.is_static && f.no_sync) g.stop = false;
  if (f.errors) {  // most errors need one of these
    g.several_backwards = g.several_backwards || on(Capability::kSeveralBackwards, 50);
    g.checkpoint = g.checkpoint || on(Capability::kCheckpoint, 40);
  }
}

void ProgramDrawer::draw_world() {
  // The weights for 1 to 8 ranks.
  const std::uint32_t drawn =
      1 + random_.weighted(std::array<std::uint16_t, 8>{3, 44, 30, 13, 4, 2, 2, 2});
  program_.world = std::clamp(drawn, 1u, std::clamp(options_.max_world, 1u, reference::kMaxWorld));
  if (extent_.ranks != 0) program_.world = extent_.ranks;
  program_.key = random_.word();
  const std::uint32_t values = random_.weighted(fields::weights<reference::Values>());
  program_.values = static_cast<reference::Values>(values);
  if (program_.values == reference::Values::kSpecial && !can_.has(Capability::kSpecial))
    program_.values = reference::Values::kGeneral;
  if (can_.has(Capability::kRounding)) return;
  program_.values = reference::Values::kExact;
  program_.world = std::bit_floor(program_.world);  // other averages may be rounded
}

void ProgramDrawer::draw_options() {
  Replicated& options = program_.options;
  if (features_.dynamic) options.mode = reference::Mode::kDynamic;
  if (features_.is_static) options.mode = reference::Mode::kStatic;
  options.views = features_.views;
  options.rebuild = features_.rebuild;
  const std::uint32_t order = random_.below(100);
  if (can_.has(Capability::kBcube) && order < 20) options.order = reference::Order::kBcube;
  if (can_.has(Capability::kRankOrder) && order >= 75) options.order = reference::Order::kRankOrder;
  // The limits in bytes, for parameters of mostly 4 to 160 bytes: from one bucket per parameter to
  // one for all.
  constexpr std::array<std::uint16_t, 12> kLimits{1, 1, 8, 16, 32, 64, 65, 100, 128, 200, 256, 400};
  if (extent_.has_bucket_each) options.first_bucket_bytes = options.bucket_bytes = 1;
  if (random_.percent(12) || extent_.has_bucket_each) return;  // the limits stay what they are
  options.first_bucket_bytes = kLimits[random_.below(kLimits.size())];
  options.bucket_bytes =
      random_.percent(20) ? options.first_bucket_bytes : kLimits[random_.below(kLimits.size())];
}

// Draws the options for running the same program. It uses random numbers of its own, and always
// draws the same count, whatever the subject supports. So the rest of a seed's case does not depend
// on the subject.
void ProgramDrawer::draw_run_modes() {
  Replicated& options = program_.options;
  const bool manual_sync = run_mode_random_.percent(percent_of<&Replicated::manual_sync>);
  options.manual_sync = manual_sync && can_.has(Capability::kManualSync);
  const bool pinned = run_mode_random_.percent(percent_of<&Replicated::pinned>);
  const std::uint32_t order = run_mode_random_.below(1000);  // a small number is as good as any
  if (pinned && can_.has(Capability::kPinned)) options.pinned = 1 + order;
  const bool after_backward = run_mode_random_.percent(percent_of<&Replicated::launch>);
  const bool own_group = run_mode_random_.percent(percent_of<&Replicated::own_group>);
  if (!after_backward || !can_.has(Capability::kAfterBackward)) return;
  options.launch = reference::Launch::kAfterBackward;
  options.own_group = own_group;
}

void ProgramDrawer::draw_dtypes() {
  std::array<DType, 5> able{DType::kFloat32};
  std::uint32_t count = 1;
  if (can_.has(Capability::kFloat64)) able[count++] = DType::kFloat64;
  if (can_.has(Capability::kFloat16)) able[count++] = DType::kFloat16;
  if (can_.has(Capability::kBFloat16)) able[count++] = DType::kBFloat16;
  if (can_.has(Capability::kComplex64)) able[count++] = DType::kComplex64;
  for (std::uint32_t i = count; i > 1; --i) std::swap(able[i - 1], able[random_.below(i)]);
  dtypes_ = able;
  const bool mixed = random_.percent(40);
  if (mixed) {
    dtype_count_ = std::min(count, random_.between(2, 3));
  } else if (random_.percent(46)) {
    dtypes_[0] = DType::kFloat32;
  }
}

// Draws sizes around the relevant limits: chunks of the ring (W, 2W), 64 bytes, 0 and 1.
std::uint32_t ProgramDrawer::draw_elements(const Parameter& parameter) {
  if (features_.zero_size && random_.percent(25)) return 0;
  const std::uint32_t world = program_.world;
  switch (random_.weighted(std::array<std::uint16_t, 6>{15, 40, 12, 16, 14, 3})) {
    case 0:
      return 1;
    case 1:
      return random_.between(2, 40);
    case 2:
      return std::max(1u, world + random_.below(3) - 1);
    case 3:
      return 2 * world + random_.below(3) - 1;
    case 4: {
      const std::uint32_t line = 64 / reference::size_of(parameter.dtype);
      const std::uint32_t lines = random_.between(1, 3);  // apart: operands have no order
      return line * lines + random_.below(3) - 1;
    }
    default:
      return random_.between(41, 300);
  }
}

void ProgramDrawer::draw_sizes(Parameter& parameter) {
  const std::uint32_t elements = draw_elements(parameter);
  const bool strided = features_.column_major && random_.percent(60);
  if (!strided) {
    if (elements != 1 || random_.percent(30)) parameter.sizes = {elements};
    return;
  }
  const std::uint32_t rows = random_.between(2, 5);
  const std::uint32_t columns = elements == 0 ? 0 : (elements + rows - 1) / rows;
  if (random_.percent(25))
    parameter.sizes = {columns, 2, (rows + 1) / 2};
  else
    parameter.sizes = {rows, columns};
  parameter.column_major = random_.percent(65);
}

void ProgramDrawer::draw_parameters() {
  const std::uint32_t most = std::clamp(options_.max_parameters, 1u, reference::kMaxParameters);
  std::uint32_t count =
      random_.percent(85) ? random_.between(1, 5) : random_.between(6, kFewParameters);
  count = std::min(
      {extent_.parameters != 0 ? extent_.parameters : count, most, extent_.most_parameters});
  program_.parameters.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    Parameter& parameter = program_.parameters[i];
    parameter.key = random_.word();
    if (features_.shared && i > 0 && random_.percent(35)) {
      const std::uint32_t distance = random_.between(1, std::min(i, 3u));
      parameter.shared_with = distance;
      follows_owner(program_, i);
      continue;
    }
    parameter.dtype = dtypes_[dtype_count_ > 1 ? random_.below(dtype_count_) : 0];
    draw_sizes(parameter);
    if (features_.devices && random_.percent(45)) parameter.device = 1;
  }
  if (features_.frozen) freeze();
}

// Whether a later parameter is the same tensor.
bool ProgramDrawer::is_shared(std::size_t owner) const {
  for (std::size_t i = owner + 1; i < program_.parameters.size(); ++i) {
    const std::uint32_t distance = program_.parameters[i].shared_with;
    if (distance > 0 && i - distance <= owner) return true;  // possibly through another one
  }
  return false;
}

// Freezes some parameters at any position. Often the last one is frozen, and then it has a dtype of
// its own if there is one.
void ProgramDrawer::freeze() {
  std::uint32_t own = 0;
  for (const Parameter& parameter : program_.parameters) own += parameter.shared_with == 0 ? 1 : 0;
  const auto last = program_.parameters.size() - 1;
  const bool freeze_last = random_.percent(45);
  for (std::size_t i = 0; i <= last && own > 1; ++i) {
    Parameter& parameter = program_.parameters[i];
    const bool chosen = i == last ? freeze_last : random_.percent(25);
    if (parameter.shared_with != 0 || is_shared(i) || !chosen) continue;
    parameter.frozen = true;
    --own;
    if (i != last || !random_.percent(60)) continue;
    using enum Capability;
    constexpr std::pair<Capability, DType> kOthers[] = {
        {kFloat64, DType::kFloat64}, {kFloat16, DType::kFloat16}, {kBFloat16, DType::kBFloat16}};
    for (const auto& [capability, dtype] : kOthers) {
      const auto has_it = [dtype = dtype](const Parameter& p) {
        return p.shared_with == 0 && p.dtype == dtype;
      };
      if (can_.has(capability) &&
          std::none_of(program_.parameters.begin(), program_.parameters.end() - 1, has_it))
        parameter.dtype = dtype;
    }
  }
}

// Makes the reducer ignore some parameters (S3). At least one parameter that trains is not ignored.
// It draws as draw_run_modes() does.
void ProgramDrawer::ignore() {
  const bool is_on = run_mode_random_.percent(22);
  const std::uint32_t count = run_mode_random_.percent(25) ? 2 : 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t drawn =
        run_mode_random_.below(static_cast<std::uint32_t>(program_.parameters.size()));
    if (!is_on || !can_.has(Capability::kIgnored)) continue;
    const std::uint32_t owner = reference::owner_of(program_, drawn);
    std::uint32_t others = 0;
    for (std::uint32_t p = 0; p < program_.parameters.size(); ++p) {
      const bool is_other = reference::owner_of(program_, p) != owner;
      others += is_other && reference::is_reduced(program_.parameters[p]) ? 1 : 0;
    }
    if (others == 0) continue;
    for (std::uint32_t p = 0; p < program_.parameters.size(); ++p)
      if (reference::owner_of(program_, p) == owner) program_.parameters[p].ignored = true;
  }
}

// Adds copies of most parameters in one or two more replicas, often on the other device (P15). It
// uses random numbers of its own.
void ProgramDrawer::replicate() {
  Random& random = replica_random_;
  if (!random.percent(14) || !can_.has(Capability::kReplicas)) return;
  const std::uint32_t replicas = random.percent(70) ? 1 : 2;
  const std::uint32_t share = random.percent(60) ? 100 : 60;
  const bool on_other_device = random.percent(60) && can_.has(Capability::kTwoDevices);
  const auto count = static_cast<std::uint32_t>(program_.parameters.size());
  replica_limit_ = std::clamp(options_.max_parameters, 1u,
                              count > kFewParameters ? reference::kMaxParameters : kFewParameters);
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    for (std::uint32_t p = 0; p < count; ++p) {
      const std::uint32_t key = random.word();
      const auto at = static_cast<std::uint32_t>(program_.parameters.size());
      if (!is_original(program_.parameters[p]) || !random.percent(share)) continue;
      if (at >= replica_limit_) return;
      Parameter copy = program_.parameters[p];
      copy.key = key;
      copy.copy_of = at - p;
      if (on_other_device) copy.device = (copy.device + replica + 1) % reference::kMaxDevices;
      program_.parameters.push_back(copy);
      tie_copies(p, at, count);
    }
  }
}

// If the first replica lists a parameter twice, another replica does, too.
void ProgramDrawer::tie_copies(std::uint32_t original, std::uint32_t copy, std::uint32_t count) {
  for (std::uint32_t p = original + 1; p < count; ++p) {
    if (reference::owner_of(program_, p) != original || !replica_random_.percent(80)) continue;
    const auto at = static_cast<std::uint32_t>(program_.parameters.size());
    if (at >= replica_limit_) return;
    Parameter again = program_.parameters[copy];
    again.copy_of = 0;
    again.shared_with = at - copy;
    program_.parameters.push_back(again);
  }
}

void ProgramDrawer::collect_names() {
  std::uint8_t owners[reference::kMaxParameters];
  for (std::size_t i = 0; i < program_.parameters.size(); ++i) {
    const Parameter& parameter = program_.parameters[i];
    owners[i] = static_cast<std::uint8_t>(i);
    if (parameter.shared_with > 0) owners[i] = owners[i - parameter.shared_with];
    const std::uint8_t owner = owners[i];
    if (names_.count[owner] < 4)
      names_.of[owner][names_.count[owner]++] = static_cast<std::uint8_t>(i);
    if (owner != i) continue;
    // Ignored parameters may be used anywhere, too.
    (reference::is_reduced(parameter) ? trains_ : frozen_) |= ParameterSet{1} << i;
  }
}

ParameterSet ProgramDrawer::subset(ParameterSet set, std::uint32_t percent) {
  ParameterSet out = 0;
  for (; set != 0; set &= set - 1)
    if (random_.percent(percent)) out |= set & (~set + 1);
  return out;
}

std::uint32_t ProgramDrawer::draw_variant_count() {
  if (!features_.asymmetric || program_.world == 1) return 1;
  // Large groups with many parameters make expensive cases, so they get few variants.
  const bool dear = program_.world > 4 && program_.parameters.size() > 5;
  const std::uint32_t most = std::min(dear ? 2 : program_.world, extent_.most_variants);
  return random_.percent(70) ? most : random_.between(1, most);
}

void ProgramDrawer::draw_kind(Step& step, PassKind before) {
  step.key = random_.word();
  if (features_.no_sync && random_.percent(before == PassKind::kNoSync ? 40 : 35))
    step.kind = PassKind::kNoSync;
  else if (features_.no_grad && random_.percent(20))
    step.kind = PassKind::kNoGrad;
  // An accumulation window mostly continues; the other kinds of zero_grad end it on purpose.
  const bool window = before == PassKind::kNoSync;
  const std::array<std::uint16_t, 3> weights =
      window ? std::array<std::uint16_t, 3>{18, 14, 68} : std::array<std::uint16_t, 3>{60, 20, 20};
  step.zero_grad = static_cast<ZeroGrad>(random_.weighted(weights));
}

PassConstraints ProgramDrawer::draw_constraints(PassKind kind, bool may_fail, ParameterSet common) {
  PassConstraints constraints;
  constraints.frozen = frozen_;
  constraints.strict = kind == PassKind::kSynced && !may_fail;
  constraints.single_backward = constraints.strict && features_.dynamic;
  constraints.several_hooks = features_.is_static;
  // In static mode every accumulated parameter must be in use, so the drawn pass must use all of
  // them.
  const bool all_used = constraints.strict && features_.is_static && features_.no_sync;
  constraints.may_drop =
      !all_used && (!constraints.strict || features_.dynamic || features_.is_static);
  constraints.bodies_train = !constraints.single_backward;
  constraints.extra_discard = features_.graph.discard && random_.percent(30);
  const bool reach_all = constraints.strict && !features_.dynamic && !features_.is_static;
  if (reach_all)
    constraints.reach = trains_;
  else if (!random_.percent(8))  // otherwise nothing at all
    constraints.reach = random_.percent(40) ? common : subset(common, 75);
  if (kind == PassKind::kNoSync && !same_passes_.empty() && !features_.local_only_params)
    constraints.reach &= used_by_same_;
  return constraints;
}

void ProgramDrawer::draw_graph_step(Step& step) {
  const bool may_fail = features_.errors && !features_.local_only_params && random_.percent(45);
  const std::uint32_t count = draw_variant_count();
  const bool local_only_params = features_.local_only_params && step.kind == PassKind::kNoSync;
  const bool is_spare = features_.local_only_params && step.kind == PassKind::kSynced;
  const ParameterSet common = is_spare                                   ? subset(trains_, 50)
                              : local_only_params || random_.percent(45) ? trains_
                                                                         : subset(trains_, 70);
  const bool discard_all = features_.graph.discard && random_.percent(12);
  const bool same =
      features_.is_static && step.kind == PassKind::kSynced && !may_fail && !discard_all;
  // In static mode the first pass ends with its first backward, and later ones may have several.
  // After an error the next pass is a first one.
  if (same && !same_passes_.empty()) {
    step.variants = same_passes_;
    const bool is_spread = random_.percent(50) && can_.has(Capability::kErrors);
    if (features_.errors || !is_spread) join_all_calls(step);
    return;
  }
  step.variants.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    // A step that may fail does so on some ranks, not always on all.
    PassConstraints constraints =
        draw_constraints(step.kind, may_fail && random_.percent(60), common);
    constraints.discard_all = discard_all;
    // Without communication each rank may drop its outputs independently.
    if (step.kind == PassKind::kNoSync && features_.graph.discard && random_.percent(10))
      constraints.discard_all = true;
    step.variants.push_back(draw_pass(random_, features_.graph, names_, constraints));
    if (same) used_by_same_ |= constraints.reach;
  }
  if (!same) return;
  same_passes_ = step.variants;
  join_all_calls(step);
}

void ProgramDrawer::join_all_calls(Step& step) {
  for (RankPass& pass : step.variants) join_calls(pass);
}

// Without a graph one node is enough. Single ranks may run such a step.
void ProgramDrawer::draw_no_grad_step(Step& step) {
  const std::uint32_t count = draw_variant_count();
  step.variants.resize(count);
  const std::uint32_t runs = random_.below(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    RankPass& pass = step.variants[i];
    pass.skip = i != runs && random_.percent(60);
    reference::Forward& forward = pass.forwards.emplace_back();
    reference::Node& node = forward.nodes.emplace_back();
    node.key = random_.word();
    node.parameter = random_.below(static_cast<std::uint32_t>(program_.parameters.size()));
    forward.outputs.emplace_back();
  }
}

void ProgramDrawer::draw_steps() {
  std::uint32_t count = random_.percent(85) ? random_.between(4, 8) : random_.between(1, 3);
  count = std::min(
      {count, std::clamp(options_.max_steps, 1u, reference::kMaxSteps), extent_.most_steps});
  program_.steps.resize(count);
  PassKind before = PassKind::kSynced;
  for (Step& step : program_.steps) {
    draw_kind(step, before);
    before = step.kind;
    if (step.kind == PassKind::kNoGrad)
      draw_no_grad_step(step);
    else
      draw_graph_step(step);
  }
}

void ProgramDrawer::draw() {
  draw_features();
  draw_world();
  draw_options();
  draw_run_modes();
  draw_dtypes();
  draw_parameters();
  ignore();
  replicate();
  collect_names();
  draw_steps();
}

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

// Draws the state options (S3). It uses random numbers of its own, as draw_run_modes() does.
void draw_state(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(36) || !options.capabilities.has(Capability::kState)) return;
  program.options.with_values = random.percent(45);
  program.options.keep_buffers = random.percent(15);
  constexpr std::array<std::uint16_t, 5> kLimits{1, 24, 64, 100, 256};
  if (random.percent(75)) program.options.chunk_bytes = kLimits[random.below(kLimits.size())];
  const std::uint32_t count = random.percent(85) ? random.between(1, 4) : 0;
  const bool two_devices = options.capabilities.has(Capability::kTwoDevices) && random.percent(40);
  for (std::uint32_t b = 0; b < count; ++b) {
    reference::Buffer& buffer = program.buffers.emplace_back();
    buffer.key = random.word();
    const std::array<std::uint16_t, 4> dtypes{40, 30, 15, 15};
    buffer.dtype = static_cast<DType>(random.weighted(dtypes));
    if (random.percent(8))
      buffer.sizes = {0};
    else if (random.percent(25))
      buffer.sizes = {random.between(2, 4), random.between(2, 6)};
    else if (random.percent(70))
      buffer.sizes = {random.between(1, 40)};
    buffer.column_major = buffer.sizes.size() > 1 && random.percent(50);
    buffer.device = two_devices && random.percent(50) ? 1 : 0;
    buffer.ignored = random.percent(15);
    buffer.replaced = random.percent(30);
  }
  const bool has_replicas =
      std::any_of(program.parameters.begin(), program.parameters.end(),
                  [](const Parameter& parameter) { return parameter.copy_of > 0; });
  for (std::uint32_t b = 0; has_replicas && b < count; ++b) {
    if (!random.percent(70)) continue;
    reference::Buffer copy = program.buffers[b];
    copy.key = random.word();
    copy.copy_of = static_cast<std::uint32_t>(program.buffers.size()) - b;
    program.buffers.push_back(copy);
  }
}

template <class F>
void for_each_node(std::vector<reference::Node>& nodes, const F& f) {
  for (reference::Node& node : nodes) {
    f(node);
    for_each_node(node.body, f);
  }
}

// Turns some parameters into tables of rows (S1). It uses random numbers of its own.
void draw_sparse(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(16) || !options.capabilities.has(Capability::kSparse)) return;
  const std::uint32_t share = random.percent(25) ? 100 : 45;
  const bool zero_size = options.capabilities.has(Capability::kZeroSize);
  for (std::size_t p = 0; p < program.parameters.size(); ++p) {
    Parameter& parameter = program.parameters[p];
    if (follows_owner(program, p)) continue;
    parameter.sparse = random.percent(share);
    const std::uint32_t rows = random.percent(20) ? 1 : random.between(2, 12);
    const std::uint32_t columns = random.between(1, 6);
    const bool has_columns = random.percent(60);
    const bool is_empty = random.percent(4) && zero_size;
    if (!parameter.sparse) continue;
    parameter.sizes = {rows};
    if (has_columns) parameter.sizes.push_back(columns);
    if (is_empty)
      parameter.sizes[random.below(static_cast<std::uint32_t>(parameter.sizes.size()))] = 0;
  }
  const std::uint32_t most = random.percent(20) ? 20 : 6;
  const auto draw_entries = [&](reference::Node& node) {
    const std::uint32_t entries = random.below(most);  // 0 for some
    const auto& used = program.parameters[node.parameter % program.parameters.size()];
    if (node.kind == reference::Node::Kind::kUse && used.sparse) node.entries = entries;
  };
  for (Step& step : program.steps)
    for (RankPass& pass : step.variants)
      for (reference::Forward& forward : pass.forwards) for_each_node(forward.nodes, draw_entries);
}

// Makes some gradients, mostly one, require a gradient (P16). It uses random numbers of its own.
void draw_requires_grad(Random random, const GenerateOptions& options, Program& program) {
  const Capabilities can = options.capabilities;
  const bool is_able = can.has(Capability::kRequiresGrad) && can.has(Capability::kErrors) &&
                       can.has(Capability::kRecovery);
  if (!random.percent(4) || !is_able) return;
  const std::uint32_t share = random.percent(30) ? 30 : 6;
  const auto draw = [&](reference::Node& node) {
    if (node.kind == reference::Node::Kind::kUse) node.requires_grad = random.percent(share);
  };
  for (Step& step : program.steps)
    for (RankPass& pass : step.variants)
      for (reference::Forward& forward : pass.forwards) for_each_node(forward.nodes, draw);
}

// Applies a change that is drawn last, unless it makes a legal program illegal; then it undoes the
// change. This can happen in static mode, where the first pass determines what the others must be.
// In other modes it is so rare that the model runs only for a subject that must not meet an error.
template <class Change>
void change_legally(const GenerateOptions& options, Program& program, const Change& change) {
  Program changed = program;
  change(changed);
  const Capabilities can = options.capabilities;
  const bool may_fail = program.options.mode != reference::Mode::kStatic &&
                        can.has(Capability::kErrors) && can.has(Capability::kRecovery);
  take_change(may_fail, std::move(changed), program);
}

// Draws uneven inputs (S2). It uses random numbers of its own.
void draw_join(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(20) || !options.capabilities.has(Capability::kJoin)) return;
  program.options.join = random.percent(50) ? reference::Join::kByAll : reference::Join::kByActive;
  const Capabilities can = options.capabilities;
  const bool is_able = can.has(Capability::kErrors) && can.has(Capability::kRecovery);
  program.options.early_termination = random.percent(20) && is_able;
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

// Gives parameters the sizes of an earlier one, so that their gradients can be swapped.
void make_alike(Random& random, std::vector<Parameter>& parameters) {
  std::vector<bool> has_like(parameters.size());  // its shares or copies have its sizes
  for (std::size_t i = 0; i < parameters.size(); ++i)
    has_like[i - parameters[i].copy_of - parameters[i].shared_with] = !is_original(parameters[i]);
  const auto may_be = [&](std::size_t i) {
    return is_original(parameters[i]) && reference::is_reduced(parameters[i]) &&
           !parameters[i].sparse && !has_like[i];
  };
  for (std::size_t i = 1; i < parameters.size(); ++i) {
    const Parameter& before = parameters[i - 1];
    Parameter& parameter = parameters[i];
    if (!may_be(i - 1) || !may_be(i) || !random.percent(80)) continue;
    if (parameter.dtype == before.dtype && parameter.column_major == before.column_major)
      parameter.sizes = before.sizes;
  }
}

// Before some steps the user replaces gradients instead of leaving the existing ones (P10, B7). It
// uses random numbers of its own.
void draw_set_gradients(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(30) || !options.capabilities.has(Capability::kSetGradients)) return;
  if (program.options.mode == reference::Mode::kStatic && fails(program))
    return;  // the failure is intended
  change_legally(options, program, [&](Program& changed) {
    if (random.percent(75)) make_alike(random, changed.parameters);
    for (Step& step : changed.steps) {
      if (!random.percent(step.zero_grad == ZeroGrad::kKeep ? 80 : 30)) continue;
      step.zero_grad = random.percent(35) ? ZeroGrad::kReplace : ZeroGrad::kSwap;
    }
  });
}

// Moves some parameters to a second reducer, with a group of its own or the group of the first one
// (F7). If buckets are reduced while backward runs, hooks may run in a different order on every
// rank of a shared group; that is a mismatch. It uses random numbers of its own.
void draw_reducers(Random random, const GenerateOptions& options, Program& program) {
  const Capabilities can = options.capabilities;
  const bool is_after = random.percent(60) && can.has(Capability::kAfterBackward);
  program.options.group_each = random.percent(55);
  if (!program.options.group_each && is_after)
    program.options.launch = reference::Launch::kAfterBackward;
  const bool is_able = can.has(Capability::kRecovery) && can.has(Capability::kErrors);
  if (!program.options.group_each && !is_after && !is_able) program.options.group_each = true;
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

// Draws two groups of ranks that train separately. It uses random numbers of its own.
void draw_groups(Random random, const GenerateOptions& options, Program& program) {
  const bool is_small = program.world == 2 && !random.percent(30);
  const bool is_on = random.percent(17) && options.capabilities.has(Capability::kTwoGroups);
  if (!is_on || program.world < 2 || is_small) return;
  change_legally(options, program, [](Program& changed) { changed.options.two_groups = true; });
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
  for (Parameter& parameter : program.parameters) parameter.device = 0;
  for (reference::Buffer& buffer : program.buffers) buffer.device = 0;
  if (program.options.hook == reference::Hook::kPowerSgd)
    program.options.hook = reference::Hook::kAllReduce;
  if (program.options.transport == reference::Transport::kNccl &&
      program.options.order == reference::Order::kBcube)
    program.options.order = reference::Order::kRing;
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

GenerateOptions without_faults_if_unable(GenerateOptions options) {
  if (!options.capabilities.has(Capability::kFaults))
    options.faults = GenerateOptions::Faults::kNone;
  return options;
}

}  // namespace

Case generate(std::uint64_t seed, std::uint64_t index, const GenerateOptions& asked) {
  const GenerateOptions options = sized_for_lane(without_faults_if_unable(asked));
  const auto random_for = [&](std::string_view stream) { return Random(seed, index, stream); };
  Random random(seed, index);
  Case out;
  const Extent extent = draw_extent(random_for("extent"), options);
  ProgramDrawer(random, random_for("ways"), random_for("replicas"), extent, options, out.program)
      .draw();
  draw_state(random_for("state"), options, out.program);
  draw_join(random_for("join"), options, out.program);
  draw_sparse(random_for("sparse"), options, out.program);
  draw_requires_grad(random_for("requires"), options, out.program);
  draw_rows(random_for, options.capabilities, out.program.options);
  if (extent.has_bucket_each) out.program.options.last_bucket_bytes = 0;
  follow_verify(options.capabilities, out.program.options);
  draw_set_gradients(random_for("setgra"), options, out.program);
  if (out.program.options.join == reference::Join::kNone) {
    Random reducers = random_for("reducer");
    Random renewal = random_for("renewal");
    const bool is_able = options.capabilities.has(Capability::kReducers);
    if (reducers.percent(20) && is_able)
      change_legally(options, out.program,
                     [&](Program& p) { draw_reducers(reducers, options, p); });
    if (renewal.percent(14) && is_able)
      change_legally(options, out.program, [&](Program& p) { draw_renewal(renewal, p); });
  }
  draw_groups(random_for("groups"), options, out.program);
  draw_strides(random_for("strides"), options, out.program);
  draw_outputs(random_for("outputs"), options.capabilities, out.program);
  draw_schedule(random, options, out.schedule);
  draw_faults(random, options, out);
  draw_payload_faults(random_for("payload"), options, out);
  draw_hook(random, options, out.program);
  draw_transport(random_for("fabric"), options, out.program);
  draw_power_sgd_rank(random_for("power_sgd_rank"), out.program);
  draw_policy_over_nccl(random_for("policy"), options, out);
  draw_user_hook(random_for("userhook"), options, out);
  draw_recompute(random_for("recomp"), options, out.program);
  draw_interleaved(random_for("calls-order"), options, out.program);
  draw_between(random_for("between"), options, out.program);
  draw_call_faults(random_for("calls"), options, out);
  draw_device_faults(random_for("device-calls"), options, out);
  draw_long_pause(random_for("pause"), options, out);
  draw_misfit(random_for("misfit"), random_for("misfit-variant"), options, out);
  draw_reset_fault(random_for("reset"), options, out);
  draw_connect_fault(random_for("connect"), options, out);
  draw_memory_faults(random_for("memory"), random_for("step-memory"), options, out);
  draw_store_faults(random_for("store"), options, out);
  draw_user_abort(random_for("user-abort"), options, out);
  draw_delays_in_turn(random_for("turns"), options, out);
  draw_largest(random_for("largest"), options, out.program);
  draw_torch_options(random_for, options.capabilities, out);
  out.switched = draw_switch(random_for("switched"), options, out);
  draw_environment(random_for, out);
  return out;
}

}  // namespace lockstep::properties
