#include "reducer/replica_set.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "reducer/autograd/node_map.h"
#include "reducer/base/check.h"
#include "reducer/base/sizes.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::size_t kUsualLine = 96;  // In characters.

std::string describe_tensor(const char* kind, std::size_t index, const std::string& name,
                            DType dtype, const Shape& shape, const Device& device) {
  std::string line;
  line.reserve(kUsualLine);
  line.append(kind).append(" ").append(std::to_string(index)).append(" ").append(name);
  line.append(": ").append(name_of(dtype)).append(" ").append(shape.to_string());
  line.append(" strides [");
  for (int d = 0; d < shape.dims; ++d)
    line.append(d ? " " : "").append(std::to_string(shape.strides[static_cast<std::size_t>(d)]));
  return line.append("] device ").append(std::to_string(device.index()));
}

std::string describe_parameter(std::size_t index, const Parameter& parameter) {
  return describe_tensor("parameter", index, parameter.name(), parameter.dtype(), parameter.shape(),
                         parameter.device())
      .append(parameter.requires_grad() ? " requires_grad" : " frozen")
      .append(parameter.has_sparse_gradients() ? " sparse" : "")
      .append(parameter.value().defined() ? "" : ", its value kept elsewhere");
}

std::string describe_options(const ReducerOptions& options) {
  std::string line =
      "options: find_unused_parameters " +
      std::string(options.find_unused_parameters ? "on" : "off") + ", static_graph " +
      (options.static_graph ? "on" : "off") + ", gradient_as_bucket_view " +
      (options.gradient_as_bucket_view ? "on" : "off") + ", reduction " +
      (options.reduction == Reduction::kNative ? "native" : "rank-ordered") + ", verify_payload " +
      (options.verify_payload ? "on" : "off") + ", skip_unused_buckets " +
      (options.skip_unused_buckets ? "on" : "off") + ", rebuild_buckets " +
      (options.rebuild_buckets ? "on" : "off") + ", auto_sync " +
      (options.auto_sync ? "on" : "off") + ", pinned_layout " +
      (options.pinned_layout ? std::to_string(options.pinned_layout->hash) : "none") +
      ", schedule " +
      (options.schedule == Schedule::kOverlapped ? "overlapped" : "after backward") + ", hook " +
      (options.hook ? options.hook->name() : "none") + ", coalesced_bytes " +
      std::to_string(options.coalesced_bytes) + ", broadcast_buffers " +
      (options.broadcast_buffers ? "on" : "off") + " in chunks of " +
      std::to_string(options.broadcast_chunk_bytes) + ", bucket limits";
  for (const std::uint64_t limit : options.bucket_limits) line += " " + std::to_string(limit);
  return line;
}

// Erases the entries with this name from the first replica's list, and the entries that correspond
// to them from the lists of the other replicas.
template <class Kind>
bool erase_named(const std::string& name, std::vector<Ref<Kind>>& first,
                 std::vector<Replica>& replicas, std::vector<Ref<Kind>> Replica::*list) {
  bool is_there = false;
  for (std::size_t i = first.size(); i-- > 0;) {
    if (first[i]->name() != name) continue;
    is_there = true;
    const auto at = static_cast<std::ptrdiff_t>(i);
    first.erase(first.begin() + at);
    for (Replica& replica : replicas) {
      std::vector<Ref<Kind>>& own = replica.*list;
      if (own.empty()) continue;
      LOCKSTEP_CHECK_EQ(own.size(), first.size() + 1);  // They stay as long as each other.
      own.erase(own.begin() + at);
    }
  }
  return is_there;
}

// Removes the ignored names from the parameters and the buffers (S3), in every replica.
Status leave_out_ignored(std::vector<Ref<Parameter>>& parameters, ReducerOptions& options) {
  for (const std::string& name : options.ignored) {
    const bool is_parameter = erase_named(name, parameters, options.replicas, &Replica::parameters);
    const bool is_buffer = erase_named(name, options.buffers, options.replicas, &Replica::buffers);
    if (!is_parameter && !is_buffer)
      return Status(Code::kInvalidArgument,
                    "there is no parameter or buffer " + name + " to be ignored");
  }
  return {};
}

