#include "properties/shrink/rewrite.h"

#include <algorithm>
#include <utility>

#include "properties/case/fields.h"

namespace lockstep::properties {
namespace {

using reference::Input;
using reference::Node;
using reference::RankPass;

void collect(NodeList list, std::vector<NodeList>& out) {
  out.push_back(list);
  for (Node& node : *list.nodes)
    if (!node.body.empty()) collect({&node.body, nullptr}, out);
}

template <typename F>
void for_each_node(std::vector<Node>& nodes, const F& f) {
  for (Node& node : nodes) {
    f(node);
    for_each_node(node.body, f);
  }
}

template <typename F>
void for_each_node(reference::Program& program, const F& f) {
  for (reference::Step& step : program.steps)
    for (RankPass& pass : step.variants)
      for (reference::Forward& forward : pass.forwards) for_each_node(forward.nodes, f);
}

// An edge, by the index of the node to which it points.
struct Edge {
  std::uint32_t target = 0;
  std::uint32_t slot = 0;
  bool operator==(const Edge& other) const = default;
};
using Edges = std::vector<Edge>;

std::uint32_t count_of(const std::vector<Node>& nodes) {
  return static_cast<std::uint32_t>(nodes.size());
}

std::vector<Edges> edges_of(const std::vector<Node>& nodes) {
  std::vector<Edges> out(nodes.size());
  for (std::uint32_t i = 1; i < count_of(nodes); ++i)  // node 0 has no inputs
    for (const Input& input : nodes[i].inputs)
      out[i].push_back({i - 1 - input.back % i, input.slot});
  return out;
}

Edges edges_of(const std::vector<Input>& outputs, std::uint32_t count) {
  Edges out;
  for (const Input& output : outputs) out.push_back({count - 1 - output.back % count, output.slot});
  return out;
}

// `from` is the index of the consumer; for outputs, the number of nodes.
std::vector<Input> inputs_of(const Edges& edges, std::uint32_t from) {
  std::vector<Input> out;
  for (const Edge& edge : edges) out.push_back({from - 1 - edge.target, edge.slot});
  return out;
}

void add_once(Edges& edges, const Edge& edge) {
  if (std::find(edges.begin(), edges.end(), edge) == edges.end()) edges.push_back(edge);
}

// Replaces each edge into `range` by the edges of its target's inputs, and moves the other edges
// down. The sources of dropped nodes are resolved before those of later ones.
Edges resolve(const Edges& edges, const std::vector<Edges>& resolved, Range range) {
  Edges out;
  for (Edge edge : edges) {
    if (range.has(edge.target)) {
      for (const Edge& behind : resolved[edge.target]) add_once(out, behind);
      continue;
    }
    if (edge.target >= range.last)
      edge.target -= static_cast<std::uint32_t>(range.last - range.first);
    out.push_back(edge);
  }
  return out;
}

// Reduces the variants to the smallest number that means the same for every rank.
void fold_variants(std::vector<RankPass>& variants) {
  for (std::size_t count = 1; count < variants.size(); ++count) {
    bool periodic = true;
    for (std::size_t i = count; i < variants.size() && periodic; ++i)
      periodic = fields::same(variants[i], variants[i % count]);
    if (!periodic) continue;
    variants.resize(count);
    return;
  }
}

}  // namespace

std::vector<NodeList> node_lists(reference::Program& program) {
  std::vector<NodeList> out;
  for (reference::Step& step : program.steps)
    for (RankPass& pass : step.variants)
      for (reference::Forward& forward : pass.forwards)
        collect({&forward.nodes, &forward.outputs}, out);
  return out;
}

void drop_steps(Case& value, Range range) {
  std::vector<reference::Step>& steps = value.program.steps;
  const auto begin = steps.begin();
  steps.erase(begin + static_cast<std::ptrdiff_t>(range.first),
              begin + static_cast<std::ptrdiff_t>(range.last));
  std::erase_if(value.faults.faults,
                [&](const faults::Fault& fault) { return range.has(fault.step); });
  for (faults::Fault& fault : value.faults.faults)
    if (fault.step >= range.last)
      fault.step -= static_cast<std::uint32_t>(range.last - range.first);
}

void drop_rank(Case& value, std::uint32_t rank) {
  reference::Program& program = value.program;
  if (program.world < 2 || rank >= program.world) return;
  for (reference::Step& step : program.steps) {
    if (step.variants.size() < 2) continue;
    std::vector<RankPass> each;
    for (std::uint32_t r = 0; r < program.world; ++r)
      if (r != rank) each.push_back(step.variants[r % step.variants.size()]);
    fold_variants(each);
    step.variants = std::move(each);
  }
  if (rank < program.steps_per_rank.size())
    program.steps_per_rank.erase(program.steps_per_rank.begin() +
                                 static_cast<std::ptrdiff_t>(rank));
  --program.world;
  for (faults::Fault& fault : value.faults.faults)
    if (fault.rank > rank) --fault.rank;
  for (faults::Fault& fault : value.faults.faults)
    if (fault.peer > rank) --fault.peer;
}

void drop_parameters(reference::Program& program, Range range) {
  std::vector<reference::Parameter>& parameters = program.parameters;
  const auto count = static_cast<std::uint32_t>(parameters.size());
  std::vector<std::uint32_t> owners(count);
  std::vector<std::uint32_t> originals(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    owners[i] = reference::owner_of(program, i);
    originals[i] = reference::original_of(program, i);
  }
  std::vector<std::uint32_t> moved(count);
  std::vector<reference::Parameter> kept;
  std::vector<std::uint32_t> kept_owners;
  std::vector<std::uint32_t> kept_originals;
  for (std::uint32_t i = 0; i < count; ++i) {
    moved[i] = static_cast<std::uint32_t>(kept.size());
    if (range.has(i)) continue;
    reference::Parameter parameter = parameters[i];
    parameter.shared_with = parameter.copy_of = 0;
    for (std::size_t k = 0; k < kept.size(); ++k) {
      const auto distance = static_cast<std::uint32_t>(kept.size() - k);
      if (kept_owners[k] == owners[i]) parameter.shared_with = distance;
      // The others become copies of the first one that remains.
      if (kept_originals[k] == originals[i] && is_original(kept[k])) parameter.copy_of = distance;
    }
    kept.push_back(std::move(parameter));
    kept_owners.push_back(owners[i]);
    kept_originals.push_back(originals[i]);
  }
  parameters = std::move(kept);
  for_each_node(program, [&](Node& node) {
    const std::uint32_t parameter = node.parameter % count;
    if (node.kind == Node::Kind::kUse && range.has(parameter)) {
      node.kind = Node::Kind::kSum;
      node.parameter = 0;
    } else {
      node.parameter = moved[parameter];
    }
  });
}

void drop_buffer(std::vector<reference::Buffer>& buffers, std::size_t dropped) {
  for (std::size_t i = dropped + 1; i < buffers.size(); ++i) {
    if (buffers[i].copy_of == 0) continue;
    const std::size_t original = i - buffers[i].copy_of;
    if (original == dropped) buffers[i].copy_of = 0;
    if (original < dropped) --buffers[i].copy_of;
  }
  buffers.erase(buffers.begin() + static_cast<std::ptrdiff_t>(dropped));
}

void merge_parameter(reference::Program& program, std::uint32_t parameter) {
  const auto count = static_cast<std::uint32_t>(program.parameters.size());
  if (count < 2 || parameter >= count) return;
  const std::uint32_t other = parameter == 0 ? 1 : parameter - 1;
  for_each_node(program, [&](Node& node) {
    if (node.parameter % count == parameter) node.parameter = other;
  });
  drop_parameters(program, {parameter, parameter + 1});
}

void unshare(reference::Program& program, std::uint32_t parameter) {
  if (parameter >= program.parameters.size()) return;
  program.parameters[parameter].shared_with = program.parameters[parameter].copy_of = 0;
}

void drop_nodes(const NodeList& list, Range range) {
  std::vector<Node>& nodes = *list.nodes;
  std::vector<Edges> edges = edges_of(nodes);
  for (Edges& each : edges) each = resolve(each, edges, range);
  Edges outputs;
  if (list.outputs != nullptr) outputs = edges_of(*list.outputs, count_of(nodes));
  outputs = resolve(outputs, edges, range);
  const auto begin = nodes.begin();
  nodes.erase(begin + static_cast<std::ptrdiff_t>(range.first),
              begin + static_cast<std::ptrdiff_t>(range.last));
  edges.erase(edges.begin() + static_cast<std::ptrdiff_t>(range.first),
              edges.begin() + static_cast<std::ptrdiff_t>(range.last));
  for (std::uint32_t i = 0; i < count_of(nodes); ++i) nodes[i].inputs = inputs_of(edges[i], i);
  if (list.outputs != nullptr) *list.outputs = inputs_of(outputs, count_of(nodes));
}

void inline_body(const NodeList& list, std::size_t node) {
  std::vector<Node>& nodes = *list.nodes;
  if (node >= nodes.size() || nodes[node].body.empty()) return;
  std::vector<Node> body = std::move(nodes[node].body);
  nodes[node].body.clear();
  nodes[node].kind = Node::Kind::kSum;
  const auto place = static_cast<std::uint32_t>(node);
  const std::uint32_t added = count_of(body);
  std::vector<Edges> edges = edges_of(nodes);
  std::vector<Edges> inner = edges_of(body);
  Edges outputs;
  if (list.outputs != nullptr) outputs = edges_of(*list.outputs, count_of(nodes));
  const auto move_up = [&](Edges& some) {
    for (Edge& edge : some)
      if (edge.target >= place) edge.target += added;
  };
  for (Edges& each : edges) move_up(each);
  move_up(outputs);
  for (Edges& each : inner)
    for (Edge& edge : each) edge.target += place;
  edges[place].push_back({place + added - 1, 0});
  const auto at = static_cast<std::ptrdiff_t>(place);
  nodes.insert(nodes.begin() + at, std::make_move_iterator(body.begin()),
               std::make_move_iterator(body.end()));
  edges.insert(edges.begin() + at, inner.begin(), inner.end());
  for (std::uint32_t i = 0; i < count_of(nodes); ++i) nodes[i].inputs = inputs_of(edges[i], i);
  if (list.outputs != nullptr) *list.outputs = inputs_of(outputs, count_of(nodes));
}

void merge_forward(RankPass& pass, std::size_t second) {
  if (second == 0 || second >= pass.forwards.size()) return;
  reference::Forward& to = pass.forwards[second - 1];
  reference::Forward& from = pass.forwards[second];
  if (to.discard != from.discard) return;
  const std::uint32_t added = count_of(from.nodes);
  const std::vector<Edges> edges = edges_of(from.nodes);
  Edges outputs = edges_of(to.outputs, count_of(to.nodes));
  const std::uint32_t before = count_of(to.nodes);
  for (Edge edge : edges_of(from.outputs, added))
    outputs.push_back({edge.target + before, edge.slot});
  for (std::uint32_t i = 0; i < added; ++i) from.nodes[i].inputs = inputs_of(edges[i], i);
  to.nodes.insert(to.nodes.end(), std::make_move_iterator(from.nodes.begin()),
                  std::make_move_iterator(from.nodes.end()));
  to.outputs = inputs_of(outputs, count_of(to.nodes));
  to.constants += from.constants;
  pass.forwards.erase(pass.forwards.begin() + static_cast<std::ptrdiff_t>(second));
}

RankPass plain_pass(const reference::Program& program) {
  RankPass out;
  reference::Forward& forward = out.forwards.emplace_back();
  for (std::uint32_t i = 0; i < program.parameters.size(); ++i) {
    const reference::Parameter& parameter = program.parameters[i];
    if (parameter.shared_with > 0 || parameter.frozen) continue;
    Node& node = forward.nodes.emplace_back();
    node.key = i;
    node.parameter = i;
    if (forward.nodes.size() > 1) node.inputs.emplace_back();
  }
  if (forward.nodes.empty()) forward.nodes.emplace_back();
  forward.outputs.emplace_back();
  return out;
}

}  // namespace lockstep::properties
