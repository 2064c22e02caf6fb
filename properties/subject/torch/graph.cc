#include "properties/subject/torch/graph.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>

#include "properties/subject/torch/interface.h"
#include "reference/arithmetic.h"
#include "reference/sparse.h"
#include "reference/values.h"

namespace lockstep::torch_subject {

using reference::DType;
using RecordKind = reference::Node::Kind;
using torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

at::ScalarType type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kComplex64:  // which no case for this subject has
    case DType::kFloat32:
      break;
  }
  return at::kFloat;
}

at::Tensor scalar(double value) { return at::full({}, value, at::kDouble); }

}  // namespace

at::Tensor empty_like(const reference::Parameter& parameter, bool is_row_major) {
  std::vector<std::int64_t> sizes(parameter.sizes.begin(), parameter.sizes.end());
  std::vector<std::int64_t> strides(sizes.size());
  std::vector<std::uint32_t> outermost_first = reference::dimensions_in_memory(parameter);
  if (is_row_major) std::iota(outermost_first.begin(), outermost_first.end(), 0U);
  std::int64_t next = 1;
  for (auto d = outermost_first.rbegin(); d != outermost_first.rend(); ++d) {
    strides[*d] = next;
    next *= std::max<std::int64_t>(sizes[*d], 1);
  }
  return at::empty_strided(sizes, strides, at::TensorOptions(type_of(parameter.dtype)));
}

class GraphBuilder::ProgramNode final : public Node {
 public:
  ProgramNode(GraphBuilder& builder, std::uint32_t step_key, const reference::Node& record,
              torch::autograd::edge_list edges, std::uint32_t parameter, bool wants_gradient)
      : Node(std::move(edges)),
        builder_(builder),
        record_(record),
        step_key_(step_key),
        parameter_(parameter),
        wants_gradient_(wants_gradient) {
    const at::Tensor sample = scalar(0);
    const std::uint32_t slots = record.kind == RecordKind::kSplit ? 2 : 1;
    for (std::uint32_t slot = 0; slot < slots; ++slot) add_input_metadata(sample);
  }

  variable_list apply(variable_list&& incoming) override {
    builder_.visit_node_();
    const at::Tensor passed = pass(incoming);
    variable_list out(num_outputs(), passed);
    if (wants_gradient_)
      out.back() = passed.defined() ? gradient(passed.item<double>()) : at::Tensor();
    return out;
  }

 private:
  at::Tensor pass(const variable_list& incoming) {
    const at::Tensor& s = incoming[0];
    switch (record_.kind) {
      case RecordKind::kStop:
      case RecordKind::kDetach:
        return {};
      case RecordKind::kScale:
        return s.defined() ? scalar(s.item<double>() * record_.factor) : at::Tensor();
      case RecordKind::kSplit:
        return join(s, incoming[1]);
      case RecordKind::kCheckpoint:
        if (s.defined()) run_body(s.item<double>());
        return s;
      case RecordKind::kUse:
      case RecordKind::kSum:
        break;
    }
    return s;
  }

  static at::Tensor join(const at::Tensor& first, const at::Tensor& second) {
    if (!first.defined() && !second.defined()) return {};
    double sum = 0;
    if (first.defined()) sum += first.item<double>();
    if (second.defined()) sum += 2 * second.item<double>();
    return scalar(sum);
  }

  void run_body(double seed) {
    backward(builder_.build(step_key_, record_.body, {reference::Input{}}), seed, false);
  }

  at::Tensor gradient(double s) const {
    const reference::Parameter& parameter = builder_.program_.parameters[parameter_];
    if (parameter.sparse) return entries(parameter, s);
    at::Tensor out = empty_like(parameter, record_.row_major);
    const auto count = static_cast<std::size_t>(out.numel());
    std::vector<double> values(count);
    const reference::UseValues constant(builder_.program_, parameter, builder_.rank_, step_key_,
                                        record_.key);
    for (std::size_t e = 0; e < count; ++e)
      values[record_.row_major ? e : reference::row_major_to_memory(parameter, e)] = constant.at(e);
    reference::store_values(parameter.dtype, static_cast<std::byte*>(out.data_ptr()), values.data(),
                            s, count);
    return record_.gaps && out.dim() > 0 ? with_gaps(out) : out;
  }

