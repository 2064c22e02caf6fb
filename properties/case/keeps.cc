#include "properties/case/keeps.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "reference/model/engine.h"

namespace lockstep::properties::keeps {
namespace {

using reference::Hook;
using reference::HookResult;
using reference::Join;
using reference::Mode;
using reference::Node;
using reference::PassKind;
using reference::Program;
using reference::RankPass;
using reference::Recompute;
using reference::Replicated;
using reference::Step;
using reference::ZeroGrad;

template <typename F>
bool any_node(const std::vector<Node>& nodes, const F& is) {
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const Node& node) { return is(node) || any_node(node.body, is); });
}

template <typename F>
bool all_passes(const Program& program, const F& is) {
  return std::all_of(program.steps.begin(), program.steps.end(), [&](const Step& step) {
    return step.kind == PassKind::kNoGrad ||
           std::all_of(step.variants.begin(), step.variants.end(), is);
  });
}

bool starts_held(const RankPass& pass) {
  return std::any_of(pass.backwards.begin(), pass.backwards.end(),
                     [](const reference::Backward& call) { return call.held; });
}

// One backward, in which every use gets a gradient, once.
bool is_simple(const RankPass& pass) {
  const auto is_special = [](const Node& node) {
    return node.kind == Node::Kind::kStop || node.kind == Node::Kind::kCheckpoint;
  };
  return pass.recompute == Recompute::kNone && pass.backwards.size() <= 1 && !starts_held(pass) &&
         std::none_of(pass.forwards.begin(), pass.forwards.end(), [&](const auto& forward) {
           return forward.local || any_node(forward.nodes, is_special);
         });
}

// A bound on how many uses there are, each counted with the absolute value of the scalar that it
// passes on, when arrives[i] arrives at node i from outside of the nodes.
double uses_of(const std::vector<Node>& nodes, std::vector<double> arrives) {
  double uses = 0;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    double scalar = arrives[i];
    if (node.kind == Node::Kind::kStop || node.kind == Node::Kind::kDetach) scalar = 0;
    if (node.kind == Node::Kind::kScale) scalar *= std::abs(node.factor);
    if (node.kind == Node::Kind::kSplit) scalar *= 2;
    if (node.kind == Node::Kind::kUse) uses += scalar;
    if (node.kind == Node::Kind::kCheckpoint) {
      std::vector<double> roots(node.body.size());
      roots.back() = scalar;
      uses += uses_of(node.body, std::move(roots));
    }
    for (const reference::Input& input : node.inputs)
      if (i > 0) arrives[i - 1 - input.back % i] += scalar;
  }
  return uses;
}

double uses_of(const RankPass& pass) {
  double uses = 0;
  for (const reference::Forward& forward : pass.forwards) {
    const std::size_t count = forward.nodes.size();
    std::vector<double> roots(count);
    for (const reference::Input& output : forward.outputs)
      roots[count - 1 - output.back % count] += 1;
    uses += uses_of(forward.nodes, std::move(roots));
  }
  const double calls = std::max<double>(1, static_cast<double>(pass.backwards.size()));
  return uses * calls * (pass.recompute == Recompute::kNone ? 1 : 2);
}

double uses_of(const Step& step) {
  double most = 0;
  for (const RankPass& pass : step.variants) most = std::max(most, uses_of(pass));
  return most;
}

// The bits of the mantissa that all sums have.
int least_precision(const Program& program) {
  static constexpr int kBits[] = {24, 53, 11, 8, 24};  // by DType
  int least = 53;
  for (const reference::Parameter& parameter : program.parameters)
    if (reference::is_reduced(parameter))
      least = std::min(least, kBits[static_cast<std::size_t>(parameter.dtype)]);
  return least;
}

