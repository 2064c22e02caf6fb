#include "reducer/reducer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "reducer/agreement.h"
#include "reducer/base/check.h"
#include "reducer/base/sizes.h"
#include "reducer/failure_board.h"
#include "reducer/pass.h"

// Construction, passes and the public calls. The path of a gradient is in reduction.cc, failures
// are in failure.cc.
namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::size_t kUsualLine = 96;  // In characters.
constexpr std::size_t kMaxTraceCapacity = std::size_t{1} << 24;

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
      (options.verify_payload ? "on" : "off") + ", rebuild_buckets " +
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
    for (Replica& replica : replicas)
      if (!(replica.*list).empty()) (replica.*list).erase((replica.*list).begin() + at);
  }
  return is_there;
}

// A refused allocation is a failure like any other (F1).
template <class Call>
Status guarded(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

// For calls that peers take part in. If this rank runs out of memory in one, its peers would wait
// for it, so the group ends.
template <class Call>
Status meeting(ProcessGroup& group, const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    Status cause = out_of_memory();
    guarded([&] {
      group.abort(cause);
      return Status();
    }).ignore();
    return cause;
  }
}

Status check_options(const ReducerOptions& options) {
  const auto invalid = [](std::string text) {
    return Status(Code::kInvalidArgument, std::move(text));
  };
  if (options.trace_capacity == 0 || options.trace_capacity > kMaxTraceCapacity)
    return invalid("trace_capacity is " + std::to_string(options.trace_capacity) +
                   ": keep at least one collective, and at most " +
                   std::to_string(kMaxTraceCapacity));
  if (options.static_graph && options.find_unused_parameters)
    return invalid(
        "static_graph finds unused parameters by itself: turn find_unused_parameters off");
  if (options.verify_payload && options.reduction == Reduction::kNative)
    return invalid(
        "verify_payload checks sums in rank order, not those of the transport: set reduction to "
        "kRankOrdered");
  return {};
}

core::Mode mode_of(const ReducerOptions& options) {
  if (options.static_graph) return core::Mode::kStatic;
  return options.find_unused_parameters ? core::Mode::kDynamic : core::Mode::kPlain;
}

core::LaunchTime launch_time_of(const ReducerOptions& options) {
  return options.schedule == Schedule::kAfterBackward ? core::LaunchTime::kAfterBackward
                                                      : core::LaunchTime::kWhenReady;
}

}  // namespace

Reducer::Reducer(ReducerOptions options, Membership membership)
    : options_(std::move(options)),
      membership_(std::move(membership)),
      core_(mode_of(options_), launch_time_of(options_)),
      trace_(options_.trace_capacity),
      reserve_(Failure()) {}

// If this rank cannot make a reducer, it sends the reason to its peers, who would otherwise wait
// for it.
Result<std::unique_ptr<Reducer>> Reducer::create(std::vector<Ref<Parameter>> parameters,
                                                 ReducerOptions options, Membership membership) {
  LOCKSTEP_CHECK(membership.group != nullptr);
  LOCKSTEP_CHECK(membership.store != nullptr);
  const std::shared_ptr<ProcessGroup> group = membership.group;
  std::unique_ptr<Reducer> reducer;
  Status status = guarded([&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(check_options(options));
    reducer.reset(new Reducer(std::move(options), std::move(membership)));
    return reducer->build(std::move(parameters));
  });
  status = meeting(*group, [&]() -> Status {
    if (!reducer) return agree_to_go_on(*group, std::move(status));
    return reducer->meet_peers(std::move(status));
  });
  if (!status.ok()) return failed(std::move(status));
  return reducer;
}

Status Reducer::meet_peers(Status own) {
  LOCKSTEP_RETURN_IF_ERROR(agree_with_peers(std::move(own)));
  LOCKSTEP_RETURN_IF_ERROR(broadcast_state());
  for (std::size_t i = 0; i < replica_gradient_count(); ++i)
    replica_gradient(i).parameter->add_hook(this, i);
  return {};
}

