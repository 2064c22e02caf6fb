#include "reference/program.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace lockstep::reference {
namespace {

// Enumerators are counted from 0; `last` is the one with the largest number.
template <class E>
void limit(E& value, E last) {
  value = static_cast<E>(static_cast<unsigned>(value) % (static_cast<unsigned>(last) + 1));
}

void limit_sizes(std::vector<std::uint32_t>& sizes) {
  if (sizes.size() > kMaxDims) sizes.resize(kMaxDims);
  for (std::uint32_t& size : sizes) size = std::min(size, kMaxSize);
  if (std::find(sizes.begin(), sizes.end(), 0U) != sizes.end()) return;  // no elements at all
  std::uint32_t elements = 1;
  for (std::uint32_t& size : sizes) {
    size = std::min(size, kMaxElements / elements);
    elements *= size;
  }
  assert(elements > 0 && elements <= kMaxElements);
}

// Returns in how many orders this number of dimensions can lie in memory.
std::uint32_t orders_of(std::size_t dims) {
  std::uint32_t orders = 1;
  for (std::uint32_t d = 2; d <= dims; ++d) orders *= d;
  return orders;
}

// Of the records before `index`, the one that this one copies; or itself.
template <class Record>
std::size_t copied_by(const std::vector<Record>& records, std::size_t index) {
  const std::uint32_t distance = records[index].copy_of;
  if (distance == 0 || distance > index) return index;
  std::size_t original = index - distance;
  if constexpr (requires { records[0].shared_with; })
    while (records[original].shared_with > 0) original -= records[original].shared_with;
  original -= records[original].copy_of;
  std::uint32_t copies = 0;
  for (std::size_t i = original + 1; i < index; ++i)
    if (records[i].copy_of > 0 && i - records[i].copy_of == original) ++copies;
  return copies + 1 < kMaxReplicas ? original : index;
}

void limit_copy(std::vector<Parameter>& parameters, std::size_t index) {
  const std::size_t original = copied_by(parameters, index);
  Parameter& parameter = parameters[index];
  parameter.copy_of = static_cast<std::uint32_t>(index - original);
  if (original == index) return;
  const Parameter own = parameter;
  parameter = parameters[original];
  parameter.key = own.key;
  parameter.device = own.device;
  parameter.copy_of = own.copy_of;
}

void limit_copy(std::vector<Buffer>& buffers, std::size_t index) {
  const std::size_t original = copied_by(buffers, index);
  Buffer& buffer = buffers[index];
  buffer.copy_of = static_cast<std::uint32_t>(index - original);
  buffer.dtype = buffers[original].dtype;
  buffer.sizes = buffers[original].sizes;
  buffer.ignored = buffers[original].ignored;
}

void limit_parameters(std::vector<Parameter>& parameters) {
  if (parameters.empty()) parameters.emplace_back();
  if (parameters.size() > kMaxParameters) parameters.resize(kMaxParameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = parameters[i];
    const std::uint32_t distance = parameter.shared_with > i ? 0 : parameter.shared_with;
    if (distance > 0) {
      parameter = parameters[i - distance];
      parameter.copy_of = 0;
    }
    parameter.shared_with = distance;
    if (distance == 0) limit_copy(parameters, i);
    limit(parameter.dtype, DType::kComplex64);
    parameter.device %= kMaxDevices;
    limit_sizes(parameter.sizes);
    parameter.sparse = parameter.sparse && !parameter.sizes.empty();
    const bool has_orders = !parameter.column_major && !parameter.sparse;
    parameter.permuted = has_orders ? parameter.permuted % orders_of(parameter.sizes.size()) : 0;
    parameter.reducer %= kMaxReducers;
  }
}

// Gives all parameters to the first reducer if it would have none, or if there is a join.
void limit_reducers(Program& program) {
  std::vector<Parameter>& parameters = program.parameters;
  const bool is_alone = program.options.join != Join::kNone ||
                        std::all_of(parameters.begin(), parameters.end(),
                                    [](const Parameter& each) { return each.reducer > 0; });
  if (!is_alone) return;
  for (Parameter& parameter : parameters) parameter.reducer = 0;
}

// `budget` is the number of nodes the forward may still have; `depth` that of the checkpoints
// around.
void limit_nodes(std::vector<Node>& nodes, std::uint32_t depth, std::uint32_t& budget) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (budget == 0) {
      nodes.resize(i);
      return;
    }
    --budget;
    Node& node = nodes[i];
    limit(node.kind, Node::Kind::kCheckpoint);
    node.factor = std::clamp(node.factor, -2, 2);
    node.entries = std::min(node.entries, kMaxEntries);
    if (node.inputs.size() > kMaxInputs) node.inputs.resize(kMaxInputs);
    if (node.kind == Node::Kind::kCheckpoint && depth < kMaxDepth) {
      limit_nodes(node.body, depth + 1, budget);
    } else {
      node.body.clear();
    }
    if (node.kind == Node::Kind::kCheckpoint && node.body.empty()) node.kind = Node::Kind::kSum;
  }
}

