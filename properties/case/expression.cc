#include "properties/case/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lockstep::properties {
namespace {

using reference::Forward;
using reference::Input;
using reference::Node;
using reference::Program;
using reference::RankPass;

std::uint32_t target_of(const Input& input, std::uint32_t from) {
  return from - 1 - input.back % from;
}
std::uint32_t output_target(const Input& output, std::uint32_t count) {
  return count - 1 - output.back % count;
}
std::uint32_t count_of(const std::vector<Node>& nodes) {
  return static_cast<std::uint32_t>(nodes.size());
}

// Finds the nodes from which the text has a path to one of the roots, also through detach.
std::vector<bool> behind(const std::vector<Node>& nodes, const std::vector<std::uint32_t>& roots,
                         bool through_detach) {
  std::vector<bool> out(nodes.size(), false);
  for (const std::uint32_t root : roots) out[root] = true;
  for (std::uint32_t i = count_of(nodes); i-- > 1;) {
    if (!out[i] || (nodes[i].kind == Node::Kind::kDetach && !through_detach)) continue;
    for (const Input& input : nodes[i].inputs) out[target_of(input, i)] = true;
  }
  return out;
}

std::string parameter_name(const Program& program, const Node& node) {
  return fmt::format("p{}", node.parameter % program.parameters.size());
}

// Writes one list of nodes (a forward's or a body's) as expressions.
class Writer {
 public:
  Writer(const Program& program, const std::vector<Node>& nodes,
         const std::vector<std::uint32_t>& roots, char& next_name)
      : program_(program), nodes_(nodes), next_name_(next_name), texts_(nodes.size()) {
    const std::vector<bool> shown = behind(nodes, roots, true);
    std::vector<int> consumers(nodes.size(), 0);
    for (const std::uint32_t root : roots) ++consumers[root];
    for (std::uint32_t i = 1; i < count_of(nodes); ++i)
      if (shown[i])
        for (const Input& input : nodes[i].inputs) ++consumers[target_of(input, i)];
    for (std::uint32_t i = 0; i < count_of(nodes); ++i) {
      if (!shown[i]) continue;
      texts_[i] = text(i);
      if (consumers[i] < 2) continue;
      const std::string name(1, next_name_);
      next_name_ = next_name_ == 'z' ? 'a' : static_cast<char>(next_name_ + 1);
      where_ += (where_.empty() ? "" : ", ") + name + " = " + texts_[i];
      texts_[i] = name;
    }
  }

  std::string output(std::uint32_t node, std::uint32_t slot) const {
    if (nodes_[node].kind != Node::Kind::kSplit) return texts_[node];
    return fmt::format("{}.{}", texts_[node], slot % 2);
  }
  const std::string& where() const { return where_; }

 private:
  std::string inputs(std::uint32_t index) const {
    std::string out;
    if (index == 0) return out;
    for (const Input& input : nodes_[index].inputs) {
      if (!out.empty()) out += ", ";
      out += output(target_of(input, index), input.slot);
    }
    return out;
  }
  std::string text(std::uint32_t index) {
    const Node& node = nodes_[index];
    const std::string in = inputs(index);
    const bool many = index > 0 && node.inputs.size() > 1;
    const auto applied = [&](const std::string& name) { return name + "(" + in + ")"; };
    switch (node.kind) {
      case Node::Kind::kUse: {
        std::string name = parameter_name(program_, node);
        // The strides are the same either way if the parameter is row-major itself.
        const auto& parameter = program_.parameters[node.parameter % program_.parameters.size()];
        if (node.row_major && !reference::is_row_major(parameter)) name += ":row-major";
        if (node.gaps && !parameter.sizes.empty() && !parameter.sparse) name += ":with-gaps";
        if (node.requires_grad) name += ":requires-grad";
        if (parameter.sparse) name += fmt::format(":{}-entries", node.entries);
        return in.empty() ? name : applied(name);
      }
      case Node::Kind::kSum:
        return in.empty() ? "const" : applied("sum");
      case Node::Kind::kScale:
        return fmt::format("{}*{}", node.factor, in.empty() ? "const" : many ? applied("sum") : in);
      case Node::Kind::kStop:
        return applied("stop");
      case Node::Kind::kDetach:
        return applied("detach");
      case Node::Kind::kSplit:
        return applied("split");
      case Node::Kind::kCheckpoint:
        return applied(body(node));
    }
    return "?";
  }
  std::string body(const Node& node) {
    const std::uint32_t last = count_of(node.body) - 1;
    Writer inner(program_, node.body, {last}, next_name_);
    std::string out = "checkpoint{" + inner.output(last, 0);
    if (!inner.where().empty()) out += " where " + inner.where();
    return out + "}";
  }

