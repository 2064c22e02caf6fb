#include "reference/model/engine.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <optional>
#include <set>
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

// Those of the outputs that the call starts from.
Outputs chosen_roots(const Backward& call, const Outputs& outputs) {
  if (call.roots.empty() || outputs.empty()) return outputs;
  std::set<std::uint32_t> roots;
  for (const std::uint32_t root : call.roots) roots.insert(outputs[root % outputs.size()]);
  return {roots.begin(), roots.end()};
}

struct KeptForward {
  std::size_t number = 0;  // among all forwards of the pass
  Outputs outputs;
};

std::vector<KeptForward> kept_forwards(const RankPass& pass) {
  std::vector<KeptForward> all;
  std::uint32_t next = 0;
  for (std::size_t f = 0; f < pass.forwards.size(); ++f) {
    if (pass.forwards[f].discard) continue;
    KeptForward& kept = all.emplace_back(KeptForward{f, Outputs(pass.forwards[f].outputs.size())});
    for (std::uint32_t& output : kept.outputs) output = next++;
  }
  assert(next == kept_outputs(pass));
  return all;
}

bool starts_at(const RankPass& pass, std::uint32_t call, const KeptForward& kept) {
  const Outputs roots = roots_of(pass, call);
  return std::ranges::find_first_of(roots, kept.outputs) != roots.end();
}

// By kept output: whether the rank has let go of it when the call has ended. Before its last call
// it lets go of all but the roots, unless it keeps them, and then of these.
std::vector<bool> gone_outputs(const RankPass& pass, std::uint32_t call) {
  const bool is_last = call + 1 == call_count(pass);
  if (is_last && !pass.keep_outputs) return std::vector<bool>(kept_outputs(pass), true);
  return dropped_outputs(pass, call);
}

void mark_reached(Graph& graph) {
  for (std::size_t i = graph.nodes.size(); i-- > 1;) {
    const Node& node = graph.nodes[i];
    if (!graph.gradients[i].is_reached || node.kind == Node::Kind::kDetach) continue;
    for (const Input& input : node.inputs) graph.gradients[input_of(i, input)].is_reached = true;
  }
}

// The graphs of all kept forwards, started with a 1 at these outputs.
std::vector<Graph> started_graphs(const RankPass& pass, const Outputs& starts) {
  std::vector<Graph> graphs;
  std::uint32_t output = 0;
  for (const Forward& forward : pass.forwards) {
    if (forward.discard) continue;
    const auto count = static_cast<std::uint32_t>(forward.nodes.size());
    assert(count > 0);
    Graph& graph = graphs.emplace_back(Graph{forward.nodes, std::vector<NodeGradient>(count)});
    for (const Input& each : forward.outputs) {
      if (!std::ranges::binary_search(starts, output++)) continue;
      const std::uint32_t node = count - 1 - each.back % count;
      add_to(slot_of(graph, node, each), 1);
      graph.gradients[node].is_reached = true;
    }
    mark_reached(graph);
  }
  assert(output == kept_outputs(pass));
  return graphs;
}

// The nodes that a call from these outputs visits, but for those in checkpoints.
std::vector<const Node*> reached_nodes(const RankPass& pass, const Outputs& starts) {
  std::vector<const Node*> reached;
  for (const Graph& graph : started_graphs(pass, starts))
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      if (graph.gradients[i].is_reached) reached.push_back(&graph.nodes[i]);
  return reached;
}

void mark_parameters(const Owners& owners, const std::vector<const Node*>& nodes,
                     std::vector<bool>& is_marked) {
  assert(is_marked.size() == owners.size());
  for (const Node* node : nodes)
    if (const std::uint32_t owner = owner_of_use(owners, *node); owner != kNotTrained)
      is_marked[owner] = true;
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
  assert(std::ranges::all_of(pending, [](const PendingHook& hook) { return hook.uses_left == 0; }));
}