void limit_outputs(Forward& forward) {
  if (forward.outputs.empty()) forward.outputs.emplace_back();
  if (forward.outputs.size() > kMaxOutputs) forward.outputs.resize(kMaxOutputs);
  const auto same_output = [&](const Input& a, const Input& b) {
    const auto count = static_cast<std::uint32_t>(forward.nodes.size());
    if (a.back % count != b.back % count) return false;
    const Node& node = forward.nodes[count - 1 - a.back % count];
    return node.kind != Node::Kind::kSplit || a.slot % 2 == b.slot % 2;
  };
  std::vector<Input>& outputs = forward.outputs;
  for (std::size_t i = 1; i < outputs.size();) {
    const auto end = outputs.begin() + static_cast<std::ptrdiff_t>(i);
    const bool known = std::any_of(outputs.begin(), end, [&](const Input& earlier) {
      return same_output(earlier, outputs[i]);
    });
    if (known) {
      outputs.erase(end);
    } else {
      ++i;
    }
  }
}

void limit_pass(RankPass& pass, PassKind kind) {
  if (kind != PassKind::kNoGrad) pass.skip = false;
  if (!pass.keep_outputs) pass.hold_outputs = false;
  if (pass.forwards.empty()) pass.forwards.emplace_back();
  if (pass.forwards.size() > kMaxForwards) pass.forwards.resize(kMaxForwards);
  for (Forward& forward : pass.forwards) {
    std::uint32_t budget = kMaxNodes;
    if (forward.nodes.empty()) forward.nodes.emplace_back();
    limit_nodes(forward.nodes, 0, budget);
    limit_outputs(forward);
    forward.constants = std::min(forward.constants, kMaxConstants);
  }
  if (pass.backwards.size() > kMaxBackwards) pass.backwards.resize(kMaxBackwards);
  for (Backward& backward : pass.backwards) {
    if (backward.roots.size() > kMaxRoots) backward.roots.resize(kMaxRoots);
  }
}

bool keeps_a_forward(const RankPass& pass) {
  return std::any_of(pass.forwards.begin(), pass.forwards.end(),
                     [](const Forward& forward) { return !forward.discard; });
}

void limit_to_transport(Program& program) {
  limit(program.options.transport, Transport::kNccl);
  if (program.options.transport == Transport::kHost) return;
  for (Parameter& parameter : program.parameters) parameter.device = 0;
  for (Buffer& buffer : program.buffers) buffer.device = 0;
  if (program.options.hook == Hook::kPowerSgd) program.options.hook = Hook::kNone;
  const bool has_bcube = program.options.transport != Transport::kNccl;
  if (program.options.order == Order::kBcube && !has_bcube) program.options.order = Order::kRing;
}

// Call limit_to_transport() before: the transport may rule a hook out.
void limit_hook(Options& options) {
  limit(options.hook_result, HookResult::kZeros);
  limit(options.hook_completion, HookCompletion::kReversed);
  limit(options.hook_backward, HookBackward::kAll);
  if (options.rebuild && options.hook_backward == HookBackward::kAll)
    options.hook_backward = HookBackward::kNone;
  if (options.hook == Hook::kElsewhere) return;
  options.hook_result = HookResult::kMean;
  options.hook_completion = HookCompletion::kImmediate;
  options.hook_backward = HookBackward::kNone;
}

