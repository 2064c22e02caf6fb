#include "properties/subject/misfit.h"

#include <algorithm>
#include <utility>

#include "properties/observe/graph_builder.h"
#include "reducer/base/check.h"
#include "reducer/comm/forwarding_group.h"
#include "reducer/hooks/builtin_hooks.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using reference::MisfitKind;

constexpr std::uint64_t kOtherLimit = 12'345;  // In bytes, and no limit that a case has.

// A group that can do less than the one it stands for. It forwards collectives, and keeps an abort
// to itself, because the ranks go on with the group that it stands for.
class LessAbleGroup final : public ForwardingGroup {
 public:
  LessAbleGroup(MisfitKind kind, std::shared_ptr<ProcessGroup> inner)
      : ForwardingGroup(std::move(inner)), kind_(kind) {}
  bool can_reduce(DType dtype) const override {
    return kind_ != MisfitKind::kGroupDType && ForwardingGroup::can_reduce(dtype);
  }
  bool can_reach(const Device& device) const override {
    return kind_ != MisfitKind::kGroupDevice && ForwardingGroup::can_reach(device);
  }
  bool can_verify() const override {
    return kind_ != MisfitKind::kGroupVerify && ForwardingGroup::can_verify();
  }
  void abort(const Status&) override {}

 private:
  const MisfitKind kind_;
};

// A group that has a rank more than the one it stands for, or in which this rank is another one.
class OtherRanksGroup final : public ForwardingGroup {
 public:
  OtherRanksGroup(bool is_larger, std::shared_ptr<ProcessGroup> inner)
      : ForwardingGroup(std::move(inner)), is_larger_(is_larger) {}
  int rank() const override { return ForwardingGroup::rank() + (is_larger_ ? 0 : 1); }
  int size() const override { return ForwardingGroup::size() + (is_larger_ ? 1 : 0); }
  void abort(const Status&) override {}

 private:
  const bool is_larger_;
};

// What of a parameter may differ.
struct Form {
  std::string name;
  Shape shape;
  DType dtype;
  bool requires_grad;
  bool sparse;
};

Ref<Parameter> make(const Form& form, Device& device) {
  return make_ref<Parameter>(
      form.name, device, form.dtype, form.shape, form.requires_grad, std::uint64_t{0},
      form.sparse ? Parameter::Gradients::kSparse : Parameter::Gradients::kDense);
}

Shape with_another_size(const Parameter& parameter) {
  const Shape& shape = parameter.shape();
  if (shape.dims == 0) return Shape::row_major({2});
  std::vector<std::int64_t> sizes(shape.sizes.begin(), shape.sizes.begin() + shape.dims);
  ++sizes[0];
  return Shape::row_major(sizes);
}

// Returns the parameter in the form that the misfit gives it.
Ref<Parameter> changed(MisfitKind kind, const Parameter& parameter,
                       const reference::Parameter& record) {
  Form form{parameter.name(), parameter.shape(), parameter.dtype(), parameter.requires_grad(),
            parameter.has_sparse_gradients()};
  switch (kind) {
    case MisfitKind::kSizes:
      form.shape = with_another_size(parameter);
      break;
    case MisfitKind::kStrides:
      form.shape = shape_of(record.sizes,
                            parameter.shape().strides == shape_of(record.sizes, false).strides);
      break;
    case MisfitKind::kDType:
      form.dtype = form.dtype == DType::kFloat64 ? DType::kFloat32 : DType::kFloat64;
      break;
    case MisfitKind::kFrozen:
      form.requires_grad = !form.requires_grad;
      break;
    case MisfitKind::kSparse:
      form.sparse = !form.sparse;
      break;
    case MisfitKind::kHoles:
      for (std::int64_t& stride : form.shape.strides) stride *= 2;
      break;
    default:
      form.name += "_other";
  }
  return make(form, parameter.device());
}