// Removes the ignored names from the parameters and the buffers (S3), in every replica.
Status Reducer::leave_out_ignored(std::vector<Ref<Parameter>>& parameters) {
  for (const std::string& name : options_.ignored) {
    const bool is_parameter =
        erase_named(name, parameters, options_.replicas, &Replica::parameters);
    const bool is_buffer =
        erase_named(name, options_.buffers, options_.replicas, &Replica::buffers);
    if (!is_parameter && !is_buffer)
      return Status(Code::kInvalidArgument,
                    "there is no parameter or buffer " + name + " to be ignored");
  }
  return {};
}

Status Reducer::check_members(const std::vector<Ref<Parameter>>& parameters) const {
  for (const Ref<Parameter>& parameter : parameters)
    if (!parameter) return Status(Code::kInvalidArgument, "a parameter of the list is null");
  for (const Ref<Buffer>& buffer : options_.buffers)
    if (!buffer || !buffer->value().defined() || !buffer->value().shape().is_dense())
      return Status(Code::kInvalidArgument,
                    "a buffer of the list is null, or has no value, or one that is not dense");
  for (const Replica& replica : options_.replicas)
    if (replica.parameters.size() != parameters.size() ||
        (!replica.buffers.empty() && replica.buffers.size() != options_.buffers.size()))
      return Status(Code::kInvalidArgument,
                    "a replica lists " + std::to_string(replica.parameters.size()) +
                        " parameters and " + std::to_string(replica.buffers.size()) +
                        " buffers, the first one " + std::to_string(parameters.size()) + " and " +
                        std::to_string(options_.buffers.size()) +
                        ": they go together, with null for what a replica does not have (no list "
                        "of buffers: none)");
  return {};
}

Status Reducer::build(std::vector<Ref<Parameter>> parameters) {
  LOCKSTEP_RETURN_IF_ERROR(check_members(parameters));
  LOCKSTEP_RETURN_IF_ERROR(leave_out_ignored(parameters));
  agreement_.reserve(parameters.size() + options_.buffers.size() + 1);
  infos_.reserve(parameters.size());
  reduced_parameters_.reserve(parameters.size());
  agreement_.push_back(describe_options(options_));
  std::vector<Ref<Parameter>> distinct;
  NodeMap members;
  std::vector<std::size_t> first_listed;
  for (const Ref<Parameter>& parameter : parameters)
    first_listed.push_back(
        members.insert(parameter.get(), static_cast<std::uint32_t>(first_listed.size())).first);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (first_listed[i] != i) {
      LOCKSTEP_RETURN_IF_ERROR(check_repeated(parameters, i, first_listed[i]));
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(add_parameter(parameters[i]));
    LOCKSTEP_RETURN_IF_ERROR(add_further_replicas(i, *parameters[i], members));
    distinct.push_back(parameters[i]);
  }
  LOCKSTEP_RETURN_IF_ERROR(check_devices());
  for (std::uint32_t i = 0; i < replica_gradient_count(); ++i) {
    replica_gradient(i).number = i;
    search_.add(replica_gradient(i).parameter.get());
  }
  for (std::size_t i = 0; i < options_.buffers.size(); ++i) {
    const Tensor& value = options_.buffers[i]->value();
    agreement_.push_back(describe_tensor("buffer", i, options_.buffers[i]->name(), value.dtype(),
                                         value.shape(), value.device()));
    for (std::size_t r = 0; r < options_.replicas.size(); ++r) {
      const std::vector<Ref<Buffer>>& own = options_.replicas[r].buffers;
      if (own.empty() || !own[i]) continue;
      const Tensor& copy = own[i]->value();
      if (!copy.defined()) continue;  // add_replicas() refuses it.
      agreement_.push_back(
          "replica " + std::to_string(r + 1) + ", " +
          describe_tensor("buffer", i, own[i]->name(), copy.dtype(), copy.shape(), copy.device()));
    }
  }
  state_.emplace(distinct, options_.buffers, options_.broadcast_chunk_bytes);
  LOCKSTEP_RETURN_IF_ERROR(state_->add_replicas(parameters, options_.replicas));
  usage_map_.resize(reduced_parameters_.size());
  clock_.reserve(infos_.size(), reduced_parameters_.size());
  if (!options_.pinned_layout) LOCKSTEP_RETURN_IF_ERROR(lay_out_first());
  return start_over();
}