// Exact values are integers from 1 to 8 times the number of ranks, which must be a power of two, so
// that every mean is a multiple of a power of two. `unit` is the inverse of that power, and
// `magnitude` is the largest gradient of a rank.
bool has_exact_sums(const Program& program) {
  constexpr double kLargestInteger = 8;
  const Replicated& options = program.options;
  const bool averages = options.hook_result == HookResult::kMean &&
                        (options.hook == Hook::kNone || options.hook == Hook::kAllReduce ||
                         options.hook == Hook::kElsewhere);
  if (program.values != reference::Values::kExact || !std::has_single_bit(program.world) ||
      !averages || options.join != Join::kNone)
    return false;
  const double world = program.world;
  const double most = std::ldexp(1, least_precision(program));
  double magnitude = 0;
  double unit = 1;
  for (const Step& step : program.steps) {
    if (step.kind == PassKind::kNoGrad) continue;
    if (step.zero_grad == ZeroGrad::kUndefine || step.zero_grad == ZeroGrad::kFill)
      magnitude = 0, unit = 1;
    if (std::any_of(step.variants.begin(), step.variants.end(), starts_held)) return false;
    magnitude += kLargestInteger * world * uses_of(step);
    if (step.kind == PassKind::kSynced) unit *= world;
    if (world * magnitude * unit >= most) return false;
  }
  return true;
}

bool is_averaged_like_no_hook(const Replicated& options) {
  return options.hook == Hook::kNone || options.hook == Hook::kAllReduce ||
         (options.hook == Hook::kElsewhere && options.hook_result == HookResult::kMean);
}

bool has_even_inputs(const Program& program) {
  for (std::uint32_t rank = 0; rank < program.world; ++rank)
    for (std::uint32_t step = 0; step < program.steps.size(); ++step)
      if (!reference::has_input(program, rank, step)) return false;
  return program.rejoin_step == 0;
}

}  // namespace

bool has_sums_in_any_order(const Program& program) {
  const std::uint32_t groups = reference::group_count(program);
  return (program.world + groups - 1) / groups <= 2 || has_exact_sums(program);
}

bool always(const Case&, const Case&) { return true; }

bool mode(const Case& one, const Case&) {
  return one.program.options.mode == Mode::kPlain && one.program.options.join == Join::kNone &&
         all_passes(one.program, is_simple);
}

bool order(const Case& one, const Case& other) {
  return has_sums_in_any_order(one.program) && has_sums_in_any_order(other.program);
}

bool layout(const Case& one, const Case& other) {
  return one.program.options.order == reference::Order::kRankOrder || order(one, other);
}

bool rebuild(const Case& one, const Case& other) {
  return one.program.options.pinned == 0 &&
         one.program.options.launch == reference::Launch::kOverlapped && layout(one, other);
}

bool hook(const Case& one, const Case& other) {
  return is_averaged_like_no_hook(one.program.options) &&
         is_averaged_like_no_hook(other.program.options);
}

bool hook_of_user(const Case& one, const Case& other) {
  return one.program.options.hook == Hook::kElsewhere &&
         other.program.options.hook == Hook::kElsewhere;
}

bool broadcasts(const Case& one, const Case&) {
  return one.program.options.with_values || !one.program.buffers.empty();
}

bool without_local_use(const Case& one, const Case&) {
  return std::none_of(one.program.steps.begin(), one.program.steps.end(),
                      [](const Step& step) { return step.kind == PassKind::kNoSync; }) &&
         all_passes(one.program, [](const RankPass& pass) {
           return std::none_of(pass.forwards.begin(), pass.forwards.end(),
                               [](const auto& forward) { return forward.local; });
         });
}

bool finalization(const Case& one, const Case& other) {
  using enum TorchOptions::Finalization;
  const auto is_right_after = [](const Case& value) {
    return value.torch.finalization == kAutomatic || value.torch.finalization == kAfter;
  };
  const bool has_backwards = all_passes(
      one.program, [](const RankPass& pass) { return reference::kept_outputs(pass) > 0; });
  const bool has_whole_first_pass =
      one.program.options.mode != Mode::kStatic ||
      all_passes(one.program, [](const RankPass& pass) { return pass.backwards.size() <= 1; });
  return is_right_after(one) && is_right_after(other) && has_whole_first_pass &&
         (has_backwards || without_local_use(one, other));
}

bool even_inputs(const Case& one, const Case& other) {
  return has_even_inputs(one.program) && has_even_inputs(other.program);
}

}  // namespace lockstep::properties::keeps