// Changes the options alone. Returns false if the kind is another one.
bool change_options(MisfitKind kind, const std::vector<ParameterInfo>& infos,
                    ReducerOptions& options) {
  const auto flip = [](bool& option) { option = !option; };
  switch (kind) {
    case MisfitKind::kMode:
      if (!options.static_graph) flip(options.find_unused_parameters);
      options.static_graph = false;
      return true;
    case MisfitKind::kViews:
      flip(options.gradient_as_bucket_view);
      return true;
    case MisfitKind::kOrder:
      options.reduction =
          options.reduction == Reduction::kNative ? Reduction::kRankOrdered : Reduction::kNative;
      return true;
    case MisfitKind::kRebuild:
      flip(options.rebuild_buckets);
      return true;
    case MisfitKind::kManualSync:
      flip(options.auto_sync);
      return true;
    case MisfitKind::kLimits:
      options.bucket_limits.push_back(kOtherLimit);
      return true;
    case MisfitKind::kChunk:
      options.broadcast_chunk_bytes += 1;
      return true;
    case MisfitKind::kKeepBuffers:
      flip(options.broadcast_buffers);
      return true;
    case MisfitKind::kHook:
      options.hook = options.hook ? nullptr : make_all_reduce_hook();
      return true;
    case MisfitKind::kLaunch:
      options.schedule = options.schedule == Schedule::kOverlapped ? Schedule::kAfterBackward
                                                                   : Schedule::kOverlapped;
      return true;
    case MisfitKind::kPinned:
    case MisfitKind::kLayout: {
      if (kind == MisfitKind::kPinned && options.pinned_layout) {
        options.pinned_layout.reset();
        return true;
      }
      Result<Layout> layout = assign_buckets(infos, std::vector<std::uint64_t>{kOtherLimit});
      LOCKSTEP_CHECK(layout.has_value());
      options.pinned_layout = std::move(*layout);
      return true;
    }
    case MisfitKind::kVerify:
      flip(options.verify_payload);
      return true;
    case MisfitKind::kUnknownName:
      options.ignored.emplace_back("nowhere");
      return true;
    case MisfitKind::kNoLimits:
      options.bucket_limits.clear();
      return true;
    case MisfitKind::kNoTrace:
      options.trace_capacity = 0;
      return true;
    case MisfitKind::kTwoModes:
      options.static_graph = options.find_unused_parameters = true;
      return true;
    case MisfitKind::kVerifyNative:
      options.verify_payload = true;
      options.reduction = Reduction::kNative;
      return true;
    default:
      return false;
  }
}

void add_replica(MisfitKind kind, const Parameter& of, const reference::Parameter& record,
                 std::size_t place, ConstructionInputs& inputs) {
  Replica& replica = inputs.options.replicas.emplace_back();
  replica.parameters.resize(inputs.parameters.size());
  if (kind == MisfitKind::kReplicaList) {
    replica.parameters.pop_back();
    return;
  }
  replica.parameters[place] = changed(
      kind == MisfitKind::kReplicaSizes ? MisfitKind::kSizes : MisfitKind::kName, of, record);
}

// A buffer of the list that has no value, or one with holes; or null.
Ref<Buffer> make_invalid_buffer(std::uint32_t variant, Device& device) {
  Shape holes = Shape::row_major({3});
  holes.strides[0] = 2;
  switch (variant % 3) {
    case 0:
      return {};
    case 1:
      return make_ref<Buffer>("without_value", Tensor());
    default: {
      Result<Tensor> value = Tensor::empty(device, DType::kFloat32, holes);
      LOCKSTEP_CHECK(value.has_value());
      return make_ref<Buffer>("with_holes", std::move(*value));
    }
  }
}

// Adds a parameter or a buffer that other ranks do not have, or that is none; or such a buffer, and
// a replica in which it has another dtype or size, or no value, or which has the same one; or two
// replicas that have one copy.
void add_tensor(MisfitKind kind, std::uint32_t variant, ConstructionInputs& inputs) {
  Device& device = inputs.parameters.front()->device();
  if (kind == MisfitKind::kMoreParameters)
    inputs.parameters.push_back(
        make({"one_more", Shape::row_major({3}), DType::kFloat32, true, false}, device));
  if (kind == MisfitKind::kNullBuffer)
    inputs.options.buffers.push_back(make_invalid_buffer(variant, device));
  if (kind != MisfitKind::kMoreBuffers && kind != MisfitKind::kReplicaBuffer) return;
  const auto make_buffer = [&](const char* name, DType dtype, std::int64_t size) {
    Result<Tensor> value = Tensor::empty(device, dtype, Shape::row_major({size}));
    LOCKSTEP_CHECK(value.has_value());
    return make_ref<Buffer>(name, std::move(*value));
  };
  inputs.options.buffers.push_back(make_buffer("one_more", DType::kFloat32, 3));
  if (kind != MisfitKind::kReplicaBuffer) return;
  Replica& replica = inputs.options.replicas.emplace_back();
  replica.parameters.resize(inputs.parameters.size());
  replica.buffers.resize(inputs.options.buffers.size());
  switch (variant % 5) {
    case 0:
      replica.buffers.back() = make_buffer("its_copy", DType::kFloat64, 3);
      break;
    case 1:
      replica.buffers.back() = make_buffer("its_copy", DType::kFloat32, 4);
      break;
    case 2:
      replica.buffers.back() = make_ref<Buffer>("its_copy", Tensor());
      break;
    case 3:
      replica.buffers.back() = inputs.options.buffers.back();
      break;
    default: {
      replica.buffers.back() = make_buffer("its_copy", DType::kFloat32, 3);
      const Replica same = replica;
      inputs.options.replicas.push_back(same);
    }
  }
}