  // Copies the elements to memory with gaps: to a slice of a tensor that is longer in its innermost
  // dimension, or to every second element of a vector.
  static at::Tensor with_gaps(const at::Tensor& dense) {
    std::int64_t innermost = dense.dim() - 1;
    for (std::int64_t d = 0; d < dense.dim(); ++d)
      if (dense.stride(d) < dense.stride(innermost)) innermost = d;
    std::vector<std::int64_t> strides(dense.strides().begin(), dense.strides().end());
    const std::int64_t length = std::max<std::int64_t>(dense.size(innermost), 1);
    for (std::int64_t d = 0; d < dense.dim(); ++d)
      if (d != innermost) strides[d] = strides[d] / length * (length + 1);
    if (dense.dim() == 1) strides[0] = 2;
    at::Tensor out = at::empty_strided(dense.sizes(), strides, dense.options());
    return out.copy_(dense);
  }

  // Returns the gradient as an embedding sends it.
  at::Tensor entries(const reference::Parameter& parameter, double s) const {
    const reference::Entries sent = reference::entries_of(
        builder_.program_, parameter, builder_.rank_, {step_key_, record_.key, record_.entries}, s);
    std::vector<std::int64_t> sizes(parameter.sizes.begin(), parameter.sizes.end());
    const auto count = static_cast<std::int64_t>(sent.rows.size());
    at::Tensor rows = at::empty({1, count}, at::kLong);
    std::copy(sent.rows.begin(), sent.rows.end(), rows.data_ptr<std::int64_t>());
    std::vector<std::int64_t> shape = sizes;
    shape[0] = count;
    at::Tensor values = at::empty(shape, at::TensorOptions(type_of(parameter.dtype)));
    reference::store_values(parameter.dtype, static_cast<std::byte*>(values.data_ptr()),
                            sent.values.data(), 1, sent.values.size());
    return at::_sparse_coo_tensor_unsafe(rows, values, sizes);
  }

  GraphBuilder& builder_;
  const reference::Node& record_;
  const std::uint32_t step_key_;
  const std::uint32_t parameter_;  // the owner's index
  const bool wants_gradient_;      // its edge is the last one
};

GraphBuilder::GraphBuilder(const reference::Program& program, std::uint32_t rank,
                           const std::vector<at::Tensor>& parameters,
                           std::function<void()> visit_node)
    : program_(program), rank_(rank), parameters_(parameters), visit_node_(std::move(visit_node)) {}

std::vector<at::Tensor> GraphBuilder::build(std::uint32_t step_key,
                                            const std::vector<reference::Node>& nodes,
                                            const std::vector<reference::Input>& outputs) {
  std::vector<NodeHandle> made;
  const auto edge_to = [&made](std::size_t index, std::uint32_t slot) {
    return torch::autograd::Edge(made[index], slot % made[index]->num_inputs());
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const reference::Node& record = nodes[i];
    torch::autograd::edge_list edges;
    if (i > 0 && record.kind != RecordKind::kDetach)
      for (const reference::Input& input : record.inputs)
        edges.push_back(edge_to(i - 1 - input.back % i, input.slot));
    const auto count = static_cast<std::uint32_t>(program_.parameters.size());
    const std::uint32_t owner = reference::owner_of(program_, record.parameter % count);
    const bool wants_gradient =
        record.kind == RecordKind::kUse && parameters_[owner].requires_grad();
    if (wants_gradient) edges.push_back(torch::autograd::impl::gradient_edge(parameters_[owner]));
    made.push_back(
        make_node<ProgramNode>(*this, step_key, record, std::move(edges), owner, wants_gradient));
  }
  std::vector<at::Tensor> variables;
  for (const reference::Input& output : outputs) {
    variables.push_back(scalar(0));
    torch::autograd::impl::set_gradient_edge(
        variables.back(), edge_to(made.size() - 1 - output.back % made.size(), output.slot));
  }
  return variables;
}

void GraphBuilder::backward(const std::vector<at::Tensor>& roots, double seed, bool retains_graph) {
  torch::autograd::edge_list edges;
  variable_list gradients;
  for (const at::Tensor& root : roots) {
    edges.push_back(torch::autograd::impl::gradient_edge(root));
    gradients.push_back(scalar(seed));
  }
  torch::autograd::Engine::get_default_engine().execute(edges, gradients, retains_graph, false,
                                                        true);
}

}  // namespace lockstep::torch_subject