Status check_members(const std::vector<Ref<Parameter>>& parameters, const ReducerOptions& options) {
  for (const Ref<Parameter>& parameter : parameters) {
    if (!parameter) return Status(Code::kInvalidArgument, "a parameter of the list is null");
    if (size_of(parameter->dtype()) == 0)
      return Status(Code::kInvalidArgument,
                    "parameter " + parameter->name() + " has a dtype that is none of DType");
  }
  for (const Ref<Buffer>& buffer : options.buffers)
    if (!buffer || !buffer->value().defined() || !buffer->value().shape().is_dense())
      return Status(Code::kInvalidArgument,
                    "a buffer of the list is null, or has no value, or one that is not dense");
  for (const Replica& replica : options.replicas)
    if (replica.parameters.size() != parameters.size() ||
        (!replica.buffers.empty() && replica.buffers.size() != options.buffers.size()))
      return Status(Code::kInvalidArgument,
                    "a replica lists " + std::to_string(replica.parameters.size()) +
                        " parameters and " + std::to_string(replica.buffers.size()) +
                        " buffers, the first one " + std::to_string(parameters.size()) + " and " +
                        std::to_string(options.buffers.size()) +
                        ": they go together, with null for what a replica does not have (no list "
                        "of buffers: none)");
  return {};
}

// Where the first replica's list repeats a parameter, each other replica must repeat its own
// parameter or leave it out.
Status check_repeated(const std::vector<Ref<Parameter>>& parameters,
                      const std::vector<Replica>& replicas, std::size_t listed, std::size_t first) {
  LOCKSTEP_CHECK_LT(first, listed);
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const auto& own = replicas[r].parameters;
    if (!own[listed] || own[listed] == own[first]) continue;
    return Status(Code::kInvalidArgument,
                  "replica " + std::to_string(r + 1) + " has parameter " + own[listed]->name() +
                      " where the first one lists " + parameters[listed]->name() +
                      " again, and another one or none where that is listed first");
  }
  return {};
}

}  // namespace

Result<std::vector<Ref<Parameter>>> ReplicaSet::build(std::vector<Ref<Parameter>>& parameters,
                                                      ReducerOptions& options) {
  LOCKSTEP_CHECK(infos_.empty());
  LOCKSTEP_CHECK(reduced_.empty());
  if (Status status = check_members(parameters, options); !status.ok())
    return failed(std::move(status));
  if (Status status = leave_out_ignored(parameters, options); !status.ok())
    return failed(std::move(status));
  agreement_.reserve(parameters.size() + options.buffers.size() + 1);
  infos_.reserve(parameters.size());
  reduced_.reserve(parameters.size());
  agreement_.push_back(describe_options(options));
  std::vector<Ref<Parameter>> distinct;
  NodeMap members;
  std::vector<std::size_t> first_listed;
  for (const Ref<Parameter>& parameter : parameters)
    first_listed.push_back(
        members.insert(parameter.get(), static_cast<std::uint32_t>(first_listed.size())).first);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (first_listed[i] != i) {
      if (Status status = check_repeated(parameters, options.replicas, i, first_listed[i]);
          !status.ok())
        return failed(std::move(status));
      continue;
    }
    if (Status status = add_parameter(parameters[i], options); !status.ok())
      return failed(std::move(status));
    if (Status status = add_further_replicas(i, *parameters[i], options.replicas, members);
        !status.ok())
      return failed(std::move(status));
    distinct.push_back(parameters[i]);
  }
  LOCKSTEP_CHECK_LE(reduced_.size(), infos_.size());
  if (Status status = check_devices(); !status.ok()) return failed(std::move(status));
  for (std::uint32_t i = 0; i < gradient_count(); ++i) {
    gradient(i).number = i;
    if (&gradient(i).parameter->device() != &gradient(0).parameter->device())
      has_several_devices_ = true;
  }
  describe_buffers(options);
  return distinct;
}

void ReplicaSet::describe_buffers(const ReducerOptions& options) {
  for (std::size_t i = 0; i < options.buffers.size(); ++i) {
    const Tensor& value = options.buffers[i]->value();
    agreement_.push_back(describe_tensor("buffer", i, options.buffers[i]->name(), value.dtype(),
                                         value.shape(), value.device()));
    for (std::size_t r = 0; r < options.replicas.size(); ++r) {
      const std::vector<Ref<Buffer>>& own = options.replicas[r].buffers;
      LOCKSTEP_CHECK(own.empty() || own.size() == options.buffers.size());
      if (own.empty() || !own[i]) continue;
      const Tensor& copy = own[i]->value();
      if (!copy.defined()) continue;  // add_replicas() refuses it.
      agreement_.push_back(
          "replica " + std::to_string(r + 1) + ", " +
          describe_tensor("buffer", i, own[i]->name(), copy.dtype(), copy.shape(), copy.device()));
    }
  }
}

