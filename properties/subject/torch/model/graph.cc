#include "properties/subject/torch/model/graph.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace lockstep::properties::torch_model {

using namespace reference;  // NOLINT: the vocabulary of programs

namespace {

// x modulo n; most indices are in range already, and a division is slow.
std::uint32_t modulo(std::uint32_t x, std::uint32_t n) { return x < n ? x : x % n; }

bool passes_to_inputs(const Node& node) { return node.kind != Node::Kind::kDetach; }

std::uint32_t slot_of(const Node& node, const Input& input) {
  return node.kind == Node::Kind::kSplit ? input.slot % 2 : 0;
}

struct Edge {
  std::uint32_t node;
  std::uint32_t slot;
};
Edge edge_of(const std::vector<Node>& nodes, std::size_t index, const Input& input) {
  assert(index > 0);
  const auto from = static_cast<std::uint32_t>(index);
  const std::uint32_t target = from - 1 - modulo(input.back, from);
  return {target, slot_of(nodes[target], input)};
}

Edge output_of(const Forward& forward, const Input& output) {
  const auto count = static_cast<std::uint32_t>(forward.nodes.size());
  const std::uint32_t target = count - 1 - modulo(output.back, count);
  return {target, slot_of(forward.nodes[target], output)};
}

// Whether output `output` of `outputs` is a root of this call.
bool is_root(const RankPass& pass, std::uint32_t call, std::uint32_t output,
             std::uint32_t outputs) {
  if (pass.backwards.empty() || pass.backwards[call].roots.empty()) return true;
  const std::vector<std::uint32_t>& roots = pass.backwards[call].roots;
  return std::any_of(roots.begin(), roots.end(),
                     [&](std::uint32_t root) { return root % outputs == output; });
}

}  // namespace

Graph::Graph(const std::vector<std::uint32_t>& owners) : owners_(owners) {
  targets_.resize(owners.size() * (kMaxDepth + 1));
  events_.reserve(2 * owners.size());
}

void Graph::Arrived::add(std::uint32_t slot, double s) {
  scalar[slot] = defined[slot] ? scalar[slot] + s : s;
  defined[slot] = true;
}

const std::vector<Event>& Graph::backward(const RankPass& pass, std::uint32_t call,
                                          std::uint32_t whole_forwards) {
  assert(call < call_count(pass));
  events_.clear();
  arrived_.clear();
  const std::uint32_t outputs = kept_outputs(pass);
  std::uint32_t output = 0;
  whole_forwards_begun_ = 0;
  for (std::size_t f = 0; f < pass.forwards.size(); ++f) {
    const Forward& forward = pass.forwards[f];
    if (forward.discard) continue;
    const std::size_t base = arrived_.size();
    arrived_.resize(base + forward.nodes.size());
    bool has_root = false;
    for (const Input& input : forward.outputs) {
      if (!is_root(pass, call, output++, outputs)) continue;
      const Edge edge = output_of(forward, input);
      arrived_[base + edge.node].add(edge.slot, 1);
      arrived_[base + edge.node].reached = true;
      has_root = true;
    }
    const bool is_whole = has_root && (whole_forwards >> f & 1) != 0;
    if (is_whole) ++whole_forwards_begun_;
    for (const Input& input : forward.outputs)
      if (is_whole) arrived_[base + output_of(forward, input).node].reached = true;
    find_reached(forward.nodes, base, 0);
  }
  // Forwards don't share nodes: the later one's nodes were all created later.
  std::size_t base = arrived_.size();
  for (std::size_t i = pass.forwards.size(); i-- > 0;) {
    if (pass.forwards[i].discard) continue;
    base -= pass.forwards[i].nodes.size();
    visit_all(pass.forwards[i].nodes, base, 0);
  }
  return events_;
}

