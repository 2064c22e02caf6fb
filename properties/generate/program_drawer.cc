#include "properties/generate/program_drawer.h"

#include <algorithm>
#include <array>
#include <bit>

#include "properties/case/fields.h"
#include "properties/generate/graph.h"
#include "reference/arithmetic.h"

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
  bool repeated_hooks = false;
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
  f.repeated_hooks = !f.dynamic && !f.is_static && on(Capability::kRepeatedHooks, 60);
  f.views = on(Capability::kViews, 40);
  f.rebuild = on(Capability::kRebuild, 50);
  f.no_sync = on(Capability::kNoSync, 60);
  f.no_grad = on(Capability::kNoGrad, 30);
  f.errors = on(Capability::kErrors, f.is_static ? 32 : 16);
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
  options.repeated_hooks = features_.repeated_hooks;
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
  const std::uint32_t most = std::clamp(options_.max_parameters, 1u, kMostDrawn);
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

// Returns whether a later parameter is the same tensor.
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
  replica_limit_ =
      std::clamp(options_.max_parameters, 1u, count > kFewParameters ? kMostDrawn : kFewParameters);
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
  std::uint8_t owners[kMostDrawn];
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
  constraints.several_hooks = features_.is_static || features_.repeated_hooks;
  constraints.in_several_calls = features_.repeated_hooks;
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

}  // namespace

void draw_program(Random& random, Random run_modes, Random replicas, const Extent& extent,
                  const GenerateOptions& options, Program& program) {
  ProgramDrawer(random, run_modes, replicas, extent, options, program).draw();
}

}  // namespace lockstep::properties
