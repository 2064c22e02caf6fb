#include "properties/subject/construction_disagreement.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "properties/observe/graph_builder.h"
#include "reducer/base/check.h"
#include "reducer/comm/forwarding_group.h"
#include "reducer/hooks/builtin_hooks.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::uint64_t kOtherLimit = 12'345;  // In bytes, and no limit that a case has.

// The one thing that a group refuses although the group it stands for can do it.
enum class Lacks : std::uint8_t { kNothing, kDTypes, kDevices, kVerification };

// A group that can do less than the one it stands for. It forwards collectives, and keeps an abort
// to itself, because the ranks go on with the group that it stands for.
class LessAbleGroup final : public ForwardingGroup {
 public:
  LessAbleGroup(Lacks lacks, std::shared_ptr<ProcessGroup> inner)
      : ForwardingGroup(std::move(inner)), lacks_(lacks) {}
  bool can_reduce(DType dtype) const override {
    return lacks_ != Lacks::kDTypes && ForwardingGroup::can_reduce(dtype);
  }
  bool can_reach(const Device& device) const override {
    return lacks_ != Lacks::kDevices && ForwardingGroup::can_reach(device);
  }
  bool can_verify() const override {
    return lacks_ != Lacks::kVerification && ForwardingGroup::can_verify();
  }
  void abort(const Status&) override {}

 private:
  const Lacks lacks_;
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

// The properties of a parameter in which a rank may differ.
struct Form {
  std::string name;
  Shape shape;
  DType dtype = DType::kFloat32;
  bool requires_grad = true;
  bool sparse = false;
};

Ref<Parameter> make(const Form& form, Device& device) {
  return make_ref<Parameter>(
      form.name, device, form.dtype, form.shape, form.requires_grad, std::uint64_t{0},
      form.sparse ? Parameter::Gradients::kSparse : Parameter::Gradients::kDense);
}

void resize(Form& form) {
  Shape& shape = form.shape;
  std::vector<std::int64_t> sizes(std::max(shape.dims, 1), 1);
  std::copy_n(shape.sizes.begin(), shape.dims, sizes.begin());
  ++sizes[0];
  shape = Shape::row_major(sizes);
}

void rename(Form& form) { form.name += "_other"; }

// The rank that differs, and what it is constructed with.
struct OddRank {
  const reference::Program& program;
  const reference::Program& share;
  const std::vector<Ref<Parameter>>& parameters;  // the program's, by number
  ConstructionInputs& inputs;
  ReducerOptions& options = inputs.options;
  Device& device = inputs.parameters.front()->device();

  // The place in the rank's list of a parameter of the program.
  std::size_t place_of(std::uint32_t number) const {
    const auto& list = inputs.parameters;
    const auto found = std::find(list.begin(), list.end(), parameters[number]);
    LOCKSTEP_CHECK(found != list.end());
    return static_cast<std::size_t>(found - list.begin());
  }
  // The parameter that is changed.
  std::uint32_t number() const { return reference::changed_parameter(program).value(); }
  std::size_t place() const { return place_of(number()); }
  Ref<Parameter>& listed() const { return inputs.parameters[place()]; }