  const Program& program_;
  const std::vector<Node>& nodes_;
  char& next_name_;
  std::vector<std::string> texts_;
  std::string where_;
};

void collect_uses(const Program& program, const std::vector<Node>& nodes,
                  const std::vector<bool>& shown, std::set<std::size_t>& uses) {
  for (std::uint32_t i = 0; i < count_of(nodes); ++i) {
    if (!shown[i]) continue;
    const Node& node = nodes[i];
    if (node.kind == Node::Kind::kUse) uses.insert(node.parameter % program.parameters.size());
    if (node.kind == Node::Kind::kCheckpoint && !node.body.empty()) {
      const std::uint32_t last = count_of(node.body) - 1;
      collect_uses(program, node.body, behind(node.body, {last}, false), uses);
    }
  }
}

std::string summary(const Program& program, const std::vector<Node>& nodes, std::uint32_t root) {
  constexpr std::size_t kNamed = 8;
  std::set<std::size_t> uses;
  collect_uses(program, nodes, behind(nodes, {root}, true), uses);
  std::string out = "f(";
  std::size_t named = 0;
  for (const std::size_t parameter : uses) {
    if (named++ == kNamed) break;
    out += fmt::format("{}p{}", named > 1 ? ", " : "", parameter);
  }
  return out + (uses.size() > kNamed ? ", ...)" : ")");
}

}  // namespace

ForwardText text_of(const Program& program, const Forward& forward, char& next_name,
                    std::size_t max_length) {
  std::vector<std::uint32_t> roots;
  for (const Input& output : forward.outputs)
    roots.push_back(output_target(output, count_of(forward.nodes)));
  const char name_before = next_name;
  const Writer writer(program, forward.nodes, roots, next_name);
  ForwardText out;
  std::size_t length = writer.where().size();
  for (std::size_t i = 0; i < roots.size(); ++i) {
    out.outputs.push_back(writer.output(roots[i], forward.outputs[i].slot));
    length += out.outputs.back().size();
  }
  out.where = writer.where();
  if (length <= max_length) return out;
  next_name = name_before;
  out.where.clear();
  for (std::size_t i = 0; i < roots.size(); ++i)
    out.outputs[i] = summary(program, forward.nodes, roots[i]);
  return out;
}

std::vector<bool> reached_by(const Program& program, const RankPass& pass) {
  std::vector<const Forward*> kept;
  std::size_t outputs = 0;
  for (const Forward& forward : pass.forwards) {
    if (forward.discard) continue;
    kept.push_back(&forward);
    outputs += forward.outputs.size();
  }
  std::vector<bool> is_root(outputs, pass.backwards.empty());
  for (const reference::Backward& call : pass.backwards) {
    if (call.roots.empty()) is_root.assign(outputs, true);
    for (const std::uint32_t root : call.roots)
      if (outputs > 0) is_root[root % outputs] = true;
  }
  std::set<std::size_t> uses;
  std::size_t number = 0;
  for (const Forward* forward : kept) {
    std::vector<std::uint32_t> roots;
    for (const Input& output : forward->outputs)
      if (is_root[number++]) roots.push_back(output_target(output, count_of(forward->nodes)));
    collect_uses(program, forward->nodes, behind(forward->nodes, roots, false), uses);
  }
  std::vector<bool> out(program.parameters.size(), false);
  for (const std::size_t parameter : uses)
    out[reference::owner_of(program, static_cast<std::uint32_t>(parameter))] = true;
  return out;
}

std::size_t node_count(const std::vector<Node>& nodes) {
  std::size_t count = nodes.size();
  for (const Node& node : nodes) count += node_count(node.body);
  return count;
}

}  // namespace lockstep::properties