// The hooks of a backward call from these outputs.
std::vector<AutogradHook> hooks_from(const Owners& owners, const RankPass& pass,
                                     const Outputs& roots) {
  std::vector<AutogradHook> hooks;
  hooks.reserve(owners.size());
  run_call(owners, started_graphs(pass, roots), false, hooks);
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
  return std::ranges::any_of(terms,
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

Outputs roots_of(const RankPass& pass, std::uint32_t call) {
  const Backward& backward = backward_of(pass, call);
  if (backward.held) return {};
  Outputs outputs(kept_outputs(pass));
  std::iota(outputs.begin(), outputs.end(), 0U);
  return chosen_roots(backward, outputs);
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
    for (const KeptForward& kept : kept_forwards(pass)) {
      bool is_needed = backward.forwards != 0 && kept.number >= backward.forwards;
      for (std::uint32_t later = c; later < calls; ++later)
        is_needed = is_needed || starts_at(pass, later, kept);
      if (is_needed) continue;
      for (const std::uint32_t output : kept.outputs) is_gone[output] = true;
    }
  }
  return is_gone;
}

Outputs held_outputs(PassKind kind, const RankPass& pass, bool is_synced) {
  Outputs held;
  if (!pass.hold_outputs || kind == PassKind::kNoGrad) return held;
  assert(pass.keep_outputs);
  const std::uint32_t last = call_count(pass) - 1;
  const std::vector<bool> is_gone = dropped_outputs(pass, last);
  for (const KeptForward& kept : kept_forwards(pass)) {
    const bool is_local = kind == PassKind::kNoSync || pass.forwards[kept.number].local;
    if (is_local == is_synced || starts_at(pass, last, kept)) continue;
    for (const std::uint32_t output : kept.outputs)
      if (!is_gone[output]) held.push_back(output);
  }
  return held;
}

Outputs held_roots(PassKind kind, const RankPass& before, const Backward& call) {
  return chosen_roots(call, held_outputs(kind, before, call.held_synced));
}

bool zeroes_late(const RankPass& pass) {
  return std::ranges::any_of(pass.backwards, [](const Backward& call) { return call.zeroes; });
}

bool is_synced_call(const RankPass& pass, std::uint32_t call) {
  return starts_synced(pass, backward_of(pass, call), pass.forwards.size());
}

std::uint32_t first_synced_call(const RankPass& pass) {
  std::uint32_t call = 0;
  while (!is_synced_call(pass, call)) ++call;
  return call;
}

std::vector<AutogradHook> run_backward(const Owners& owners, const RankPass& pass,
                                       std::uint32_t call) {
  return hooks_from(owners, pass, roots_of(pass, call));
}

std::vector<AutogradHook> run_held_backward(const Owners& owners, PassKind kind,
                                            const RankPass& before, const Backward& call) {
  return hooks_from(owners, before, held_roots(kind, before, call));
}

UnusedSearch search_unused(const Owners& owners, const RankPass& pass, std::uint32_t call) {
  assert(call < call_count(pass));
  const std::vector<bool> none(owners.size());
  std::vector<bool> is_found = none;  // through all outputs of the forwards that the call starts at
  UnusedSearch search{none, none};
  const std::vector<bool> is_gone = gone_outputs(pass, call);
  for (const KeptForward& kept : kept_forwards(pass)) {
    // The outputs of a local forward are not those of the pass.
    if (pass.forwards[kept.number].local) continue;
    const bool is_started = starts_at(pass, call, kept);
    if (!is_started && is_gone[kept.outputs.front()]) continue;
    mark_parameters(owners, reached_nodes(pass, kept.outputs),
                    is_started ? is_found : search.seen_elsewhere);
  }
  mark_parameters(owners, reached_nodes(pass, roots_of(pass, call)), search.reached_beside);
  for (std::size_t p = 0; p < owners.size(); ++p) {
    if (!is_found[p]) continue;
    search.seen_elsewhere[p] = search.reached_beside[p] = false;
  }
  return search;
}

bool live_output_reaches(const Owners& owners, const RankPass& pass, std::uint32_t call,
                         const std::vector<std::uint32_t>& parameters) {
  assert(call < call_count(pass));
  const bool is_last = call + 1 == call_count(pass);
  const Outputs roots = roots_of(pass, call);
  const std::vector<bool> is_gone = gone_outputs(pass, call);
  Outputs left;
  for (const KeptForward& kept : kept_forwards(pass))
    for (const std::uint32_t output : kept.outputs) {
      // All calls but the last retain the graph.
      const bool is_used_up = is_last && contains(roots, output);
      const bool is_local = pass.forwards[kept.number].local;
      if (!is_local && !is_gone[output] && !is_used_up) left.push_back(output);
    }
  const std::vector<const Node*> reached = reached_nodes(pass, left);
  return std::ranges::any_of(reached, [&](const Node* node) {
    return node->kind == Node::Kind::kCheckpoint ||
           contains(parameters, owner_of_use(owners, *node));
  });
}

}  // namespace lockstep::reference
