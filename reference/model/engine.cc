#include "reference/model/engine.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

namespace lockstep::reference {
namespace {

// What has arrived at the outputs of a node so far.
struct NodeGradient {
  std::optional<double> slots[2];
  bool is_reached = false;
};

struct Graph {
  const std::vector<Node>& nodes;
  std::vector<NodeGradient> gradients;  // by node
};

// The uses of one parameter in one backward call.
struct PendingHook {
  std::uint32_t uses_left = 0;
  std::vector<UseGradient> terms;
};

// A gradient that arrives alone is the sum, so that -0 stays -0.
void add_to(std::optional<double>& sum, double term) { sum = sum ? *sum + term : term; }

std::optional<double>& slot_of(Graph& graph, std::uint32_t node, const Input& input) {
  const bool is_split = graph.nodes[node].kind == Node::Kind::kSplit;
  return graph.gradients[node].slots[is_split ? input.slot % 2 : 0];
}

std::uint32_t input_of(std::size_t node, const Input& input) {
  assert(node > 0);
  const auto from = static_cast<std::uint32_t>(node);
  return from - 1 - (input.back < from ? input.back : input.back % from);
}

std::uint32_t owner_of_use(const Owners& owners, const Node& node) {
  return node.kind == Node::Kind::kUse ? owners[node.parameter % owners.size()] : kNotTrained;
}

bool is_root(const RankPass& pass, std::uint32_t call, std::uint32_t output) {
  const Backward& backward = backward_of(pass, call);
  if (backward.held) return false;
  if (backward.roots.empty()) return true;
  const std::vector<std::uint32_t>& roots = backward.roots;
  const std::uint32_t outputs = kept_outputs(pass);
  return std::any_of(roots.begin(), roots.end(),
                     [&](std::uint32_t root) { return root % outputs == output; });
}

// Whether a root of the call is an output of a synced forward, or of a local one.
bool has_root(const RankPass& pass, std::uint32_t call, bool is_synced) {
  const std::vector<bool> synced = synced_outputs(pass, pass.forwards.size());
  for (std::uint32_t output = 0; output < synced.size(); ++output)
    if (synced[output] == is_synced && is_root(pass, call, output)) return true;
  return false;
}

// The numbers of the outputs of each kept forward: from `first` up to `end`.
struct ForwardOutputs {
  std::size_t forward = 0;
  std::uint32_t first = 0;
  std::uint32_t end = 0;
};

std::vector<ForwardOutputs> outputs_by_forward(const RankPass& pass) {
  std::vector<ForwardOutputs> all;
  std::uint32_t next = 0;
  for (std::size_t f = 0; f < pass.forwards.size(); ++f) {
    if (pass.forwards[f].discard) continue;
    const auto end = next + static_cast<std::uint32_t>(pass.forwards[f].outputs.size());
    all.push_back({f, std::exchange(next, end), end});
  }
  assert(next == kept_outputs(pass));
  return all;
}

bool starts_at(const RankPass& pass, std::uint32_t call, const ForwardOutputs& outputs) {
  for (std::uint32_t output = outputs.first; output < outputs.end; ++output)
    if (is_root(pass, call, output)) return true;
  return false;
}

void mark_reached(Graph& graph) {
  for (std::size_t i = graph.nodes.size(); i-- > 1;) {
    const Node& node = graph.nodes[i];
    if (!graph.gradients[i].is_reached || node.kind == Node::Kind::kDetach) continue;
    for (const Input& input : node.inputs) graph.gradients[input_of(i, input)].is_reached = true;
  }
}

// The graphs of all kept forwards, started with a 1 at the outputs whose numbers `is_start` takes.
template <class IsStart>
std::vector<Graph> started_graphs(const RankPass& pass, const IsStart& is_start) {
  std::vector<Graph> graphs;
  std::uint32_t output = 0;
  for (const Forward& forward : pass.forwards) {
    if (forward.discard) continue;
    const auto count = static_cast<std::uint32_t>(forward.nodes.size());
    assert(count > 0);
    Graph& graph = graphs.emplace_back(Graph{forward.nodes, std::vector<NodeGradient>(count)});
    for (const Input& each : forward.outputs) {
      if (!is_start(output++)) continue;
      const std::uint32_t node = count - 1 - each.back % count;
      add_to(slot_of(graph, node, each), 1);
      graph.gradients[node].is_reached = true;
    }
    mark_reached(graph);
  }
  assert(output == kept_outputs(pass));
  return graphs;
}

// What a node passes to each of its inputs.
std::optional<double> passed_on(const Node& node, const NodeGradient& gradient) {
  std::optional<double> passed = gradient.slots[0];
  if (node.kind == Node::Kind::kStop || node.kind == Node::Kind::kDetach) return std::nullopt;
  if (node.kind == Node::Kind::kScale && passed) *passed *= node.factor;
  if (node.kind == Node::Kind::kSplit && gradient.slots[1]) add_to(passed, 2 * *gradient.slots[1]);
  return passed;
}

void run_body(const Owners& owners, const std::vector<Node>& body, double seed,
              std::vector<AutogradHook>& hooks);

// Visits the nodes in descending creation order.
void visit(const Owners& owners, Graph& graph, bool is_nested, std::vector<PendingHook>& pending,
           std::vector<AutogradHook>& hooks) {
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (!graph.gradients[i].is_reached) continue;
    const std::optional<double> passed = passed_on(node, graph.gradients[i]);
    if (const std::uint32_t owner = owner_of_use(owners, node); owner != kNotTrained) {
      assert(pending[owner].uses_left > 0);
      if (passed) pending[owner].terms.push_back({&node, *passed});
      if (--pending[owner].uses_left == 0)
        hooks.push_back({owner, is_nested, std::move(pending[owner].terms)});
    }
    if (!passed) continue;
    if (node.kind == Node::Kind::kCheckpoint) run_body(owners, node.body, *passed, hooks);
    if (i == 0) continue;
    for (const Input& input : node.inputs)
      add_to(slot_of(graph, input_of(i, input), input), *passed);
  }
}

// One backward call. Its graphs do not share nodes; all nodes of a later one were created later.
void run_call(const Owners& owners, std::vector<Graph> graphs, bool is_nested,
              std::vector<AutogradHook>& hooks) {
  std::vector<PendingHook> pending(owners.size());
  for (const Graph& graph : graphs)
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const std::uint32_t owner = owner_of_use(owners, graph.nodes[i]);
      if (owner != kNotTrained && graph.gradients[i].is_reached) ++pending[owner].uses_left;
    }
  for (auto graph = graphs.rbegin(); graph != graphs.rend(); ++graph)
    visit(owners, *graph, is_nested, pending, hooks);
  assert(std::all_of(pending.begin(), pending.end(),
                     [](const PendingHook& hook) { return hook.uses_left == 0; }));
}