Status Reducer::add_parameter(const Ref<Parameter>& parameter) {
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
  const bool is_hooked = options_.hook && !parameter->has_sparse_gradients();
  if (is_hooked && !options_.hook->works_on(parameter->device()))
    return Status(Code::kInvalidArgument, "the hook " + options_.hook->name() +
                                              " does not work on device " +
                                              std::to_string(parameter->device().index()) +
                                              ", where parameter " + parameter->name() + " is");
  idle_core().add_parameter();
  ReducedParameter& reduced = reduced_parameters_.emplace_back();
  reduced.parameter = parameter;
  reduced.info = static_cast<std::uint32_t>(infos_.size() - 1);
  reduced.first_further_replica = static_cast<std::uint32_t>(further_replicas_.size());
  return {};
}

// Adds the entries of the other replicas that correspond to entry `listed` of the first, which is
// `parameter` (P15). `members` has every parameter that belongs to a replica already.
Status Reducer::add_further_replicas(std::size_t listed, const Parameter& parameter,
                                     NodeMap& members) {
  for (std::size_t r = 0; r < options_.replicas.size(); ++r) {
    const Ref<Parameter>& copy = options_.replicas[r].parameters[listed];
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
    idle_core().add_replica();
    FurtherReplica& added = further_replicas_.emplace_back();
    added.parameter = copy;
    added.reduced = reduced_parameters_.size() - 1;
    ++reduced_parameters_.back().further_replica_count;
  }
  return {};
}

// Where the first replica's list repeats a parameter, each other replica must repeat its own
// parameter or leave it out.
Status Reducer::check_repeated(const std::vector<Ref<Parameter>>& parameters, std::size_t listed,
                               std::size_t first) const {
  for (std::size_t r = 0; r < options_.replicas.size(); ++r) {
    const auto& own = options_.replicas[r].parameters;
    if (!own[listed] || own[listed] == own[first]) continue;
    return Status(Code::kInvalidArgument,
                  "replica " + std::to_string(r + 1) + " has parameter " + own[listed]->name() +
                      " where the first one lists " + parameters[listed]->name() +
                      " again, and another one or none where that is listed first");
  }
  return {};
}

// Two devices must not have the same number, because layouts and other ranks identify a device by
// its number.
Status Reducer::check_devices() const {
  std::vector<const Device*> known;
  for (const ReducedParameter& reduced : reduced_parameters_) {
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

// Makes the layout that a group begins with: the pinned one, or that of B1 and B2.
Status Reducer::lay_out_first() {
  if (options_.pinned_layout) {
    LOCKSTEP_RETURN_IF_ERROR(check_layout(*options_.pinned_layout, infos_));
    return lay_out(*options_.pinned_layout);
  }
  const std::vector<std::uint64_t> coalesced(1, options_.coalesced_bytes);
  Result<Layout> layout =
      assign_buckets(infos_, after_backward() ? coalesced : options_.bucket_limits);
  if (!layout) return layout.error();
  return lay_out(std::move(*layout));
}

// Makes the buckets of a layout. Gradients that are bucket views move to the new buckets (B7). If
// memory runs out, nothing has changed.
Status Reducer::lay_out(Layout layout) {
  std::vector<std::size_t> reduced_at(infos_.size());
  for (std::size_t i = 0; i < reduced_parameters_.size(); ++i)
    reduced_at[reduced_parameters_[i].info] = i;
  std::vector<Bucket> buckets(layout.buckets.size());
  std::vector<Tensor> bucket_views(reduced_parameters_.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const BucketLayout& bucket = layout.buckets[b];
    Parameter& first = *reduced_parameters_[reduced_at[bucket.members[0].parameter]].parameter;
    for (const BucketMember& member : bucket.members)
      buckets[b].members.push_back(reduced_at[member.parameter]);
    if (bucket.sparse) {
      buckets[b].sparse = std::make_unique<SparseSum>(first);
      continue;
    }
    const std::size_t bytes = static_cast<std::size_t>(bucket.elements) * size_of(bucket.dtype);
    Device& device = first.device();
    Result<Ref<Storage>> storage = device.allocate(bytes);
    if (!storage) return storage.error();
    device.fill_zero(device.current_stream(), (*storage)->data(), bytes);
    buckets[b].storage = std::move(*storage);
    for (const BucketMember& member : bucket.members) {
      const std::size_t reduced = reduced_at[member.parameter];
      bucket_views[reduced] = Tensor(buckets[b].storage, member.offset, bucket.dtype,
                                     reduced_parameters_[reduced].parameter->shape());
    }
    buckets[b].hooked = hooked(layout, b, buckets[b], bucket_views);
  }
  std::size_t most = 0;
  for (const Bucket& bucket : buckets) most = std::max(most, bucket.members.size());
  transfers_.reserve(most);
  std::vector<std::uint32_t> bucket_of(reduced_parameters_.size());
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (const std::size_t index : buckets[b].members)
      bucket_of[index] = static_cast<std::uint32_t>(b);
  idle_core().set_buckets(bucket_of, buckets.size());
  // Nothing below can fail.
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const std::size_t index : buckets[b].members) {
      ReducedParameter& reduced = reduced_parameters_[index];
      if (grad_is_bucket_view(reduced)) {
        Device& device = reduced.parameter->device();
        device.copy(device.current_stream(), reduced.bucket_view, bucket_views[index]);
        reduced.parameter->move_grad(bucket_views[index]);
      }
      reduced.bucket_view = std::move(bucket_views[index]);
      reduced.bucket = b;
    }
  }
  layout_ = std::move(layout);
  buckets_ = std::move(buckets);
  return {};
}

