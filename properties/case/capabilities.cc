#include "properties/case/capabilities.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reference/model.h"

namespace lockstep::properties {
namespace {

using reference::Node;

struct Description {
  const char* name;
  const char* meaning;
};

constexpr std::array<Description, kCapabilities> kDescriptions{{
    {"dynamic", "unused detection"},
    {"no_sync", "accumulation without communication"},
    {"no_grad", "forwards without gradients"},
    {"checkpoint", "nested backward"},
    {"several_forwards", "several forwards before a backward"},
    {"several_backwards", "several backward calls of one step"},
    {"discard", "dropped outputs"},
    {"keep_outputs", "outputs kept past the backward"},
    {"shared", "shared parameters"},
    {"frozen", "frozen parameters"},
    {"float64", "64-bit floats"},
    {"float16", "16-bit floats"},
    {"bfloat16", "bfloat16"},
    {"strides", "parameters that are not row-major, or gradients in other strides or with gaps"},
    {"zero_size", "parameters without elements"},
    {"two_devices", "parameters on two devices"},
    {"bcube", "Gloo's bcube order"},
    {"special", "NaN, infinities and subnormals"},
    {"errors", "programs that end in an error"},
    {"recovery", "reset after an error"},
    {"static", "static graphs"},
    {"views", "gradients as bucket views"},
    {"rank_order", "sums in the order of the ranks"},
    {"rebuild", "buckets rebuilt in ready order"},
    {"hooks", "communication hooks"},
    {"manual_sync", "sync_gradients after local forwards"},
    {"pinned", "pinned layouts"},
    {"after_backward", "reduction after backward"},
    {"state", "buffers and values of parameters"},
    {"ignored", "ignored parameters"},
    {"join", "uneven inputs"},
    {"sparse", "sparse gradients"},
    {"requires_grad", "gradients that require a gradient"},
    {"complex64", "complex numbers"},
    {"verify", "verified payloads (checksums)"},
    {"replicas", "several replicas in a process"},
    {"reducers", "several reducers of one model"},
    {"two_groups", "groups of ranks that train apart"},
    {"card", "parameters on a card"},
    {"three_limits", "a list of three bucket limits"},
    {"set_gradients", "gradients that are replaced or swapped"},
    {"constants", "outputs without a graph"},
    {"hold_outputs", "outputs held past the next step"},
    {"hook_results", "communication hooks that do not average"},
    {"hook_calls", "communication hooks with futures, backwards or error codes of their own"},
    {"recompute", "a checkpoint around the whole model"},
    {"misfits", "a construction or a reset that must be refused"},
}};

class Collector {
 public:
  void add_if(bool condition, Capability capability) {
    if (condition) found_ = found_.with(capability);
  }
  void parameter(const reference::Program& program, std::size_t index) {
    const reference::Parameter& parameter = program.parameters[index];
    const bool shared = parameter.shared_with > 0 && parameter.shared_with <= index;
    add_if(shared, Capability::kShared);
    if (shared) return;  // everything else belongs to the owner
    using reference::DType;
    add_if(parameter.frozen, Capability::kFrozen);
    add_if(parameter.ignored, Capability::kIgnored);
    add_if(parameter.dtype == DType::kFloat64, Capability::kFloat64);
    add_if(parameter.dtype == DType::kFloat16, Capability::kFloat16);
    add_if(parameter.dtype == DType::kBFloat16, Capability::kBFloat16);
    add_if(parameter.dtype == DType::kComplex64, Capability::kComplex64);
    add_if(parameter.sparse, Capability::kSparse);
    add_if(!reference::is_row_major(parameter), Capability::kStrides);
    add_if(reference::element_count(parameter) == 0, Capability::kZeroSize);
    add_if(parameter.copy_of > 0, Capability::kReplicas);
    add_if(parameter.device % reference::kMaxDevices != 0, Capability::kTwoDevices);
  }
  void nodes(const std::vector<Node>& list) {
    for (const Node& node : list) {
      add_if(node.kind == Node::Kind::kUse && (node.row_major || node.gaps), Capability::kStrides);
      add_if(node.kind == Node::Kind::kCheckpoint, Capability::kCheckpoint);
      add_if(node.kind == Node::Kind::kUse && node.requires_grad, Capability::kRequiresGrad);
      if (node.kind == Node::Kind::kCheckpoint) nodes(node.body);
    }
  }
  void pass(const reference::Step& step, const reference::RankPass& pass) {
    const bool graph = step.kind != reference::PassKind::kNoGrad;
    add_if(!graph, Capability::kNoGrad);
    const auto kept = std::count_if(pass.forwards.begin(), pass.forwards.end(),
                                    [](const auto& forward) { return !forward.discard; });
    add_if(graph && kept > 1, Capability::kSeveralForwards);
    add_if(graph && pass.backwards.size() > 1, Capability::kSeveralBackwards);
    add_if(graph && pass.keep_outputs, Capability::kKeepOutputs);
    add_if(graph && pass.hold_outputs, Capability::kHoldOutputs);
    add_if(pass.recompute != reference::Recompute::kNone, Capability::kRecompute);
    for (const reference::Forward& forward : pass.forwards) {
      add_if(graph && forward.discard, Capability::kDiscard);
      add_if(graph && forward.constants > 0, Capability::kConstants);
      if (graph) nodes(forward.nodes);
    }
  }
  Capabilities found() const { return found_; }

