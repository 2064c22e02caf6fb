#include "reference/program.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <set>

#include "reference/exclusions.h"

namespace lockstep::reference {
namespace {

// Enumerators are counted from 0; `last` is the one with the largest number.
template <class E>
void limit(E& value, E last) {
  value = static_cast<E>(static_cast<unsigned>(value) % (static_cast<unsigned>(last) + 1));
}

template <class T>
void limit_count(std::vector<T>& list, std::size_t least, std::size_t most) {
  list.resize(std::clamp(list.size(), least, most));
}

void limit_sizes(std::vector<std::uint32_t>& sizes) {
  limit_count(sizes, 0, kMaxDims);
  for (std::uint32_t& size : sizes) size = std::min(size, kMaxSize);
  if (std::ranges::find(sizes, 0U) != sizes.end()) return;  // no elements at all
  std::uint32_t elements = 1;
  for (std::uint32_t& size : sizes) {
    size = std::min(size, kMaxElements / elements);
    elements *= size;
  }
  assert(elements > 0 && elements <= kMaxElements);
}

// Of the records before `index`, the one that this one copies; or itself.
template <class Record>
std::size_t copied_by(const std::vector<Record>& records, std::size_t index) {
  const std::uint32_t distance = records[index].copy_of;
  if (distance == 0 || distance > index) return index;
  std::size_t original = index - distance;
  if constexpr (requires { records[0].shared_with; })
    while (records[original].shared_with > 0) original -= records[original].shared_with;
  assert(records[original].copy_of <= original);
  original -= records[original].copy_of;
  assert(records[original].copy_of == 0);
  std::uint32_t copies = 0;
  for (std::size_t i = original + 1; i < index; ++i)
    if (records[i].copy_of > 0 && i - records[i].copy_of == original) ++copies;
  return copies + 1 < kMaxReplicas ? original : index;
}

void limit_parameters(std::vector<Parameter>& parameters) {
  limit_count(parameters, 1, kMaxParameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter own = parameters[i];
    const std::uint32_t distance = own.shared_with > i ? 0 : own.shared_with;
    const std::size_t original = distance > 0 ? i - distance : copied_by(parameters, i);
    Parameter& parameter = parameters[i] = parameters[original];
    parameter.shared_with = distance;
    parameter.copy_of = distance > 0 ? 0 : static_cast<std::uint32_t>(i - original);
    if (distance == 0) {
      parameter.key = own.key;
      parameter.device = own.device;
    }
    limit(parameter.dtype, DType::kComplex64);
    parameter.device %= kMaxDevices;
    limit_sizes(parameter.sizes);
    parameter.sparse = parameter.sparse && !parameter.sizes.empty();
    const bool has_orders = !parameter.column_major && !parameter.sparse;
    parameter.permuted =
        has_orders ? parameter.permuted % memory_orders(parameter.sizes.size()) : 0;
    parameter.reducer %= kMaxReducers;
    assert(parameter.copy_of == 0 || is_original(parameters[original]));
  }
}

// Gives all parameters to the first reducer if it would have none.
void limit_reducers(std::vector<Parameter>& parameters) {
  if (std::ranges::all_of(parameters, [](const Parameter& each) { return each.reducer > 0; }))
    for (Parameter& parameter : parameters) parameter.reducer = 0;
}

void limit_buffers(std::vector<Buffer>& buffers) {
  limit_count(buffers, 0, kMaxBuffers);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    Buffer& buffer = buffers[i];
    const std::size_t original = copied_by(buffers, i);
    buffer.copy_of = static_cast<std::uint32_t>(i - original);
    assert(buffers[original].copy_of == 0);
    buffer.dtype = buffers[original].dtype;
    buffer.sizes = buffers[original].sizes;
    buffer.ignored = buffers[original].ignored;
    limit(buffer.dtype, DType::kComplex64);
    buffer.device %= kMaxDevices;
    limit_sizes(buffer.sizes);
  }
}

// `budget` is the number of nodes the forward may still have; `depth` that of the checkpoints
// around.
void limit_nodes(std::vector<Node>& nodes, std::uint32_t depth, std::uint32_t& budget) {
  assert(depth <= kMaxDepth || nodes.empty());
  assert(budget <= kMaxNodes);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (budget == 0) return nodes.resize(i);
    --budget;
    Node& node = nodes[i];
    limit(node.kind, Node::Kind::kCheckpoint);
    node.factor = std::clamp(node.factor, -2, 2);
    node.entries = std::min(node.entries, kMaxEntries);
    limit_count(node.inputs, 0, kMaxInputs);
    if (node.kind != Node::Kind::kCheckpoint || depth == kMaxDepth) node.body.clear();
    limit_nodes(node.body, depth + 1, budget);
    if (node.kind == Node::Kind::kCheckpoint && node.body.empty()) node.kind = Node::Kind::kSum;
  }
}