// The hooks of a backward call from the outputs whose numbers `is_start` takes.
template <class IsStart>
std::vector<AutogradHook> hooks_from(const Owners& owners, const RankPass& pass,
                                     const IsStart& is_start) {
  std::vector<AutogradHook> hooks;
  hooks.reserve(owners.size());
  run_call(owners, started_graphs(pass, is_start), false, hooks);
  return hooks;
}

void run_body(const Owners& owners, const std::vector<Node>& body, double seed,
              std::vector<AutogradHook>& hooks) {
  assert(!body.empty());
  Graph graph{body, std::vector<NodeGradient>(body.size())};
  graph.gradients.back() = {{seed, std::nullopt}, true};
  mark_reached(graph);
  run_call(owners, {std::move(graph)}, true, hooks);
}

}  // namespace

bool AutogradHook::requires_grad() const {
  return std::any_of(terms.begin(), terms.end(),
                     [](const UseGradient& term) { return term.use->requires_grad; });
}

const RankPass& pass_of(const Step& step, std::uint32_t rank) {
  return step.variants[rank % step.variants.size()];
}

std::uint32_t call_count(const RankPass& pass) {
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(pass.backwards.size()));
}

const Backward& backward_of(const RankPass& pass, std::uint32_t call) {
  static const Backward kUsual;
  assert(call < call_count(pass));
  return pass.backwards.empty() ? kUsual : pass.backwards[call];
}

