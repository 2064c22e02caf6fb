#include "properties/observe/graph_builder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "reducer/base/check.h"
#include "reducer/tensor/sparse.h"
#include "reference/arithmetic.h"
#include "reference/sparse.h"
#include "reference/values.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using RecordKind = reference::Node::Kind;

DType dtype_of(reference::DType dtype) {
  switch (dtype) {
    case reference::DType::kFloat32:
      return DType::kFloat32;
    case reference::DType::kFloat64:
      return DType::kFloat64;
    case reference::DType::kFloat16:
      return DType::kFloat16;
    case reference::DType::kBFloat16:
      return DType::kBFloat16;
    case reference::DType::kComplex64:
      return DType::kComplex64;
  }
  return DType::kFloat32;
}

Shape shape_of(const std::vector<std::uint32_t>& sizes, bool column_major) {
  std::array<std::int64_t, reference::kMaxDims> wide{};
  std::copy(sizes.begin(), sizes.end(), wide.begin());
  const std::span<const std::int64_t> view(wide.data(), sizes.size());
  return column_major ? Shape::column_major(view) : Shape::row_major(view);
}

Shape shape_of(const reference::Parameter& parameter) {
  Shape shape = shape_of(parameter.sizes, parameter.column_major);
  if (reference::is_row_major(parameter) || parameter.column_major) return shape;
  const std::vector<std::uint32_t> outermost_first = reference::dimensions_in_memory(parameter);
  std::int64_t next = 1;
  for (auto dim = outermost_first.rbegin(); dim != outermost_first.rend(); ++dim) {
    shape.strides[*dim] = next;
    next *= std::max<std::int64_t>(shape.sizes[*dim], 1);
  }
  return shape;
}

Shape with_gaps(const Shape& dense) {
  Shape shape = dense;
  if (dense.dims == 1) shape.strides[0] = 2;
  if (dense.dims < 2) return shape;
  std::array<std::size_t, kMaxDims> innermost_first{};
  const auto end = innermost_first.begin() + dense.dims;
  std::iota(innermost_first.begin(), end, std::size_t{0});
  std::stable_sort(innermost_first.begin(), end, [&](std::size_t a, std::size_t b) {
    return dense.strides[a] < dense.strides[b];
  });
  std::int64_t next = 1;
  for (auto dim = innermost_first.begin(); dim != end; ++dim) {
    shape.strides[*dim] = next;
    next *= std::max<std::int64_t>(dense.sizes[*dim], 1);
    if (dim == innermost_first.begin()) ++next;
  }
  return shape;
}

namespace {

double value_of_scalar(const Tensor& scalar) {
  double value = 0;
  std::memcpy(&value, scalar.data(), sizeof value);
  return value;
}

}  // namespace

// A node of any kind but kUse: its inputs and outputs are scalars.
class ProgramNode : public Node {
 public:
  ProgramNode(GraphBuilder& builder, const reference::Node& record, std::vector<Edge> edges,
              int worker, std::uint32_t step_key)
      : Node(builder.engine_.next_sequence(), record.kind == RecordKind::kSplit ? 2u : 1u, worker),
        builder_(builder),
        record_(record),
        step_key_(step_key) {
    edges_ = std::move(edges);
    runs_backward_ = record.kind == RecordKind::kCheckpoint;
  }

  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext& context) override {
    builder_.environment_.visit_node();
    Tensor passed;
    switch (record_.kind) {
      case RecordKind::kUse:
      case RecordKind::kSum:
        passed = incoming[0];
        break;
      case RecordKind::kStop:
      case RecordKind::kDetach:
        break;
      case RecordKind::kScale:
        LOCKSTEP_RETURN_IF_ERROR(scale(incoming[0], passed));
        break;
      case RecordKind::kSplit:
        LOCKSTEP_RETURN_IF_ERROR(join(incoming, passed));
        break;
      case RecordKind::kCheckpoint:
        passed = incoming[0];
        if (passed.defined()) LOCKSTEP_RETURN_IF_ERROR(run_body(passed, context));
        break;
    }
    std::fill(outgoing.begin(), outgoing.end(), passed);
    return {};
  }

 protected:
  Status make(double value, Tensor& out) {
    Result<Tensor> fresh = builder_.scalar(value);
    if (!fresh) return fresh.error();
    out = std::move(*fresh);
    return {};
  }

  GraphBuilder& builder_;
  const reference::Node& record_;
  const std::uint32_t step_key_;

 private:
  Status scale(const Tensor& s, Tensor& out) {
    return s.defined() ? make(value_of_scalar(s) * record_.factor, out) : Status();
  }

  Status join(std::span<const Tensor> parts, Tensor& out) {
    if (!parts[0].defined() && !parts[1].defined()) return {};
    double sum = 0;
    if (parts[0].defined()) sum += value_of_scalar(parts[0]);
    if (parts[1].defined()) sum += 2 * value_of_scalar(parts[1]);
    return make(sum, out);
  }

  Status run_body(const Tensor& s, const BackwardContext& context) {
    if (record_.body.empty()) return {};
    const std::vector<Edge> root = builder_.build(record_.body, {reference::Input{}}, step_key_);
    return context.engine.backward_nested(context, root, {&s, 1}, false);
  }
};