  template <typename Change>
  Ref<Parameter> changed(const Change& change) const {
    const Parameter& own = *listed();
    Form form{own.name(), own.shape(), own.dtype(), own.requires_grad(),
              own.has_sparse_gradients()};
    change(form);
    return make(form, own.device());
  }
  Ref<Buffer> make_buffer(const char* name, DType dtype, const Shape& shape) const {
    Result<Tensor> value = Tensor::empty(device, dtype, shape);
    LOCKSTEP_CHECK(value.has_value());
    return make_ref<Buffer>(name, std::move(*value));
  }
  Replica& add_replica() const {
    Replica& replica = options.replicas.emplace_back();
    replica.parameters.resize(inputs.parameters.size());
    replica.buffers.resize(options.buffers.size());
    return replica;
  }
};

void flip(bool& option) { option = !option; }

void pin(const OddRank& rank, const std::vector<ParameterInfo>& infos) {
  Result<Layout> layout = assign_buckets(infos, std::vector<std::uint64_t>{kOtherLimit});
  LOCKSTEP_CHECK(layout.has_value());
  rank.options.pinned_layout = std::move(*layout);
}

void change_strides(const OddRank& rank) {
  const std::vector<std::uint32_t>& sizes = rank.program.parameters[rank.number()].sizes;
  rank.listed() = rank.changed([&](Form& form) {
    form.shape = shape_of(sizes, form.shape.strides == shape_of(sizes, false).strides);
  });
}

void swap_parameters(const OddRank& rank) {
  const std::vector<std::uint32_t> choices = reference::changeable_parameters(rank.program);
  LOCKSTEP_CHECK_LT(1u, choices.size());
  const std::size_t pick = rank.program.disagreement.pick % choices.size();
  std::swap(rank.inputs.parameters[rank.place_of(choices[pick])],
            rank.inputs.parameters[rank.place_of(choices[(pick + 1) % choices.size()])]);
}

// Adds a buffer that has no value, or one with holes; or null.
void add_invalid_buffer(const OddRank& rank) {
  Shape holes = Shape::row_major({3});
  holes.strides[0] = 2;
  const std::uint32_t variant = rank.program.disagreement.variant % 3;
  rank.options.buffers.push_back(variant == 0 ? Ref<Buffer>()
                                 : variant == 1
                                     ? make_ref<Buffer>("without_value", Tensor())
                                     : rank.make_buffer("with_holes", DType::kFloat32, holes));
}

void add_buffer(const OddRank& rank) {
  rank.options.buffers.push_back(
      rank.make_buffer("one_more", DType::kFloat32, Shape::row_major({3})));
}

// Adds a buffer, and a replica in which it has another dtype or size, or no value, or which has the
// same one; or two replicas that have one copy.
void add_buffer_of_replica(const OddRank& rank) {
  add_buffer(rank);
  Replica& replica = rank.add_replica();
  const auto copy = [&](DType dtype, std::int64_t size) {
    return rank.make_buffer("its_copy", dtype, Shape::row_major({size}));
  };
  const std::uint32_t variant = rank.program.disagreement.variant % 5;
  replica.buffers.back() = variant == 0   ? copy(DType::kFloat64, 3)
                           : variant == 1 ? copy(DType::kFloat32, 4)
                           : variant == 2 ? make_ref<Buffer>("its_copy", Tensor())
                           : variant == 3 ? rank.options.buffers.back()
                                          : copy(DType::kFloat32, 3);
  if (variant < 4) return;
  const Replica same = replica;
  rank.options.replicas.push_back(same);
}

// One row a row of reference::kDisagreements, after the first.
struct Change {
  const char* name;
  void (*make)(OddRank&);
  Lacks lacks = Lacks::kNothing;
};

constexpr Change kChanges[] = {
    {"mode",
     [](OddRank& r) {
       if (!r.options.static_graph) flip(r.options.find_unused_parameters);
       r.options.static_graph = false;
     }},
    {"views", [](OddRank& r) { flip(r.options.gradient_as_bucket_view); }},
    {"order",
     [](OddRank& r) {
       const bool is_native = r.options.reduction == Reduction::kNative;
       r.options.reduction = is_native ? Reduction::kRankOrdered : Reduction::kNative;
     }},
    {"rebuild", [](OddRank& r) { flip(r.options.rebuild_buckets); }},
    {"manual_sync", [](OddRank& r) { flip(r.options.auto_sync); }},
    {"limits", [](OddRank& r) { r.options.bucket_limits.push_back(kOtherLimit); }},
    {"chunk", [](OddRank& r) { r.options.broadcast_chunk_bytes += 1; }},
    {"keep_buffers", [](OddRank& r) { flip(r.options.broadcast_buffers); }},
    {"hook",
     [](OddRank& r) { r.options.hook = r.options.hook ? nullptr : make_all_reduce_hook(); }},
    {"launch",
     [](OddRank& r) {
       const bool is_overlapped = r.options.schedule == Schedule::kOverlapped;
       r.options.schedule = is_overlapped ? Schedule::kAfterBackward : Schedule::kOverlapped;
     }},
    {"pinned",
     [](OddRank& r) {
       if (r.options.pinned_layout) return r.options.pinned_layout.reset();
       pin(r, infos_of(r.parameters, r.share));
     }},
    {"verify", [](OddRank& r) { flip(r.options.verify_payload); }},
    {"fewer_parameters",
     [](OddRank& r) {
       r.inputs.parameters.erase(r.inputs.parameters.begin() +
                                 static_cast<std::ptrdiff_t>(r.place()));
     }},
    {"more_parameters",
     [](OddRank& r) {
       r.inputs.parameters.push_back(make({"one_more", Shape::row_major({3})}, r.device));
     }},
    {"sizes", [](OddRank& r) { r.listed() = r.changed(resize); }},
    {"strides", [](OddRank& r) { change_strides(r); }},
    {"dtype",
     [](OddRank& r) {
       r.listed() = r.changed([](Form& form) {
         form.dtype = form.dtype == DType::kFloat64 ? DType::kFloat32 : DType::kFloat64;
       });
     }},
    {"name", [](OddRank& r) { r.listed() = r.changed(rename); }},
    {"frozen",
     [](OddRank& r) { r.listed() = r.changed([](Form& form) { flip(form.requires_grad); }); }},
    {"sparse", [](OddRank& r) { r.listed() = r.changed([](Form& form) { flip(form.sparse); }); }},
    {"swapped", [](OddRank& r) { swap_parameters(r); }},
    {"ignored", [](OddRank& r) { r.options.ignored.push_back(r.listed()->name()); }},
    {"more_buffers", [](OddRank& r) { add_buffer(r); }},
    {"more_replicas",
     [](OddRank& r) { r.add_replica().parameters[r.place()] = r.changed(rename); }},
    {"unknown_name", [](OddRank& r) { r.options.ignored.emplace_back("nowhere"); }},
    {"no_limits", [](OddRank& r) { r.options.bucket_limits.clear(); }},
    {"no_trace", [](OddRank& r) { r.options.trace_capacity = 0; }},
    {"two_modes",
     [](OddRank& r) { r.options.static_graph = r.options.find_unused_parameters = true; }},
    {"verify_native",
     [](OddRank& r) {
       r.options.verify_payload = true;
       r.options.reduction = Reduction::kNative;
     }},
    {"null_parameter", [](OddRank& r) { r.listed() = {}; }},
    {"null_buffer", [](OddRank& r) { add_invalid_buffer(r); }},
    {"holes",
     [](OddRank& r) {
       r.listed() = r.changed([](Form& form) {
         for (std::int64_t& stride : form.shape.strides) stride *= 2;
       });
     }},
    {"replica_sizes",
     [](OddRank& r) { r.add_replica().parameters[r.place()] = r.changed(resize); }},
    {"replica_list", [](OddRank& r) { r.add_replica().parameters.pop_back(); }},
    {"group_dtype", nullptr, Lacks::kDTypes},
    {"group_device", nullptr, Lacks::kDevices},
    {"group_verify", nullptr, Lacks::kVerification},
    {"layout",
     [](OddRank& r) {
       std::vector<ParameterInfo> infos = infos_of(r.parameters, r.share);
       infos.push_back({"one_more", DType::kFloat32, 0, 3, true, false});
       pin(r, infos);
     }},
    {"replica_buffer", [](OddRank& r) { add_buffer_of_replica(r); }},
};

constexpr bool has_all_rows() {
  if (std::size(kChanges) + 1 != reference::kDisagreements.size()) return false;
  for (std::size_t i = 0; i < std::size(kChanges); ++i)
    if (std::string_view(kChanges[i].name) != reference::kDisagreements[i + 1].name) return false;
  return true;
}
static_assert(has_all_rows());

const Change& change_of(reference::DisagreementKind kind) {
  LOCKSTEP_CHECK(kind != reference::DisagreementKind::kNone);
  return kChanges[static_cast<std::size_t>(kind) - 1];
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

void disagree(const reference::Program& program, const reference::Program& share,
              const std::vector<Ref<Parameter>>& parameters, ConstructionInputs& inputs) {
  OddRank rank{program, share, parameters, inputs};
  change_of(program.disagreement.kind).make(rank);
}

bool changes_group(reference::DisagreementKind kind) {
  return change_of(kind).lacks != Lacks::kNothing;
}

Membership with_changed_group(const reference::Program& program, const Membership& membership) {
  const Lacks lacks = change_of(program.disagreement.kind).lacks;
  const std::uint32_t variant = program.disagreement.variant;
  Membership out = membership;
  if (out.backward_group && variant % 2 == 1) {
    out.backward_group =
        std::make_shared<OtherRanksGroup>(variant % 4 == 1, std::move(out.backward_group));
    return out;
  }
  // Values and buffers are broadcast by the first group.
  const bool is_of_first =
      lacks == Lacks::kDevices && program.options.with_values && variant % 4 == 2;
  std::shared_ptr<ProcessGroup>& group =
      out.backward_group && !is_of_first ? out.backward_group : out.group;
  group = std::make_shared<LessAbleGroup>(lacks, group);
  return out;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