 private:
  Capabilities found_;
};

}  // namespace

const char* name_of(Capability capability) {
  return kDescriptions[static_cast<std::size_t>(capability) % kDescriptions.size()].name;
}

const char* meaning_of(Capability capability) {
  return kDescriptions[static_cast<std::size_t>(capability) % kDescriptions.size()].meaning;
}

std::vector<std::string> names(Capabilities capabilities) {
  std::vector<std::string> out;
  for (int i = 0; i < kCapabilities; ++i)
    if (capabilities.has(static_cast<Capability>(i)))
      out.emplace_back(kDescriptions[static_cast<std::size_t>(i)].name);
  return out;
}

Capabilities needed(const Case& value) {
  Case normal = value;
  normalize(normal);
  const reference::Program& program = normal.program;
  Collector out;
  out.add_if(program.options.mode == reference::Mode::kDynamic, Capability::kDynamic);
  out.add_if(program.options.mode == reference::Mode::kStatic, Capability::kStatic);
  out.add_if(program.options.order == reference::Order::kRankOrder, Capability::kRankOrder);
  out.add_if(program.options.verify, Capability::kVerify);
  out.add_if(program.options.transport != reference::Transport::kHost, Capability::kGpu);
  out.add_if(program.options.rebuild, Capability::kRebuild);
  out.add_if(program.options.views, Capability::kViews);
  out.add_if(reference::bucket_limits(program.options).size() > 2, Capability::kThreeLimits);
  out.add_if(program.options.hook != reference::Hook::kNone, Capability::kHooks);
  const reference::Options& options = program.options;
  out.add_if(options.hook_result != reference::HookResult::kMean, Capability::kHookResults);
  out.add_if(options.hook_completion != reference::HookCompletion::kImmediate ||
                 options.hook_backward != reference::HookBackward::kNone,
             Capability::kHookCalls);
  out.add_if(program.options.manual_sync, Capability::kManualSync);
  out.add_if(program.options.pinned != 0, Capability::kPinned);
  out.add_if(program.options.launch == reference::Launch::kAfterBackward,
             Capability::kAfterBackward);
  out.add_if(program.options.join != reference::Join::kNone, Capability::kJoin);
  out.add_if(reference::reducer_count(program) > 1 || program.recreate_before_step > 0,
             Capability::kReducers);
  out.add_if(program.options.two_groups, Capability::kTwoGroups);
  out.add_if(program.misfit.kind != reference::MisfitKind::kNone, Capability::kMisfits);
  out.add_if(program.options.with_values || !program.buffers.empty(), Capability::kState);
  out.add_if(program.options.order == reference::Order::kBcube, Capability::kBcube);
  out.add_if(program.values == reference::Values::kSpecial, Capability::kSpecial);
  for (std::size_t i = 0; i < program.parameters.size(); ++i) out.parameter(program, i);
  for (const reference::Buffer& buffer : program.buffers)
    out.add_if(buffer.copy_of > 0, Capability::kReplicas);
  for (const reference::Step& step : program.steps) {
    out.add_if(step.kind == reference::PassKind::kNoSync, Capability::kNoSync);
    out.add_if(step.zero_grad > reference::ZeroGrad::kKeep, Capability::kSetGradients);
    for (const reference::RankPass& pass : step.variants) out.pass(step, pass);
  }
  for (const faults::Fault& fault : normal.faults.faults) {
    out.add_if(fault.kind == faults::Kind::kHookFails, Capability::kHookCalls);
    out.add_if(!faults::is_benign(fault.kind), Capability::kRecovery);
  }
  const reference::Expectation expectation =
      reference::run(program, reference::Contract::lockstep());
  for (const reference::ExpectedStep& step : expectation.steps) {
    out.add_if(step.any_error, Capability::kErrors);
    out.add_if(step.any_error, Capability::kRecovery);
  }
  return out.found();
}

Capabilities missing(const Case& value, Capabilities capabilities) {
  return needed(value).without(capabilities);
}

std::string missing_message(const Case& value, Capabilities capabilities,
                            std::string_view subject) {
  std::vector<std::string> lacks;
  const Capabilities all = missing(value, capabilities);
  for (int i = 0; i < kCapabilities; ++i) {
    const auto capability = static_cast<Capability>(i);
    if (all.has(capability))
      lacks.push_back(fmt::format("{} ({})", name_of(capability), meaning_of(capability)));
  }
  if (lacks.empty()) return {};
  return fmt::format("the case needs {}, which the subject '{}' does not support",
                     fmt::join(lacks, ", "), subject);
}

}  // namespace lockstep::properties