void limit_forward(Forward& forward) {
  std::uint32_t budget = kMaxNodes;
  limit_count(forward.nodes, 1, kMaxNodes);
  limit_nodes(forward.nodes, 0, budget);
  limit_count(forward.outputs, 1, kMaxOutputs);
  assert(!forward.nodes.empty());
  std::set<std::pair<std::size_t, std::uint32_t>> known;  // node and slot
  std::erase_if(forward.outputs, [&](const Input& output) {
    const std::size_t node = forward.nodes.size() - 1 - output.back % forward.nodes.size();
    const bool is_split = forward.nodes[node].kind == Node::Kind::kSplit;
    return !known.emplace(node, is_split ? output.slot % 2 : 0).second;
  });
  forward.constants = std::min(forward.constants, kMaxConstants);
}

// The outputs that a call between forwards starts from, by their numbers among all outputs of the
// pass.
void name_roots(const RankPass& pass, Backward& backward) {
  const auto outputs = static_cast<std::uint32_t>(synced_outputs(pass, backward.forwards).size());
  assert(outputs > 0);
  for (std::uint32_t& root : backward.roots) root %= outputs;
  if (!backward.roots.empty()) return;
  backward.roots.resize(outputs);
  std::iota(backward.roots.begin(), backward.roots.end(), 0U);
}

// Orders the calls of one rank: see normalize().
void limit_order(const Program& program, PassKind kind, RankPass& pass) {
  assert(!pass.forwards.empty());
  assert(pass.backwards.size() <= kMaxBackwards);
  const bool is_synced = kind == PassKind::kSynced;
  const bool may_mix = is_synced && !is_excluded(&Forward::local, program) && keeps_a_forward(pass);
  if (!may_mix)
    for (Forward& forward : pass.forwards) forward.local = false;
  std::uint32_t least = 1;
  bool any_synced = pass.backwards.empty() && starts_synced(pass, {}, pass.forwards.size());
  for (std::size_t call = 0; call < pass.backwards.size(); ++call) {
    Backward& backward = pass.backwards[call];
    const bool is_last = call + 1 == pass.backwards.size();
    const bool comes_early = !is_last && kind != PassKind::kNoGrad && backward.forwards >= least &&
                             backward.forwards < pass.forwards.size() &&
                             !synced_outputs(pass, backward.forwards).empty() &&
                             (may_mix || !is_synced) &&
                             !(is_synced && starts_synced(pass, backward, backward.forwards));
    if (!comes_early) backward.forwards = 0;
    if (comes_early && !backward.held) name_roots(pass, backward);
    least = backward.forwards == 0 ? ~std::uint32_t{0} : backward.forwards;
    any_synced = any_synced || (backward.forwards == 0 && keeps_a_forward(pass) &&
                                starts_synced(pass, backward, pass.forwards.size()));
  }
  if (any_synced) return;
  for (Forward& forward : pass.forwards) forward.local = false;
  for (Backward& backward : pass.backwards)
    if (is_synced) backward.forwards = 0, backward.held = false;
}

