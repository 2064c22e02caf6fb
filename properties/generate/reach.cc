#include "properties/generate/reach.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "properties/generate/change.h"
#include "properties/generate/fault_plan.h"
#include "properties/generate/graph.h"
#include "reference/arithmetic.h"
#include "reference/model.h"

namespace lockstep::properties {
namespace {

using reference::Node;
using reference::Parameter;
using reference::Program;

// Whether every gradient that the model expects has finite values alone.
bool is_finite(const Program& program) {
  const auto expected = reference::run(program, reference::Contract::lockstep());
  for (const auto& step : expected.steps) {
    for (const auto& rank : step.ranks) {
      for (std::size_t p = 0; p < rank.gradients.size(); ++p) {
        const auto& gradient = rank.gradients[p];
        if (!gradient.known || !gradient.defined) continue;
        const Parameter& parameter = program.parameters[p];
        const auto first = expected.bits.begin() + static_cast<std::ptrdiff_t>(gradient.offset);
        const auto count = static_cast<std::ptrdiff_t>(reference::value_count(parameter));
        const bool all = std::all_of(first, first + count, [&](std::uint64_t bits) {
          return std::isfinite(reference::to_double(parameter.dtype, bits));
        });
        if (!all) return false;
      }
    }
  }
  return true;
}

// Appends a use of each of the parameters to the forward: a tree whose root takes the place of the
// first output, and passes on to it.
void add_uses(const std::vector<std::uint32_t>& parameters, reference::Forward& forward) {
  constexpr std::size_t kBranches = 4;
  static_assert(kBranches < reference::kMaxInputs);
  const std::size_t before = forward.nodes.size();
  const std::size_t count = parameters.size();
  if (count == 0) return;
  const auto back = [](std::size_t from, std::size_t to) {
    return static_cast<std::uint32_t>(from - 1 - to);
  };
  for (reference::Input& output : forward.outputs)
    output.back = back(before + count, before - 1 - output.back % before);
  for (std::size_t i = 0; i < count; ++i) {
    Node& node = forward.nodes.emplace_back();
    node.key = node.parameter = parameters[i];
    const std::size_t first_branch = kBranches * (count - 1 - i) + 1;
    for (std::size_t b = first_branch; b < std::min(first_branch + kBranches, count); ++b)
      node.inputs.push_back({back(before + i, before + count - 1 - b), 0});
  }
  const reference::Input output = std::exchange(forward.outputs[0], {});
  forward.nodes.back().inputs.push_back({output.back - 1, output.slot});
}

}  // namespace

Extent draw_extent(Random random, const GenerateOptions& options) {
  Extent extent;
  const std::uint32_t drawn = random.below(100);
  const std::uint32_t ranks = random.between(kFewRanks + 1, kMaxDrawnWorld);
  const std::uint32_t parameters = random.between(kFewParameters + 1, kMostDrawn);
  const std::uint32_t steps = random.between(1, 3);
  const bool has_bucket_each = random.percent(50);
  if (drawn < 2 && options.max_world >= ranks) {
    extent.ranks = ranks;
    extent.most_steps = std::min(steps, 2u);
    extent.most_parameters = 3;
    extent.most_variants = 3;
  } else if (drawn >= 2 && drawn < 5 && options.max_parameters >= parameters) {
    extent.parameters = parameters;
    extent.has_bucket_each = has_bucket_each;
    extent.most_steps = steps;
    extent.most_variants = 2;
  } else if (random.below(1000) < 4) {
    const bool is_able = options.max_parameters == reference::kMaxParameters &&
                         options.capabilities.has(Capability::kManyParameters);
    if (!is_able) return extent;
    extent.more_parameters = random.between(257, reference::kMaxParameters - kMostDrawn);
    extent.has_bucket_each = has_bucket_each;
    extent.most_steps = 2;
    extent.most_variants = 2;
  }
  return extent;
}

void draw_many_parameters(Random random, const GenerateOptions& options, const Extent& extent,
                          Program& program) {
  if (extent.more_parameters == 0) return;
  Program changed = program;
  changed.world =
      std::min(changed.world, options.capabilities.has(Capability::kRounding) ? 3U : 2U);
  const auto drawn = static_cast<std::uint32_t>(changed.parameters.size());
  const std::uint32_t first = random.percent(50) ? 0 : drawn;
  std::vector<Parameter> more(extent.more_parameters);
  for (Parameter& parameter : more) {
    parameter.key = random.word();
    parameter.dtype = program.parameters[random.below(drawn)].dtype;
    if (random.percent(20)) parameter.sizes = {random.between(1, 4)};
  }
  changed.parameters.insert(changed.parameters.begin() + first, more.begin(), more.end());
  for_each_node(changed, [&](Node& node) {
    node.parameter = node.parameter % drawn + (first == 0 ? extent.more_parameters : 0);
  });
  const bool may_miss = program.options.mode == reference::Mode::kDynamic;
  const std::uint32_t share = may_miss ? random.between(1, 99) : 100;
  for (reference::Step& step : changed.steps) {
    for (reference::RankPass& pass : step.variants) {
      const auto kept = std::ranges::find(pass.forwards, false, &reference::Forward::discard);
      if (step.kind == reference::PassKind::kNoGrad || kept == pass.forwards.end()) continue;
      std::vector<std::uint32_t> used;
      for (std::uint32_t p = first; p < first + extent.more_parameters; ++p)
        if (random.percent(share)) used.push_back(p);
      add_uses(used, *kept);
    }
  }
  take_change(false, std::move(changed), program);
}

bool follows_owner(Program& program, std::size_t index) {
  Parameter& parameter = program.parameters[index];
  const Parameter own = parameter;
  if (is_original(own)) return false;
  parameter = program.parameters[index - own.shared_with - own.copy_of];
  parameter.shared_with = own.shared_with;
  parameter.copy_of = own.copy_of;
  if (own.copy_of == 0) return true;
  parameter.key = own.key;
  parameter.device = own.device;
  return true;
}

void draw_strides(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(14) || !options.capabilities.has(Capability::kStrides)) return;
  const std::uint32_t way = random.below(3);  // permuted, with gaps, both
  const bool permutes = way != 1;
  const bool has_gaps = way != 0;
  for (std::size_t p = 0; p < program.parameters.size(); ++p) {
    Parameter& parameter = program.parameters[p];
    if (follows_owner(program, p)) continue;
    const bool is_chosen = random.percent(70) && !parameter.sparse;
    const std::uint32_t dims = random.percent(75) ? 3 : 4;
    const std::uint32_t order = random.below(dims == 3 ? 5 : 23);
    const std::uint32_t most = random.percent(20) ? 6 : 3;
    std::vector<std::uint32_t> sizes(dims);
    for (std::uint32_t& size : sizes) size = random.between(1, most);
    if (!is_chosen || !permutes || parameter.column_major) continue;
    if (element_count(parameter) == 0) sizes[0] = 0;
    parameter.sizes = sizes;
    parameter.permuted = 1 + order;
  }
  for_each_node(program, [&](Node& use) {
    if (use.kind != Node::Kind::kUse) return;
    const bool is_row_major = random.percent(25);
    const bool gaps = random.percent(50);
    use.row_major = use.row_major || (permutes && is_row_major);
    use.gaps = has_gaps && gaps;
  });
}