std::vector<std::uint32_t> roots_of(const RankPass& pass, std::uint32_t call) {
  std::vector<std::uint32_t> roots;
  const std::uint32_t outputs = kept_outputs(pass);
  for (std::uint32_t output = 0; output < outputs; ++output)
    if (is_root(pass, call, output)) roots.push_back(output);
  return roots;
}

std::uint32_t kept_outputs(const RankPass& pass) {
  std::size_t count = 0;
  for (const Forward& forward : pass.forwards)
    if (!forward.discard) count += forward.outputs.size();
  return static_cast<std::uint32_t>(count);
}

std::vector<bool> dropped_outputs(const RankPass& pass, std::uint32_t call) {
  assert(call <= call_count(pass));
  std::vector<bool> is_gone(kept_outputs(pass));
  const auto calls = static_cast<std::uint32_t>(pass.backwards.size());
  for (std::uint32_t c = 0; c < calls && c <= call; ++c) {
    const Backward& backward = pass.backwards[c];
    if (!backward.drops) continue;
    for (const ForwardOutputs& outputs : outputs_by_forward(pass)) {
      bool is_needed = backward.forwards != 0 && outputs.forward >= backward.forwards;
      for (std::uint32_t later = c; later < calls; ++later)
        is_needed = is_needed || starts_at(pass, later, outputs);
      if (!is_needed)
        std::fill(is_gone.begin() + outputs.first, is_gone.begin() + outputs.end, true);
    }
  }
  return is_gone;
}

std::vector<std::uint32_t> held_outputs(PassKind kind, const RankPass& pass, bool is_synced) {
  std::vector<std::uint32_t> held;
  if (!pass.hold_outputs || kind == PassKind::kNoGrad) return held;
  assert(pass.keep_outputs);
  const std::uint32_t last = call_count(pass) - 1;
  const std::vector<bool> is_gone = dropped_outputs(pass, last);
  for (const ForwardOutputs& outputs : outputs_by_forward(pass)) {
    const bool is_local = kind == PassKind::kNoSync || pass.forwards[outputs.forward].local;
    if (is_local == is_synced) continue;
    if (starts_at(pass, last, outputs) || is_gone[outputs.first]) continue;
    for (std::uint32_t output = outputs.first; output < outputs.end; ++output)
      held.push_back(output);
  }
  return held;
}

std::vector<std::uint32_t> held_roots(PassKind kind, const RankPass& before, const Backward& call) {
  const std::vector<std::uint32_t> held = held_outputs(kind, before, call.held_synced);
  if (call.roots.empty() || held.empty()) return held;
  std::vector<std::uint32_t> roots;
  for (const std::uint32_t root : call.roots) roots.push_back(held[root % held.size()]);
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  return roots;
}

std::vector<std::uint32_t> held_roots(const Program& program, std::size_t step, std::uint32_t rank,
                                      const Backward& call) {
  while (step > 0 && pass_of(program.steps[step - 1], rank).skip) --step;
  if (step == 0) return {};
  const Step& before = program.steps[step - 1];
  return held_roots(before.kind, pass_of(before, rank), call);
}

bool zeroes_late(const RankPass& pass) {
  return std::any_of(pass.backwards.begin(), pass.backwards.end(),
                     [](const Backward& call) { return call.zeroes; });
}

bool is_synced_call(const RankPass& pass, std::uint32_t call) { return has_root(pass, call, true); }

std::uint32_t first_synced_call(const RankPass& pass) {
  std::uint32_t call = 0;
  while (!is_synced_call(pass, call)) ++call;
  return call;
}

bool starts_local(const RankPass& pass, std::uint32_t call) { return has_root(pass, call, false); }