bool does_more(const Backward& call) {
  return call.evaluates || call.zeroes || call.updates || call.drops || call.held ||
         call.with_constants;
}

// Limits what ranks do between calls, as Backward says. Call limit_order() before.
void limit_between(const Program& program, const Step& step, RankPass& pass) {
  assert(pass.backwards.empty() || pass.backwards.back().forwards == 0);
  const PassKind kind = kind_of(step, pass);
  const bool are_called = kind != PassKind::kNoGrad && keeps_a_forward(pass);
  const bool can_zero = step.zero_grad == ZeroGrad::kUndefine || step.zero_grad == ZeroGrad::kFill;
  const bool has_replicas = std::ranges::any_of(
      program.parameters, [](const Parameter& each) { return each.copy_of > 0; });
  const auto kept = std::ranges::find(pass.forwards, false, &Forward::discard);
  const bool has_constants =
      std::ranges::count(pass.forwards, false, &Forward::discard) == 1 && kept->constants > 0;
  bool has_begun = false;  // some call has started at an output of the pass
  for (Backward& call : pass.backwards) {
    if (!are_called) call.evaluates = call.zeroes = call.updates = call.drops = call.held = false;
    if (!can_zero || has_begun) call.zeroes = false;
    if (!call.held || kind != PassKind::kSynced || is_excluded(&Backward::held_synced, program))
      call.held_synced = false;
    if (has_replicas && has_begun) call.evaluates = false;
    const bool is_synced =
        kind == PassKind::kSynced && are_called && starts_synced(pass, call, pass.forwards.size());
    const bool is_local = kind == PassKind::kNoSync && are_called && !call.held;
    if (!has_constants || !(is_synced || is_local)) call.with_constants = false;
    has_begun = has_begun || is_synced;
  }
}

void limit_step(Step& step, const Program& program) {
  assert(program.world >= 1);
  assert(!program.parameters.empty());
  limit(step.kind, PassKind::kNoGrad);
  limit(step.zero_grad, ZeroGrad::kSwap);
  limit_count(step.variants, 1, program.world);
  const std::optional<std::size_t> absent = absent_variant(program, step);
  for (std::size_t v = 0; v < step.variants.size(); ++v) {
    RankPass& pass = step.variants[v];
    pass.absent = absent == v;
    if (step.kind != PassKind::kNoGrad && !pass.absent) pass.skip = false;
    if (!pass.keep_outputs) pass.hold_outputs = false;
    limit_count(pass.forwards, 1, kMaxForwards);
    for (Forward& forward : pass.forwards) limit_forward(forward);
    limit_count(pass.backwards, 0, kMaxBackwards);
    for (Backward& backward : pass.backwards) limit_count(backward.roots, 0, kMaxRoots);
  }
  const bool any_keeps = std::ranges::any_of(step.variants, keeps_a_forward);
  for (RankPass& pass : step.variants) {
    if (step.kind == PassKind::kSynced && any_keeps && !keeps_a_forward(pass) && !pass.absent)
      pass.forwards.back().discard = false;
    limit_order(program, kind_of(step, pass), pass);
    limit_between(program, step, pass);
    limit(pass.recompute, Recompute::kTwiceFails);
    if (!may_recompute(program, step, pass)) pass.recompute = Recompute::kNone;
  }
}

void limit_options(Replicated& options) {
  limit(options.mode, Mode::kStatic);
  limit(options.order, Order::kRankOrder);
  limit(options.hook, Hook::kPowerSgd);
  limit(options.hook_result, HookResult::kZeros);
  limit(options.hook_completion, HookCompletion::kReversed);
  limit(options.hook_backward, HookBackward::kAll);
  options.power_sgd_rank = std::clamp(options.power_sgd_rank, 1u, kMaxPowerSgdRank);
  limit(options.launch, Launch::kAfterBackward);
  limit(options.join, Join::kByActive);
  limit(options.transport, Transport::kNccl);
}