void draw_largest(Random random, const GenerateOptions& options, Program& program) {
  if (!random.percent(9) || !options.capabilities.has(Capability::kRounding)) return;
  Program changed = program;
  changed.values = reference::Values::kLargest;
  for (const std::uint32_t headroom : {0U, 3U, reference::kMaxHeadroom}) {
    changed.headroom = headroom;
    if (!is_finite(changed)) continue;
    program = std::move(changed);
    return;
  }
}

std::vector<std::string> reach_features(const Case& value) {
  std::vector<std::string> found;
  const Program& program = value.program;
  const auto add_if = [&](bool condition, const char* name) {
    if (condition) found.emplace_back(name);
  };
  const bool is_large = program.world > kFewRanks;
  add_if(is_large, "9 to 16 ranks");
  const std::size_t parameters = program.parameters.size();
  add_if(parameters > kFewParameters, "13 parameters or more");
  add_if(parameters > 32, "33 parameters or more");
  add_if(parameters > 256, "257 parameters or more");
  const std::uint32_t buckets = bucket_count(program);
  add_if(buckets > kFewParameters, "13 buckets or more");
  add_if(buckets > 256, "257 buckets or more");
  const bool is_largest = program.values == reference::Values::kLargest;
  add_if(is_largest && program.headroom == 0, "values largest, up to the largest finite one");
  add_if(is_largest && program.headroom > 0, "values largest, some doublings below");
  bool has_gaps = false;
  bool is_other_order = false;
  for_each_node(program, [&](const Node& use) {
    if (use.kind != Node::Kind::kUse) return;
    const Parameter& parameter = program.parameters[use.parameter % parameters];
    has_gaps = has_gaps || (use.gaps && !parameter.sparse && !parameter.sizes.empty());
    is_other_order = is_other_order || (use.row_major && parameter.permuted != 0);
  });
  add_if(is_other_order, "permuted dimensions, a row-major gradient");
  add_if(has_gaps, "a gradient with gaps");
  return found;
}

}  // namespace lockstep::properties