void Graph::find_unused(const RankPass& pass, std::size_t last, bool is_last_alone,
                        std::vector<std::uint8_t>& unused) {
  assert(last < pass.forwards.size());
  RankPass searched;
  for (std::size_t f = 0; f <= last; ++f) {
    const bool is_beside = pass.forwards[f].discard || pass.forwards[f].local;
    if (is_last_alone ? f != last : is_beside) continue;
    searched.forwards.push_back(pass.forwards[f]);
    searched.forwards.back().discard = false;
  }
  std::fill(unused.begin(), unused.end(), std::uint8_t{1});
  if (searched.forwards.empty()) return;
  for (const Event& event : backward(searched, 0))
    if (event.kind == Event::Kind::kHook && event.depth == 0) unused[event.parameter] = 0;
}

std::uint32_t Graph::owner_of_use(const Node& node) const {
  if (node.kind != Node::Kind::kUse) return kNotTrained;
  return owners_[modulo(node.parameter, static_cast<std::uint32_t>(owners_.size()))];
}

void Graph::find_reached(const std::vector<Node>& nodes, std::size_t base, std::uint32_t depth) {
  for (std::size_t i = nodes.size(); i-- > 0;) {
    if (!arrived_[base + i].reached) continue;
    const std::uint32_t owner = owner_of_use(nodes[i]);
    if (owner != kNotTrained) ++targets_[depth * owners_.size() + owner].pending;
    if (i == 0 || !passes_to_inputs(nodes[i])) continue;
    for (const Input& input : nodes[i].inputs) {
      arrived_[base + edge_of(nodes, i, input).node].reached = true;
    }
  }
}

void Graph::visit_all(const std::vector<Node>& nodes, std::size_t base, std::uint32_t depth) {
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    const Arrived arrived = arrived_[base + i];
    if (!arrived.reached) continue;
    bool defined = arrived.defined[0];
    double scalar = arrived.scalar[0];
    if (node.kind == Node::Kind::kUse) visit_use(node, arrived, depth);
    if (node.kind == Node::Kind::kScale) scalar *= node.factor;
    if (node.kind == Node::Kind::kStop) defined = false;
    if (node.kind == Node::Kind::kCheckpoint && defined) run_body(node.body, scalar, depth + 1);
    if (node.kind == Node::Kind::kSplit && arrived.defined[1]) {
      const double second = 2 * arrived.scalar[1];
      scalar = defined ? scalar + second : second;
      defined = true;
    }
    if (i == 0 || !defined || !passes_to_inputs(node)) continue;
    for (const Input& input : node.inputs) {
      const Edge edge = edge_of(nodes, i, input);
      arrived_[base + edge.node].add(edge.slot, scalar);
    }
  }
}

void Graph::visit_use(const Node& node, const Arrived& arrived, std::uint32_t depth) {
  const std::uint32_t owner = owner_of_use(node);
  if (owner == kNotTrained) return;
  Target& target = targets_[depth * owners_.size() + owner];
  Event event;
  event.depth = depth;
  event.parameter = owner;
  if (arrived.defined[0]) {
    event.first = !target.defined;
    event.node_key = node.key;
    event.entries = node.entries;
    event.requires_grad = node.requires_grad;
    event.scalar = arrived.scalar[0];
    events_.push_back(event);
    target.defined = true;
  }
  assert(target.pending > 0);
  if (--target.pending > 0) return;
  event.kind = Event::Kind::kHook;
  event.defined = target.defined;
  events_.push_back(event);
  target.defined = false;
}

void Graph::run_body(const std::vector<Node>& body, double seed, std::uint32_t depth) {
  assert(depth <= kMaxDepth);
  const std::size_t base = arrived_.size();
  arrived_.resize(base + body.size());
  arrived_.back().add(0, seed);
  arrived_.back().reached = true;
  find_reached(body, base, depth);
  visit_all(body, base, depth);
  arrived_.resize(base);
  Event& end = events_.emplace_back();
  end.kind = Event::Kind::kEnd;
  end.depth = depth;
}

}  // namespace lockstep::properties::torch_model