// Call it when the steps are what they will be.
void limit_bad_number(Program& program) {
  BadNumber& bad = program.bad_number;
  limit(bad.kind, BadNumber::Kind::kNaN);
  if (bad.kind == BadNumber::Kind::kNone || program.steps.empty()) return void(bad = {});
  bad.rank %= program.world;
  bad.step %= static_cast<std::uint32_t>(program.steps.size());
  const auto count = static_cast<std::uint32_t>(program.parameters.size());
  bad.parameter = owner_of(program, bad.parameter % count);
}

}  // namespace

void leave_out_excluded(Program& program) {
  for (Parameter& each : program.parameters) leave_out_excluded(kExclusions, program, each);
  for (Buffer& each : program.buffers) leave_out_excluded(kExclusions, program, each);
  leave_out_excluded(kExclusions, program, program.options);
  leave_out_excluded(kExclusions, program, static_cast<Job&>(program));
}

void normalize(Program& program) {
  program.world = std::clamp<std::uint32_t>(program.world, 1, kMaxWorld);
  limit(program.values, Values::kLargest);
  program.headroom = std::min(program.headroom, kMaxHeadroom);
  limit_options(program.options);
  limit_count(program.steps_per_rank, 0, program.world);
  limit_parameters(program.parameters);
  limit_reducers(program.parameters);
  limit_buffers(program.buffers);
  limit_count(program.steps, 0, kMaxSteps);
  const auto steps = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(program.steps.size()));
  program.rejoin_step %= steps;
  program.recreate_before_step %= steps;
  leave_out_excluded(program);
  assert(reducer_count(program) <= (program.options.join == Join::kNone ? kMaxReducers : 1));
  for (Step& step : program.steps) limit_step(step, program);
  limit_bad_number(program);
  limit_disagreement(program);
}

std::optional<std::size_t> absent_variant(const Program& program, const Step& step) {
  const std::vector<RankPass>& all = step.variants;
  const auto absent =
      static_cast<std::size_t>(std::ranges::find(all, true, &RankPass::absent) - all.begin());
  const std::uint32_t groups = group_count(program);
  const bool is_one_rank = absent < all.size() && absent + all.size() >= program.world;
  const bool has_peers = absent >= groups || absent + groups < program.world;
  if (step.kind != PassKind::kSynced || !is_one_rank || !has_peers ||
      is_excluded(&RankPass::absent, program))
    return std::nullopt;
  for (std::size_t v = 0; v < all.size(); ++v)  // normalize() gives a pass a forward
    if (v != absent && (all[v].forwards.empty() || keeps_a_forward(all[v]))) return absent;
  return std::nullopt;
}

bool may_recompute(const Program& program, const Step& step, const RankPass& pass) {
  return step.kind == PassKind::kSynced && pass.forwards.size() == 1 && !pass.absent &&
         keeps_a_forward(pass) && pass.backwards.size() <= 1 && !pass.keep_outputs &&
         std::ranges::none_of(pass.backwards, does_more) &&
         !is_excluded(&RankPass::recompute, program);
}

std::vector<std::uint32_t> construction_order(const Program& program) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < program.parameters.size(); ++i)
    if (is_reduced(program.parameters[i]) && is_original(program.parameters[i])) order.push_back(i);
  if (program.options.pinned == 0) return order;
  std::uint64_t state = program.options.pinned;
  for (std::size_t left = order.size(); left > 1; --left) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::swap(order[left - 1], order[(state >> 33) % left]);
  }
  return order;
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

bool has_input(const Program& program, std::uint32_t rank, std::uint32_t step) {
  const bool is_limited =
      program.options.join != Join::kNone && rank < program.steps_per_rank.size();
  const std::uint32_t first = step < program.rejoin_step ? 0 : program.rejoin_step;
  return !is_limited || step - first < program.steps_per_rank[rank];
}

}  // namespace lockstep::reference