// Either all ranks continue, or none does: `own` is the reason why this rank cannot, or ok.
Status Reducer::agree_with_peers(Status own) {
  if (own.ok()) own = check_group();
  std::vector<std::string> lines = agreement_;
  const bool is_apart = &backward_group() != membership_.group.get();
  if (own.ok())
    lines.insert(lines.begin() + 1,
                 is_apart ? "a backward group of its own" : "no backward group of its own");
  LOCKSTEP_RETURN_IF_ERROR(agree(*membership_.group, lines, std::move(own), reducer_id_));
  if (is_apart) LOCKSTEP_RETURN_IF_ERROR(agree_on_ranks(*membership_.group, backward_group()));
  if (options_.pinned_layout) LOCKSTEP_RETURN_IF_ERROR(lay_out_pinned());
  scale_.divide_by(membership_.group->size());
  return {};
}

// Lays out the pinned buckets after all ranks know that they have the same layout: then all refuse
// it, or none does, unless a rank has no memory for it. A rank that resets, and has the buckets
// already, takes part too, because another rank may be constructing its reducer meanwhile.
Status Reducer::lay_out_pinned() {
  Status own;
  if (buckets_.empty()) own = guarded([this] { return lay_out_first(); });
  return agree_to_go_on(*membership_.group, std::move(own));
}

// Checks that this rank's group can do what the options demand.
Status Reducer::check_group() const {
  const ProcessGroup& second = backward_group();
  if (second.rank() != membership_.group->rank() || second.size() != membership_.group->size())
    return Status(Code::kInvalidArgument,
                  "the backward group is not one of the same ranks in the same order");
  if (options_.verify_payload && !(membership_.group->can_verify() && second.can_verify()))
    return Status(Code::kInvalidArgument,
                  "the process group cannot check what it receives: turn verify_payload off");
  LOCKSTEP_RETURN_IF_ERROR(check_reach());
  return check_other_reducers();
}

// Reducers may share a group if they have different parameters (F7). If two reducers averaged one
// gradient, each would reduce what the other one has written to it.
Status Reducer::check_other_reducers() const {
  Status status;
  const auto check = [&](const ReplicaGradient& replica) {
    const Parameter& parameter = *replica.parameter;
    if (!status.ok() || (!parameter.is_sent_by(*membership_.group, this) &&
                         !parameter.is_sent_by(backward_group(), this)))
      return;
    status = Status(Code::kInvalidArgument,
                    "parameter " + parameter.name() +
                        " belongs to another reducer on this process group: destroy that one "
                        "first, or leave the parameter out of one of them by "
                        "ReducerOptions::ignored");
    status.failure().parameters = {parameter.name()};
  };
  for (const ReducedParameter& reduced : reduced_parameters_) each_replica(reduced, check);
  return status;
}