std::vector<AutogradHook> run_backward(const Owners& owners, const RankPass& pass,
                                       std::uint32_t call) {
  return hooks_from(owners, pass,
                    [&](std::uint32_t output) { return is_root(pass, call, output); });
}

std::vector<AutogradHook> run_held_backward(const Owners& owners, PassKind kind,
                                            const RankPass& before, const Backward& call) {
  const std::vector<std::uint32_t> roots = held_roots(kind, before, call);
  return hooks_from(owners, before, [&](std::uint32_t output) {
    return std::binary_search(roots.begin(), roots.end(), output);
  });
}

std::vector<bool> reached_beside_pass(const Owners& owners, const RankPass& pass,
                                      std::uint32_t call) {
  assert(call < call_count(pass));
  std::vector<bool> beside(owners.size());
  if (!starts_local(pass, call)) return beside;
  for (const AutogradHook& hook : run_backward(owners, pass, call))
    if (!hook.is_nested) beside[hook.parameter] = true;
  // The search goes through all outputs of a forward that the call reaches.
  std::vector<bool> searched(kept_outputs(pass));
  for (const ForwardOutputs& outputs : outputs_by_forward(pass)) {
    if (pass.forwards[outputs.forward].local || !starts_at(pass, call, outputs)) continue;
    std::fill(searched.begin() + outputs.first, searched.begin() + outputs.end, true);
  }
  const auto is_searched = [&](std::uint32_t output) { return searched[output]; };
  for (const AutogradHook& hook : hooks_from(owners, pass, is_searched))
    if (!hook.is_nested) beside[hook.parameter] = false;
  return beside;
}

std::vector<bool> reached_by_other_forwards(const Owners& owners, const RankPass& pass,
                                            std::uint32_t call) {
  assert(call < call_count(pass));
  std::vector<bool> by_call(owners.size());
  std::vector<bool> by_others(owners.size());
  const bool is_last = call + 1 == call_count(pass);
  if (is_last && !pass.keep_outputs) return by_others;  // the rank let go of them
  const std::vector<bool> is_gone = dropped_outputs(pass, call);
  for (const ForwardOutputs& outputs : outputs_by_forward(pass)) {
    // A local forward's outputs are not those of the pass.
    if (pass.forwards[outputs.forward].local || is_gone[outputs.first]) continue;
    std::vector<bool>& reached = starts_at(pass, call, outputs) ? by_call : by_others;
    const auto is_its_own = [&](std::uint32_t output) {
      return outputs.first <= output && output < outputs.end;
    };
    for (const AutogradHook& hook : hooks_from(owners, pass, is_its_own))
      if (!hook.is_nested) reached[hook.parameter] = true;
  }
  for (std::size_t p = 0; p < owners.size(); ++p) by_others[p] = by_others[p] && !by_call[p];
  return by_others;
}

bool leaves_a_way(const Owners& owners, const RankPass& pass, std::uint32_t call,
                  const std::vector<std::uint32_t>& parameters) {
  assert(call < call_count(pass));
  const bool is_last = call + 1 == call_count(pass);
  if (is_last && !pass.keep_outputs) return false;  // the rank let go of all but the roots
  const std::vector<bool> synced = synced_outputs(pass, pass.forwards.size());
  const std::vector<bool> is_gone = dropped_outputs(pass, call);
  assert(is_gone.size() == synced.size());
  const auto is_left = [&](std::uint32_t output) {
    // All calls but the last retain the graph.
    return synced[output] && !is_gone[output] && (!is_last || !is_root(pass, call, output));
  };
  for (const Graph& graph : started_graphs(pass, is_left))
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const std::uint32_t owner = owner_of_use(owners, graph.nodes[i]);
      const bool is_missing =
          std::find(parameters.begin(), parameters.end(), owner) != parameters.end();
      if (!graph.gradients[i].is_reached) continue;
      if (is_missing || graph.nodes[i].kind == Node::Kind::kCheckpoint) return true;
    }
  return false;
}

}  // namespace lockstep::reference