void swap_parameters(const reference::Program& program,
                     const std::vector<Ref<Parameter>>& parameters, ConstructionInputs& inputs) {
  const std::vector<std::uint32_t> choices = reference::changeable_parameters(program);
  LOCKSTEP_CHECK_LT(1u, choices.size());
  const std::size_t pick = program.misfit.pick % choices.size();
  const auto find = [&](std::uint32_t number) {
    return std::find(inputs.parameters.begin(), inputs.parameters.end(), parameters[number]);
  };
  std::iter_swap(find(choices[pick]), find(choices[(pick + 1) % choices.size()]));
}

}  // namespace

std::vector<ParameterInfo> infos_of(const std::vector<Ref<Parameter>>& parameters,
                                    const reference::Program& program) {
  std::vector<ParameterInfo> infos;
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    if (!is_original(program.parameters[i]) || program.parameters[i].ignored) continue;
    const Parameter& each = *parameters[i];
    infos.push_back({each.name(), each.dtype(), each.device().index(), each.shape().elements(),
                     each.requires_grad(), each.has_sparse_gradients()});
  }
  return infos;
}

void apply_misfit(const reference::Program& program, const reference::Program& share,
                  const std::vector<Ref<Parameter>>& parameters, ConstructionInputs& inputs) {
  const MisfitKind kind = program.misfit.kind;
  LOCKSTEP_CHECK(kind != MisfitKind::kNone);
  std::vector<ParameterInfo> infos = infos_of(parameters, share);
  if (kind == MisfitKind::kLayout)
    infos.push_back({"one_more", DType::kFloat32, 0, 3, true, false});
  if (change_options(kind, infos, inputs.options)) return;
  if (kind == MisfitKind::kSwapped) return swap_parameters(program, parameters, inputs);
  const std::optional<std::uint32_t> target = reference::changed_parameter(program);
  if (!target) return add_tensor(kind, program.misfit.variant, inputs);
  const auto listed =
      std::find(inputs.parameters.begin(), inputs.parameters.end(), parameters[*target]);
  LOCKSTEP_CHECK(listed != inputs.parameters.end());
  const reference::Parameter& record = program.parameters[*target];
  switch (kind) {
    case MisfitKind::kFewerParameters:
      inputs.parameters.erase(listed);
      break;
    case MisfitKind::kNullParameter:
      *listed = {};
      break;
    case MisfitKind::kIgnored:
      inputs.options.ignored.push_back((*listed)->name());
      break;
    case MisfitKind::kMoreReplicas:
    case MisfitKind::kReplicaSizes:
    case MisfitKind::kReplicaList:
      add_replica(kind, **listed, record,
                  static_cast<std::size_t>(listed - inputs.parameters.begin()), inputs);
      break;
    default:
      *listed = changed(kind, **listed, record);
  }
}

bool has_misfit_group(reference::MisfitKind kind) {
  return kind == MisfitKind::kGroupDType || kind == MisfitKind::kGroupDevice ||
         kind == MisfitKind::kGroupVerify;
}

Membership with_misfit_group(const reference::Program& program, const Membership& membership) {
  const MisfitKind kind = program.misfit.kind;
  const std::uint32_t variant = program.misfit.variant;
  Membership out = membership;
  if (out.backward_group && variant % 2 == 1) {
    out.backward_group =
        std::make_shared<OtherRanksGroup>(variant % 4 == 1, std::move(out.backward_group));
    return out;
  }
  // Values and buffers are broadcast by the first group.
  const bool is_of_first =
      kind == MisfitKind::kGroupDevice && program.options.with_values && variant % 4 == 2;
  std::shared_ptr<ProcessGroup>& group =
      out.backward_group && !is_of_first ? out.backward_group : out.group;
  group = std::make_shared<LessAbleGroup>(kind, group);
  return out;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