// Checks that the group can sum this dtype (P17).
Status Reducer::check_dtype(const Parameter& parameter) const {
  const DType dtype = parameter.dtype();
  if (!backward_group().can_reduce(real_of(dtype)))
    return Status(Code::kInvalidArgument, "the process group cannot reduce " +
                                              std::string(name_of(dtype)) +
                                              ", the dtype of parameter " + parameter.name());
  if (!options_.hook || parameter.has_sparse_gradients()) return {};
  const DType wire = options_.hook->wire_dtype(dtype);
  if (backward_group().can_reduce(real_of(wire))) return {};
  return Status(Code::kInvalidArgument, "the process group cannot reduce " +
                                            std::string(name_of(wire)) + ", which the hook " +
                                            options_.hook->name() + " makes of parameter " +
                                            parameter.name());
}

// Checks that the groups' collectives work on the memory that the reducer passes to them.
Status Reducer::check_reach() const {
  const auto check = [](const ProcessGroup& group, const Device& device, const std::string& name) {
    if (group.can_reach(device)) return Status();
    return Status(Code::kInvalidArgument,
                  "the process group cannot work on memory of device " +
                      std::to_string(device.index()) + ", where " + name +
                      " is: give one of that device (NCCL for a GPU, Gloo for the host)");
  };
  for (const ReducedParameter& reduced : reduced_parameters_) {
    LOCKSTEP_RETURN_IF_ERROR(check_dtype(*reduced.parameter));
    LOCKSTEP_RETURN_IF_ERROR(
        check(backward_group(), reduced.parameter->device(), reduced.parameter->name()));
  }
  for (const Device* device : state_->devices())
    LOCKSTEP_RETURN_IF_ERROR(check(*membership_.group, *device, "a value or a buffer"));
  return {};
}

// Restores the state of a reducer that has seen no pass in its group.
Status Reducer::start_over() {
  close_pass(false);
  if (rebuilt_) LOCKSTEP_RETURN_IF_ERROR(lay_out_first());
  ready_order_.clear();
  ready_order_.reserve(reduced_parameters_.size());
  recorded_ = false;
  rebuilt_ = false;
  window_open_ = false;
  is_copied_ = false;
  next_pass_ = 0;
  launched_ = 0;
  idle_core().forget_passes();
  joining_.reset();
  if (options_.hook) options_.hook->reset();
  trace_.clear();
  clock_.forget_last();
  poison_ = Status();
  failed_at_.reset();
  if (reserve_.ok()) reserve_ = Status(Failure());
  return {};
}

Reducer::~Reducer() {
  for (std::size_t i = 0; i < replica_gradient_count(); ++i)
    replica_gradient(i).parameter->remove_hook(this);
  if (pass_ && pass_->state == Pass::State::kRunning && launched_ > 0)
    stop_group(reserved(Code::kAborted, "destroyed mid-pass"));
  close_pass(false);
}