void limit_step(Step& step, std::uint32_t world) {
  limit(step.kind, PassKind::kNoGrad);
  limit(step.zero_grad, ZeroGrad::kSwap);
  if (step.variants.empty()) step.variants.emplace_back();
  if (step.variants.size() > world) step.variants.resize(world);
  for (RankPass& pass : step.variants) limit_pass(pass, step.kind);
  if (step.kind != PassKind::kSynced) return;
  if (std::none_of(step.variants.begin(), step.variants.end(), keeps_a_forward)) return;
  for (RankPass& pass : step.variants) {
    if (!keeps_a_forward(pass)) pass.forwards.back().discard = false;
  }
}

// Call this after all that may_recompute() looks at is limited.
void limit_recompute(Program& program) {
  for (Step& step : program.steps)
    for (RankPass& pass : step.variants) {
      limit(pass.recompute, Recompute::kTwiceFails);
      if (!may_recompute(program.options, step, pass)) pass.recompute = Recompute::kNone;
    }
}

}  // namespace

void normalize(Program& program) {
  program.world = std::clamp<std::uint32_t>(program.world, 1, kMaxWorld);
  limit(program.values, Values::kLargest);
  program.headroom =
      program.values == Values::kLargest ? std::min(program.headroom, kMaxHeadroom) : 0;
  limit(program.options.mode, Mode::kStatic);
  limit(program.options.order, Order::kRankOrder);
  if (program.options.order != Order::kRankOrder) program.options.verify = false;
  limit(program.options.hook, Hook::kPowerSgd);
  limit(program.options.launch, Launch::kAfterBackward);
  limit(program.options.join, Join::kByActive);
  if (program.options.join == Join::kNone) program.options.early_termination = false;
  if (program.steps_per_rank.size() > program.world) program.steps_per_rank.resize(program.world);
  if (program.world < 2) program.options.two_groups = false;
  limit_parameters(program.parameters);
  limit_reducers(program);
  if (program.buffers.size() > kMaxBuffers) program.buffers.resize(kMaxBuffers);
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    Buffer& buffer = program.buffers[i];
    limit_copy(program.buffers, i);
    limit(buffer.dtype, DType::kComplex64);
    buffer.device %= kMaxDevices;
    limit_sizes(buffer.sizes);
  }
  limit_to_transport(program);
  limit_hook(program.options);
  if (program.steps.size() > kMaxSteps) program.steps.resize(kMaxSteps);
  for (Step& step : program.steps) limit_step(step, program.world);
  limit_recompute(program);
  const auto steps = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(program.steps.size()));
  const bool joins = program.options.join != Join::kNone;
  program.rejoin_step = joins ? program.rejoin_step % steps : 0;
  program.recreate_before_step = joins ? 0 : program.recreate_before_step % steps;
  limit_misfit(program);
}

bool may_recompute(const Options& options, const Step& step, const RankPass& pass) {
  return step.kind == PassKind::kSynced && pass.forwards.size() == 1 &&
         !pass.forwards.front().discard && pass.backwards.size() <= 1 && !pass.keep_outputs &&
         !options.manual_sync && !options.early_termination;
}

std::vector<std::uint32_t> pinned_order(const Program& program) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    if (is_reduced(parameter) && is_original(parameter)) order.push_back(i);
  }
  std::uint64_t state = program.options.pinned;
  for (std::size_t left = order.size(); left > 1; --left) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::swap(order[left - 1], order[(state >> 33) % left]);
  }
  return order;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> swapped_gradients(const Program& program) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  std::vector<std::uint32_t> single;
  for (std::uint32_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& right = program.parameters[i];
    if (!is_reduced(right) || !is_original(right) || right.sparse) continue;
    const auto is_like_it = [&](std::uint32_t other) {
      const Parameter& left = program.parameters[other];
      return left.reducer == right.reducer && left.device == right.device &&
             left.dtype == right.dtype && left.sizes == right.sizes &&
             left.column_major == right.column_major && left.permuted == right.permuted;
    };
    const auto left = std::find_if(single.begin(), single.end(), is_like_it);
    if (left == single.end()) {
      single.push_back(i);
      continue;
    }
    pairs.emplace_back(*left, i);
    single.erase(left);
  }
  return pairs;
}

std::vector<std::uint64_t> bucket_limits(const Options& options) {
  if (options.launch == Launch::kAfterBackward) return {options.bucket_bytes};
  std::vector<std::uint64_t> limits{options.first_bucket_bytes, options.bucket_bytes};
  if (options.last_bucket_bytes != 0) limits.push_back(options.last_bucket_bytes);
  return limits;
}