Status ReplicaSet::add_parameter(const Ref<Parameter>& parameter, const ReducerOptions& options) {
  agreement_.push_back(describe_parameter(infos_.size(), *parameter));
  infos_.push_back({parameter->name(), parameter->dtype(), parameter->device().index(),
                    parameter->shape().elements(), parameter->requires_grad(),
                    parameter->has_sparse_gradients()});
  const auto size = static_cast<std::int64_t>(size_of(parameter->dtype()));
  if (multiply_sizes(parameter->shape().elements(), size) == kTooLarge)
    return Status(Code::kInvalidArgument, "parameter " + parameter->name() + " of sizes " +
                                              parameter->shape().to_string() +
                                              " has more bytes than any memory: check its sizes");
  if (!parameter->shape().is_dense() && parameter->value().defined())
    return Status(
        Code::kInvalidArgument,
        "parameter " + parameter->name() +
            " is expanded, or has holes: its value cannot be broadcast. Make it dense, or "
            "leave it out by ReducerOptions::ignored");
  if (!parameter->requires_grad()) return {};
  if (!parameter->shape().is_dense())
    return Status(Code::kInvalidArgument,
                  "parameter " + parameter->name() +
                      " is expanded, or has holes: its gradient has no place in a bucket. Make it "
                      "dense, or leave it out by ReducerOptions::ignored");
  const bool is_hooked = options.hook && !parameter->has_sparse_gradients();
  if (is_hooked && !options.hook->works_on(parameter->device()))
    return Status(Code::kInvalidArgument, "the hook " + options.hook->name() +
                                              " does not work on device " +
                                              std::to_string(parameter->device().index()) +
                                              ", where parameter " + parameter->name() + " is");
  // The replicas of the parameter before this one are all there, and end the list.
  LOCKSTEP_CHECK(reduced_.empty() ||
                 reduced_.back().first_further_replica + reduced_.back().further_replica_count ==
                     further_.size());
  ReducedParameter& reduced = reduced_.emplace_back();
  reduced.parameter = parameter;
  reduced.info = static_cast<std::uint32_t>(infos_.size() - 1);
  reduced.first_further_replica = static_cast<std::uint32_t>(further_.size());
  return {};
}

// Adds the entries of the other replicas that correspond to entry `listed` of the first, which is
// `parameter` (P15). `members` has every parameter that belongs to a replica already.
Status ReplicaSet::add_further_replicas(std::size_t listed, const Parameter& parameter,
                                        const std::vector<Replica>& replicas, NodeMap& members) {
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const Ref<Parameter>& copy = replicas[r].parameters[listed];
    if (!copy) continue;
    const std::string whose = "replica " + std::to_string(r + 1) + " has parameter " +
                              copy->name() + " for " + parameter.name();
    if (members.insert(copy.get(), static_cast<std::uint32_t>(listed)).second)
      return Status(Code::kInvalidArgument, whose + ", and it is elsewhere in the model, too");
    const bool fits = copy->shape().same_sizes(parameter.shape()) &&
                      copy->shape().same_strides(parameter.shape()) &&
                      copy->dtype() == parameter.dtype() &&
                      copy->requires_grad() == parameter.requires_grad() &&
                      copy->has_sparse_gradients() == parameter.has_sparse_gradients();
    if (!fits)
      return Status(Code::kInvalidArgument,
                    whose +
                        ", with another shape, strides or dtype, or the one is frozen or sparse "
                        "and the other is not");
    if (!can_hold_replicas(parameter.device(), copy->device()))
      return Status(Code::kInvalidArgument,
                    whose + ", on another GPU: give each GPU a process of its own");
    agreement_.push_back(describe_parameter(infos_.size() - 1, *copy)
                             .insert(0, "replica " + std::to_string(r + 1) + ", "));
    if (!copy->requires_grad()) continue;
    LOCKSTEP_CHECK(!reduced_.empty());
    LOCKSTEP_CHECK(reduced_.back().parameter.get() == &parameter);
    FurtherReplica& added = further_.emplace_back();
    added.parameter = copy;
    added.reduced = reduced_.size() - 1;
    ++reduced_.back().further_replica_count;
  }
  return {};
}

// Two devices must not have the same number, because layouts and other ranks identify a device by
// its number.
Status ReplicaSet::check_devices() const {
  std::vector<const Device*> known;
  for (const ReducedParameter& reduced : reduced_) {
    const Device& device = reduced.parameter->device();
    const auto same = std::find_if(known.begin(), known.end(), [&](const Device* each) {
      return each->index() == device.index();
    });
    if (same == known.end())
      known.push_back(&device);
    else if (!can_hold_replicas(**same, device))
      return Status(Code::kInvalidArgument,
                    "parameter " + reduced.parameter->name() + " is on another device of number " +
                        std::to_string(device.index()) +
                        " than one before it: number the host's devices above the GPUs");
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