// A use of a parameter: it passes s on, and sends s*c to the parameter.
class UseNode final : public ProgramNode {
 public:
  UseNode(GraphBuilder& builder, const reference::Node& record, std::vector<Edge> edges,
          std::uint32_t index, bool wants_gradient, std::uint32_t step_key)
      : ProgramNode(builder, record, std::move(edges), builder.parameters_[index]->worker(),
                    step_key),
        index_(index),
        wants_gradient_(wants_gradient) {}

  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    builder_.environment_.visit_node();
    const Tensor& s = incoming[0];
    const std::size_t inputs = outgoing.size() - (wants_gradient_ ? 1 : 0);
    for (std::size_t i = 0; i < inputs; ++i) outgoing[i] = s;
    if (!wants_gradient_ || !s.defined()) return {};
    const double scalar = value_of_scalar(s);
    Tensor& sent = outgoing[inputs];
    LOCKSTEP_RETURN_IF_ERROR(builder_.program_.parameters[index_].sparse ? entries(scalar, sent)
                                                                         : gradient(scalar, sent));
    sent.set_requires_grad(record_.requires_grad);
    return {};
  }

 private:
  Status entries(double s, Tensor& out) {
    Parameter& parameter = *builder_.parameters_[index_];
    const reference::Parameter& record = builder_.program_.parameters[index_];
    const reference::Use use{step_key_, record_.key, record_.entries};
    const reference::Entries entries =
        reference::entries_of(builder_.program_, record, builder_.environment_.rank(), use, s);
    Result<Tensor> fresh = empty_sparse(parameter.device(), parameter.dtype(), parameter.shape(),
                                        {entries.rows.begin(), entries.rows.end()});
    if (!fresh) return fresh.error();
    LOCKSTEP_RETURN_IF_ERROR(builder_.memory_.fill(*fresh, [&](std::byte* memory) {
      reference::store_values(record.dtype, memory, entries.values.data(), 1.0,
                              entries.values.size());
    }));
    out = std::move(*fresh);
    return {};
  }

  Status gradient(double s, Tensor& out) {
    Parameter& parameter = *builder_.parameters_[index_];
    const reference::Parameter& record = builder_.program_.parameters[index_];
    const Shape shape = record_.row_major
                            ? Shape::row_major({parameter.shape().sizes.data(),
                                                static_cast<std::size_t>(parameter.shape().dims)})
                            : parameter.shape();
    Result<Tensor> fresh = Tensor::empty(parameter.device(), parameter.dtype(), shape);
    if (!fresh) return fresh.error();
    const std::size_t count = reference::value_count(record);
    std::array<double, kFewElements> few;
    std::vector<double> many(count > few.size() ? count : 0);
    double* const c = many.empty() ? few.data() : many.data();
    const reference::UseValues values(builder_.program_, record, builder_.environment_.rank(),
                                      step_key_, record_.key);
    const GraphBuilder::Positions& memory_of = builder_.memory_of_[index_];
    if (record_.row_major || memory_of.empty())
      values.read(c, count);
    else
      values.read(c, memory_of.data(), count);
    LOCKSTEP_RETURN_IF_ERROR(builder_.memory_.fill(*fresh, [&](std::byte* memory) {
      reference::store_values(record.dtype, memory, c, s, count);
    }));
    if (record_.gaps) return spread(*fresh, out);
    out = std::move(*fresh);
    return {};
  }

  // Copies the elements to memory with gaps, which hold zeros.
  static Status spread(const Tensor& dense, Tensor& out) {
    Device& device = dense.device();
    Result<Tensor> other = Tensor::empty(device, dense.dtype(), with_gaps(dense.shape()));
    if (!other) return other.error();
    device.fill_zero(device.current_stream(), other->data(), other->storage()->bytes());
    device.copy(device.current_stream(), dense, *other);
    out = std::move(*other);
    return {};
  }

  static constexpr std::size_t kFewElements = 256;

  const std::uint32_t index_;  // the index of the owner among the program's parameters
  const bool wants_gradient_;
};