std::uint32_t reducer_count(const Program& program) {
  std::uint32_t last = 0;
  for (const Parameter& parameter : program.parameters) last = std::max(last, parameter.reducer);
  return last + 1;
}

Program share_of(const Program& program, std::uint32_t reducer) {
  Program share = program;
  for (Parameter& parameter : share.parameters) {
    parameter.ignored = parameter.ignored || parameter.reducer != reducer;
    parameter.reducer = 0;
  }
  for (Buffer& buffer : share.buffers) buffer.ignored = buffer.ignored || reducer > 0;
  return share;
}

std::uint32_t end_of_join(const Program& program, std::uint32_t step) {
  return step < program.rejoin_step ? program.rejoin_step
                                    : static_cast<std::uint32_t>(program.steps.size());
}

bool has_input(const Program& program, std::uint32_t rank, std::uint32_t step) {
  const bool is_limited =
      program.options.join != Join::kNone && rank < program.steps_per_rank.size();
  const std::uint32_t first = step < program.rejoin_step ? 0 : program.rejoin_step;
  return !is_limited || step - first < program.steps_per_rank[rank];
}

std::uint64_t element_count(const std::vector<std::uint32_t>& sizes) {
  std::uint64_t count = 1;
  for (const std::uint32_t size : sizes) count *= size;
  return count;
}

std::uint64_t element_count(const Parameter& parameter) { return element_count(parameter.sizes); }

std::uint64_t value_count(const Parameter& parameter) {
  return element_count(parameter) * parts_of(parameter.dtype);
}

std::uint64_t gradient_words(const Parameter& parameter) {
  return value_count(parameter) + (parameter.sparse ? parameter.sizes[0] : 0);
}

DType wire_dtype(Hook hook, DType dtype) {
  const bool is_wide = dtype == DType::kFloat32 || dtype == DType::kFloat64;
  if (is_wide && hook == Hook::kFloat16) return DType::kFloat16;
  if (is_wide && hook == Hook::kBFloat16) return DType::kBFloat16;
  return dtype;
}

std::uint32_t owner_of(const Program& program, std::uint32_t index) {
  assert(index < program.parameters.size());
  while (program.parameters[index].shared_with > 0) {
    assert(program.parameters[index].shared_with <= index);
    index -= program.parameters[index].shared_with;
  }
  return index;
}

std::uint32_t original_of(const Program& program, std::uint32_t index) {
  const std::uint32_t owner = owner_of(program, index);
  assert(program.parameters[owner].copy_of <= owner);
  return owner - program.parameters[owner].copy_of;
}

std::vector<std::uint32_t> dimensions_in_memory(const Parameter& parameter) {
  std::vector<std::uint32_t> left(parameter.sizes.size());
  std::iota(left.begin(), left.end(), 0U);
  if (parameter.column_major) std::reverse(left.begin(), left.end());
  if (is_row_major(parameter) || parameter.column_major) return left;
  std::vector<std::uint32_t> order;
  std::uint32_t number = parameter.permuted % orders_of(left.size());
  while (!left.empty()) {
    const std::uint32_t others = orders_of(left.size() - 1);
    const auto chosen = left.begin() + static_cast<std::ptrdiff_t>(number / others);
    number %= others;
    order.push_back(*chosen);
    left.erase(chosen);
  }
  return order;
}

std::uint64_t row_major_to_memory(const Parameter& parameter, std::uint64_t element) {
  assert(element < value_count(parameter));
  if (is_row_major(parameter)) return element;
  const std::uint64_t parts = parts_of(parameter.dtype);
  const std::uint64_t part = element % parts;
  element /= parts;
  const std::vector<std::uint32_t> outermost_first = dimensions_in_memory(parameter);
  std::vector<std::uint64_t> strides(parameter.sizes.size());
  std::uint64_t next = 1;
  for (std::size_t i = strides.size(); i-- > 0;) {
    strides[outermost_first[i]] = next;
    next *= parameter.sizes[outermost_first[i]];
  }
  std::uint64_t position = 0;
  for (std::size_t dim = strides.size(); dim-- > 0;) {
    position += element % parameter.sizes[dim] * strides[dim];
    element /= parameter.sizes[dim];
  }
  return position * parts + part;
}

}  // namespace lockstep::reference