Status Reducer::begin_forward() try {
  if (!poison_.ok()) {
    Failure refusal = poison_.failure();
    refusal.detail = "refused until reset, because of an earlier " +
                     std::string(name_of(refusal.code)) + ": " + refusal.detail;
    refusal.code = Code::kPoisoned;
    return refusal;
  }
  return check_complete();
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status Reducer::check_complete() try {
  {
    platform::MutexLock lock(mutex_);
    if (!pass_ || pass_->state != Pass::State::kRunning) return {};
    if (running_task_ != nullptr)
      return describe(Code::kInvalidArgument,
                      "a forward with gradients was called inside of a backward of the pass: "
                      "recompute what a checkpoint needs by the module itself");
  }
  return give_up(incomplete());
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status Reducer::rebuild_buckets() try {
  if (!rebuilds() || !recorded_ || rebuilt_ || reduced_parameters_.empty()) return {};
  if (pass_) return {};  // Further forwards of a pass use the same buckets.
  if (joining_)
    if (Result<JoinEvent> event = exchange_join_state(JoinEvent::kRebuild); !event)
      return event.error();
  return lay_out_in_ready_order();
} catch (const std::bad_alloc&) {
  return fail(std::move(out_of_memory().failure()));  // Peers may have rebuilt their buckets.
}

Status Reducer::lay_out_in_ready_order() {
  if (Status status = agree_on_order(); !status.ok()) return fail(std::move(status.failure()));
  std::vector<std::size_t> order;
  for (const std::int32_t reduced : ready_order_) {
    const auto index = static_cast<std::size_t>(reduced);
    order.push_back(index < reduced_parameters_.size() ? reduced_parameters_[index].info
                                                       : infos_.size());
  }
  Result<Layout> layout = assign_buckets_in_order(infos_, options_.bucket_limits, order);
  if (!layout) return fail(std::move(layout.error().failure()));
  if (Status status = lay_out(std::move(*layout)); !status.ok())
    return fail(std::move(status.failure()));
  rebuilt_ = true;
  return {};
}

Status Reducer::broadcast(Device& device, std::byte* data, std::uint64_t bytes, int root) {
  Collective collective;
  collective.device = &device;
  collective.ready = device.record(device.current_stream());
  collective.op = Op::kBroadcast;
  collective.dtype = DType::kByte;
  collective.count = bytes;
  collective.root = root;
  collective.data = data;
  collective.pass = next_pass_;
  std::int64_t sequence = 0;
  LOCKSTEP_RETURN_IF_ERROR(launch(collective, usage_work_, TraceEntry::What::kState, sequence));
  return await(usage_work_, sequence, kNone);
}

// At construction and after a reset, all ranks take the state of rank 0.
Status Reducer::broadcast_state() {
  Status status = state_->broadcast_all(*this, membership_.group->rank(), 0);
  if (status.ok()) return status;
  status = Status(state_failure(std::move(status)));
  stop_group(status);  // Ends the use of the memory that was being sent.
  return status;
}

Status Reducer::refresh_state() try {
  if (window_open_) return {};
  if (options_.broadcast_buffers && state_->has_buffers()) {
    if (joining_)
      if (Result<JoinEvent> event = exchange_join_state(JoinEvent::kBuffers); !event)
        return event.error();
    LOCKSTEP_RETURN_IF_ERROR(send_buffers());
  }
  Status status = copy_to_replicas();
  window_open_ = true;
  return status.ok() ? status : fail(state_failure(std::move(status)));  // Peers continue.
} catch (const std::bad_alloc&) {
  return fail(std::move(out_of_memory().failure()));  // Peers wait for this rank.
}

Status Reducer::copy_to_replicas() try {
  if (window_open_) return {};
  const bool with_buffers = !is_copied_ || options_.broadcast_buffers;
  LOCKSTEP_RETURN_IF_ERROR(state_->copy_to_replicas(with_buffers));
  is_copied_ = true;
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

// The root is the lowest rank that trains: under a join rank 0 may be out of inputs, and its
// buffers are then as old as its last forward (S2).
Status Reducer::send_buffers() {
  const int root = joining_ ? lowest_that_trains() : 0;
  Status status = state_->broadcast_buffers(*this, membership_.group->rank(), root);
  return status.ok() ? status : fail(state_failure(std::move(status)));
}

// An error that no collective caused is this rank's own, such as a value that does not fit, or a
// failure to start a collective; an error of the group is not.
Failure Reducer::state_failure(Status status) const {
  Failure& failure = status.failure();
  failure.reported_by = membership_.group->rank();
  failure.pass = next_pass_;
  const bool is_of_group = concerns_group(failure.code) && !failure.collective.empty();
  if (failure.rank == kNone && failure.suspect == kNone && !is_of_group) {
    failure.rank = failure.reported_by;
    failure.definite = true;
  }
  return std::move(failure);
}

std::vector<std::size_t> Reducer::rebuilt_order() const {
  std::vector<std::size_t> order;
  if (!rebuilt_) return order;
  for (const std::int32_t reduced : ready_order_)
    order.push_back(reduced_parameters_[static_cast<std::size_t>(reduced)].info);
  return order;
}

// All ranks take rank 0's order.
Status Reducer::agree_on_order() {
  Collective collective;
  collective.op = Op::kBroadcast;
  collective.dtype = DType::kInt32;
  collective.count = ready_order_.size();
  collective.data = reinterpret_cast<std::byte*>(ready_order_.data());
  collective.pass = next_pass_;
  std::int64_t sequence = 0;
  LOCKSTEP_RETURN_IF_ERROR(launch(collective, usage_work_, TraceEntry::What::kRebuild, sequence));
  return await(usage_work_, sequence, kNone);
}

Status Reducer::arm(std::vector<Edge>& outputs, Engine& engine) try {
  LOCKSTEP_RETURN_IF_ERROR(check_complete());  // A backward may have run inside the forward.
  if (outputs.empty()) return {};
  if (!pass_) open_pass();
  LOCKSTEP_CHECK(pass_->state == Pass::State::kOpen);
  clock_.arm();
  if (options_.find_unused_parameters) {
    std::vector<Edge> inputs(std::make_move_iterator(outputs.begin()),
                             std::make_move_iterator(outputs.end()));
    const Ref<Node> shared(new PassOutput(pass_, std::move(inputs), engine.next_sequence()));
    for (std::uint32_t reduced = 0; reduced < outputs.size(); ++reduced)
      outputs[reduced] = {shared, reduced};
    return {};
  }
  for (Edge& output : outputs) {
    std::vector<Edge> input(1, std::move(output));
    output = {Ref<Node>(new PassOutput(pass_, std::move(input), engine.next_sequence())), 0};
  }
  return {};
} catch (const std::bad_alloc&) {
  outputs.clear();  // Some outputs may refer to the pass, and others not.
  return out_of_memory();
}

Status Reducer::reset(Membership membership) try {
  LOCKSTEP_CHECK(membership.group != nullptr);
  LOCKSTEP_CHECK(membership.store != nullptr);
  const bool is_half_way = pass_ && pass_->state == Pass::State::kRunning && launched_ > 0;
  if (membership.group != membership_.group || is_half_way)
    stop_group(Status(Code::kAborted, "the reducer moved to a new process group"));
  membership_ = std::move(membership);
  Status own = guarded([this] { return start_over(); });
  Status status = meeting(*membership_.group, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(agree_with_peers(std::move(own)));
    return broadcast_state();
  });
  if (!status.ok()) poison_ = status;
  return status;
} catch (const std::bad_alloc&) {
  poison_ = out_of_memory();
  return poison_;
}

// The engine calls this, through the pass, before any node of the backward runs.
Status Reducer::begin_pass(Pass& pass, GraphTask& task) {
  platform::MutexLock lock(mutex_);
  if (!poison_.ok()) return poison_;
  if (running_task_ == &task.outermost()) return {};
  LOCKSTEP_CHECK(&pass == pass_.get());
  const bool opens = pass.state == Pass::State::kOpen;
  // This comes first, so that the pass is notified of whatever fails from here on.
  task.outermost().at_end(&pass);
  if (opens && joining_) {
    lock.unlock();  // No other backward of this pass runs yet.
    if (Result<JoinEvent> event = exchange_join_state(JoinEvent::kPass); !event)
      return event.error();
    lock.lock();
  }
  if (opens) {
    start_pass(pass);
    find_unused(pass);
  }
  LOCKSTEP_RETURN_IF_ERROR(detach_misplaced_views());
  running_task_ = &task.outermost();
  core_.on_backward_begin();
  return {};
}

void Reducer::start_pass(Pass& pass) {
  pass.state = Pass::State::kRunning;
  pass.number = next_pass_++;
  failed_at_.reset();
  launched_ = joining_ ? 1 : 0;  // Counts the exchange of the join state.
  core_.begin_pass();
  unused_marked_ = false;
  for (ReducedParameter& reduced : reduced_parameters_) reduced.to_pack = reduced.to_alias = false;
  if (!recorded_) ready_order_.clear();
  clock_.begin_pass(infos_.size(), buckets_.size());
}

// Finds the replica gradients that no output of the pass that is alive now leads to.
void Reducer::find_unused(Pass& pass) {
  if (!options_.find_unused_parameters) return;
  core_.set_reachable(search_.reachable_from(pass));
}

void Reducer::open_pass() {
  LOCKSTEP_CHECK(!pass_);
  const int rank = membership_.group->rank();
  if (closed_pass_ && closed_pass_->use_count() == 1) {  // None of its outputs is left.
    pass_ = std::move(closed_pass_);
    pass_->reopen(this, rank);
  } else {
    pass_ = make_ref<Pass>(this, rank);
  }
}

void Reducer::close_pass(bool complete) {
  if (!complete) stop_listening();  // A pass that failed may do so inside of a backward.
  for (ReducedParameter& reduced : reduced_parameters_) restore_stale_grad(reduced);
  if (!pass_) return;
  pass_->close(complete);
  closed_pass_ = std::move(pass_);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