std::vector<GraphBuilder::Positions> GraphBuilder::memory_orders(
    const reference::Program& program) {
  std::vector<Positions> orders(program.parameters.size());
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const reference::Parameter& record = program.parameters[i];
    if (reference::is_row_major(record) || record.shared_with != 0) continue;
    orders[i].resize(reference::value_count(record));
    for (std::size_t e = 0; e < orders[i].size(); ++e)
      orders[i][e] = static_cast<std::uint32_t>(reference::row_major_to_memory(record, e));
  }
  return orders;
}

std::vector<Edge> GraphBuilder::build(const std::vector<reference::Node>& nodes,
                                      const std::vector<reference::Input>& outputs,
                                      std::uint32_t step_key) {
  LOCKSTEP_CHECK(!nodes.empty());
  std::vector<Ref<Node>> made;  // a worker builds a checkpoint's body beside others
  made.reserve(nodes.size());
  const auto edge_to = [&made](std::size_t index, std::uint32_t slot) {
    return Edge{made[index], slot % made[index]->outputs()};
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const reference::Node& record = nodes[i];
    std::vector<Edge> edges;
    edges.reserve(record.inputs.size() + 1);
    if (i > 0 && record.kind != RecordKind::kDetach)
      for (const reference::Input& input : record.inputs)
        edges.push_back(edge_to(i - 1 - input.back % i, input.slot));
    if (record.kind != RecordKind::kUse || program_.parameters.empty()) {
      made.emplace_back(
          new ProgramNode(*this, record, std::move(edges), worker_of(record), step_key));
      continue;
    }
    const auto count = static_cast<std::uint32_t>(program_.parameters.size());
    const std::uint32_t index = reference::owner_of(program_, record.parameter % count);
    const Ref<Parameter>& parameter = parameters_[index];
    const bool wants_gradient = parameter->requires_grad();
    if (wants_gradient) edges.push_back({parameter, 0});
    made.emplace_back(
        new UseNode(*this, record, std::move(edges), index, wants_gradient, step_key));
  }
  std::vector<Edge> edges;
  edges.reserve(outputs.size());
  for (const reference::Input& output : outputs)
    edges.push_back(edge_to(made.size() - 1 - output.back % made.size(), output.slot));
  return edges;
}

// A checkpoint runs on the worker of the first parameter of its body. If the order of additions
// changes bits, the model requires checkpoints to run one after another.
int GraphBuilder::worker_of(const reference::Node& record) const {
  if (program_.values != reference::Values::kExact || program_.parameters.empty()) return 0;
  const auto count = static_cast<std::uint32_t>(program_.parameters.size());
  for (const reference::Node& node : record.body)
    if (node.kind == RecordKind::kUse)
      return parameters_[reference::owner_of(program_, node.parameter % count)]->worker();
  return 0;
}

Result<Tensor> GraphBuilder::scalar(double value) {
  Result<Tensor> tensor = Tensor::empty(scalars_, DType::kFloat64, Shape::row_major({1}));
  if (tensor) std::memcpy(tensor->data(), &value, sizeof value);
  return tensor;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
