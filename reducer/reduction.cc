// The path of a gradient through the reducer: hook, bucket, all-reduce, and back.
#include <algorithm>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/pass.h"
#include "reducer/reducer.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Unused parameters are marked at the first hook of a pass, and not earlier: a forward whose output
// is dropped starts nothing (P2). The launch may call the user's communication hook, which may run
// a local backward to any parameter, so this thread holds no lock of a parameter.
Status Reducer::backward_reached(GraphTask& task) {
  if (unused_marked_) return {};
  platform::MutexLock lock(mutex_);
  if (unused_marked_ || running_task_ != &task.outermost()) return {};
  unused_marked_ = true;
  core_.on_backward_reached();
  LOCKSTEP_RETURN_IF_ERROR(copy_unused_grads());
  return launch_ready_buckets();
}

// Everything that must not see a gradient while it changes is done here, before the parameter's
// accumulator runs.
Status Reducer::gradient_arriving(Parameter&, std::size_t index, GraphTask& task) {
  platform::MutexLock lock(mutex_);
  if (running_task_ != &task.outermost()) return arriving_locally(index);
  if (core_.on_gradient_arriving(index)) return {};
  return ready_twice(index);
}

// Handles a backward that stays local (P1, P9). In the middle of a pass, what it adds to a gradient
// that was already copied to its bucket would be lost, because the result replaces the gradient.
Status Reducer::arriving_locally(std::size_t index) {
  const ReducedParameter& reduced = reduced_parameter_of(index);
  if (!pass_ || pass_->state != Pass::State::kRunning || !core_.is_parameter_ready(reduced.number))
    return {};
  Failure failure = describe(
      Code::kReadyTwice, "a local backward reached it when pass " + std::to_string(pass_->number) +
                             " had taken its gradient already, and the average takes the place of "
                             "what it adds: run it before that pass, or when it is complete");
  failure.bucket = static_cast<int>(reduced.bucket);
  failure.parameters = {replica_gradient(index).parameter->name()};
  failure.definite = true;
  return failure;
}

Status Reducer::gradient_ready(Parameter&, std::size_t index, GraphTask& task) {
  platform::MutexLock lock(mutex_);
  if (running_task_ != &task.outermost()) return {};
  const core::Action action = core_.on_hook(index);
  if (action.kind == core::Action::Kind::kNone) return {};
  return mark_ready(reduced_parameters_[action.index]);
}

Failure Reducer::ready_twice(std::size_t index) {
  const std::string pass = std::to_string(pass_->number);
  Failure failure = describe(
      Code::kReadyTwice,
      options_.static_graph
          ? "in pass " + pass + " a further hook of it fired, after the " +
                std::to_string(core_.hooks_expected(index)) +
                " of the first pass: with static_graph on every pass has to be the same"
          : "its hook ran twice in pass " + pass +
                ": it is reached again by a nested or a further backward of the same pass");
  failure.bucket = static_cast<int>(reduced_parameter_of(index).bucket);
  failure.parameters = {replica_gradient(index).parameter->name()};
  failure.definite = true;
  return failure;
}

Status Reducer::mark_ready(ReducedParameter& reduced) {
  note_ready(reduced);
  {  // Members of a bucket do not overlap, so different workers copy concurrently.
    const platform::MutexUnlock unlocked(mutex_);
    LOCKSTEP_RETURN_IF_ERROR(copy_grad_to_bucket(reduced));
  }
  note_copied_to_bucket(reduced);
  return launch_ready_buckets();
}

// Copies the gradients that are ready without a hook to their buckets.
Status Reducer::copy_unused_grads() {
  for (core::Action next = core_.next_copy(); next.kind != core::Action::Kind::kNone;
       next = core_.next_copy())
    LOCKSTEP_RETURN_IF_ERROR(mark_unused_ready(reduced_parameters_[next.index]));
  return {};
}

Status Reducer::mark_unused_ready(ReducedParameter& reduced) {
  note_ready(reduced);
  LOCKSTEP_RETURN_IF_ERROR(copy_grad_to_bucket(reduced));
  note_copied_to_bucket(reduced);
  return {};
}

void Reducer::note_copied_to_bucket(const ReducedParameter& reduced) {
  if (core_.on_copied(reduced.number)) clock_.bucket_ready(reduced.bucket);
}

// Records the ready order for the rebuild (B2), and the time (T3).
void Reducer::note_ready(const ReducedParameter& reduced) {
  if (!recorded_) ready_order_.push_back(static_cast<std::int32_t>(reduced.number));
  clock_.gradient_ready(reduced.info);
}

// Whether the gradient is the bucket view already (B7).
bool Reducer::grad_is_bucket_view(const ReducedParameter& reduced) const {
  const Tensor& gradient = reduced.parameter->grad();
  return gradient.defined() && reduced.bucket_view.defined() &&
         gradient.storage() == reduced.bucket_view.storage() &&
         gradient.data() == reduced.bucket_view.data() &&
         gradient.shape().same_strides(reduced.bucket_view.shape());
}

// A gradient may lie in a bucket outside of its own bucket view: the user swapped two gradients, or
// set one with other strides. The sum of another parameter would overwrite it, so it is moved out
// of the bucket (B7).
Status Reducer::detach_misplaced_views() {
  if (!options_.gradient_as_bucket_view) return {};
  for (const ReducedParameter& reduced : reduced_parameters_) {
    if (core_.is_parameter_ready(reduced.number) || !reduced.bucket_view.defined()) continue;
    const bool viewed = grad_is_bucket_view(reduced);
    Status status;
    each_replica(reduced, [&](const ReplicaGradient& replica) {
      if (status.ok() && (&replica != &reduced || !viewed))
        status = detach_from_bucket(*replica.parameter);
    });
    LOCKSTEP_RETURN_IF_ERROR(std::move(status));
  }
  return {};
}

Status Reducer::detach_from_bucket(Parameter& parameter) const {
  const Tensor& gradient = parameter.grad();
  const auto holds = [&](const Bucket& bucket) { return bucket.storage == gradient.storage(); };
  if (!gradient.defined() || std::none_of(buckets_.begin(), buckets_.end(), holds)) return {};
  Device& device = parameter.device();
  Result<Tensor> own = Tensor::empty(device, parameter.dtype(), parameter.shape());
  if (!own) return own.error();
  device.copy(device.current_stream(), gradient, *own);
  parameter.move_grad(std::move(*own));
  return {};
}

// Copies the accumulated gradient to its bucket view. It is scaled (G2) unless a communication hook
// (G4) or the sum does that. An undefined gradient counts as +0 (G1).
Status Reducer::copy_grad_to_bucket(ReducedParameter& reduced) {
  const Parameter& parameter = *reduced.parameter;
  const ReplicaGradient* requiring = nullptr;
  reduced.used = false;
  each_replica(reduced, [&](const ReplicaGradient& replica) {
    if (replica.parameter->grad().requires_grad() && requiring == nullptr) requiring = &replica;
    reduced.used = reduced.used || replica.parameter->used();
  });
  if (requiring != nullptr && !shadowing_) return requires_grad(*requiring, reduced.bucket);
  reduced.used = reduced.used && !shadowing_;
  const double factor = factor_of(parameter.dtype());
  if (SparseSum* const sparse = buckets_[reduced.bucket].sparse.get()) {
    Result<Tensor> entries = all_entries(reduced);
    return entries ? sparse->take(*entries, factor) : entries.error();
  }
  return copy_dense_grad_to_bucket(reduced, bucket_factor(parameter.dtype()));
}

// The average would differ from what the gradient's graph says it is (P16).
Failure Reducer::requires_grad(const ReplicaGradient& replica, std::size_t bucket) const {
  Failure failure = describe(
      Code::kRequiresGrad,
      "its gradient requires a gradient itself: a sum over ranks cannot be differentiated. "
      "Run the backward that made it without a graph of its own, or outside of the reducer");
  failure.bucket = static_cast<int>(bucket);
  failure.parameters = {replica.parameter->name()};
  failure.definite = true;
  return failure;
}

// Returns the gradient of a sparse parameter: the entries of each replica, one after the other.
Result<Tensor> Reducer::all_entries(const ReducedParameter& reduced) const {
  if (shadowing_) return Tensor();
  const Parameter& parameter = *reduced.parameter;
  if (reduced.further_replica_count == 0) return parameter.grad();
  Device& device = parameter.device();
  Result<Tensor> all = empty_sparse(device, parameter.dtype(), parameter.shape(), {});
  each_replica(reduced, [&](const ReplicaGradient& replica) {
    const Tensor& own = replica.parameter->grad();
    if (!all || !own.defined()) return;
    wait_for(replica, device);
    all = append(*all, own);
  });
  return all;
}

Status Reducer::copy_dense_grad_to_bucket(ReducedParameter& reduced, double factor) {
  Parameter& parameter = *reduced.parameter;
  Device& device = parameter.device();
  const Stream stream = device.current_stream();
  const bool sure = !tracks_use() || (options_.static_graph ? reduced.in_use : reduced.used);
  const bool viewed = grad_is_bucket_view(reduced);
  if (viewed && !sure) LOCKSTEP_RETURN_IF_ERROR(save_stale_grad(reduced));
  bool is_defined = false;
  each_replica(reduced, [&](const ReplicaGradient& replica) {
    is_defined = is_defined || replica.parameter->grad().defined();
  });
  if (shadowing_ || !is_defined) {
    const auto elements = static_cast<std::size_t>(parameter.shape().elements());
    device.fill_zero(stream, reduced.bucket_view.data(), elements * size_of(parameter.dtype()));
    return {};
  }
  if (reduced.further_replica_count != 0) {
    sum_replicas(reduced, factor);
  } else if (!viewed || factor != 1.0) {
    // A launch costs more than a small copy, so the bucket of a GPU is packed as a whole.
    reduced.to_pack = !device.is_host();
    const Transfer transfer{&parameter.grad(), reduced.bucket_view.data(), &parameter.shape()};
    if (!reduced.to_pack) device.pack_bucket(stream, {&transfer, 1}, factor);
  }
  reduced.to_alias =
      options_.gradient_as_bucket_view && sure && !viewed && parameter.grad().defined();
  if (!reduced.to_pack) alias_grad_to_bucket(reduced);
  return {};
}

// View mode: makes the bucket view the gradient from here on (B7).
void Reducer::alias_grad_to_bucket(ReducedParameter& reduced) {
  if (reduced.to_alias) reduced.parameter->move_grad(reduced.bucket_view);
  reduced.to_alias = false;
}

// Packs the members of a bucket that copy_dense_grad_to_bucket() has deferred: one launch, however
// many they are.
void Reducer::pack_bucket(const Bucket& bucket) {
  if (bucket.sparse || bucket.storage->device().is_host()) return;
  transfers_.clear();
  for (const std::size_t index : bucket.members) {
    const ReducedParameter& reduced = reduced_parameters_[index];
    if (reduced.to_pack)
      transfers_.push_back(
          {&reduced.parameter->grad(), reduced.bucket_view.data(), &reduced.parameter->shape()});
  }
  if (transfers_.empty()) return;
  Device& device = bucket.storage->device();
  const DType dtype = reduced_parameters_[bucket.members.front()].parameter->dtype();
  device.pack_bucket(device.current_stream(), transfers_, bucket_factor(dtype));
  for (const std::size_t index : bucket.members) {
    ReducedParameter& reduced = reduced_parameters_[index];
    if (std::exchange(reduced.to_pack, false)) alias_grad_to_bucket(reduced);
  }
}

// Called when the pass continues in a later backward. Between the two backwards the gradients
// belong to the user. The gradients that are ready have been copied to their buckets. In view mode,
// where a bucket may be in flight, the user does not see these gradients (B7).
void Reducer::suspend_pass() {
  const core::PassCore& core = idle_core();
  for (std::size_t b = core.next_bucket(); b < buckets_.size(); ++b) pack_bucket(buckets_[b]);
  if (!options_.gradient_as_bucket_view) return;
  for (ReducedParameter& reduced : reduced_parameters_) {
    if (!core.is_parameter_ready(reduced.number) || !grad_is_bucket_view(reduced)) continue;
    reduced.parameter->move_grad(
        std::move(reduced.saved_grad));  // Undefined, unless it may have to be restored (G5).
    drop_stale_grad(reduced);
  }
}

// Orders the work that the replica's own worker has submitted before what follows.
void Reducer::wait_for(const ReplicaGradient& replica, Device& device) {
  Device& other = replica.parameter->device();
  if (&other != &device) device.wait(device.current_stream(), other.record(other.current_stream()));
}

// Sums the gradients of the replicas, in their order (P15); undefined gradients are left out.
void Reducer::sum_replicas(ReducedParameter& reduced, double factor) {
  Device& device = reduced.parameter->device();
  const Stream stream = device.current_stream();
  const bool viewed = grad_is_bucket_view(reduced);
  bool is_first = true;
  each_replica(reduced, [&](const ReplicaGradient& replica) {
    const Tensor& own = replica.parameter->grad();
    if (!own.defined()) return;
    wait_for(replica, device);
    const Transfer transfer{&own, reduced.bucket_view.data(), &reduced.parameter->shape()};
    if (!is_first)
      device.add(stream, own, reduced.bucket_view);
    else if (&replica != &reduced || !viewed)
      device.pack_bucket(stream, {&transfer, 1}, 1.0);
    is_first = false;
  });
  const Transfer scaled{&reduced.bucket_view, reduced.bucket_view.data(),
                        &reduced.parameter->shape()};
  if (factor != 1.0) device.pack_bucket(stream, {&scaled, 1}, factor);
}

// It is possible that no rank used a parameter whose gradient is its bucket view. The gradient's
// current value is then needed again (G5), but the sum will overwrite it; so it is saved.
Status Reducer::save_stale_grad(ReducedParameter& reduced) {
  Device& device = reduced.parameter->device();
  Result<Tensor> kept =
      Tensor::empty(device, reduced.parameter->dtype(), reduced.parameter->shape());
  if (!kept) return kept.error();
  device.copy(device.current_stream(), reduced.bucket_view, *kept);
  reduced.saved_grad = std::move(*kept);
  reduced.is_grad_saved = true;
  return {};
}

void Reducer::restore_stale_grad(ReducedParameter& reduced) {
  if (!reduced.is_grad_saved) return;
  Device& device = reduced.parameter->device();
  device.copy(device.current_stream(), reduced.saved_grad, reduced.bucket_view);
  drop_stale_grad(reduced);
}

void Reducer::drop_stale_grad(ReducedParameter& reduced) {
  reduced.saved_grad = Tensor();
  reduced.is_grad_saved = false;
}

// Launches buckets in index order, whatever order they become ready in (P3).
Status Reducer::launch_ready_buckets() {
  for (core::Action next = core_.next_launch(); next.kind != core::Action::Kind::kNone;
       next = core_.next_launch()) {
    if (next.kind == core::Action::Kind::kLaunchUsageMap) {
      LOCKSTEP_RETURN_IF_ERROR(launch_usage_map());
      continue;
    }
    const std::size_t b = next.index;
    Bucket& bucket = buckets_[b];
    pack_bucket(bucket);
    clock_.bucket_launched(b);
    LOCKSTEP_RETURN_IF_ERROR(bucket.hooked ? start_hook(b) : launch_bucket(b));
    core_.on_launched(b);
  }
  return {};
}

Status Reducer::launch_bucket(std::size_t b) {
  Bucket& bucket = buckets_[b];
  Collective collective;
  if (bucket.sparse) {
    collective = bucket.sparse->count(backward_group());
  } else {
    const BucketLayout& layout = layout_.buckets[b];
    collective.dtype = real_of(layout.dtype);
    collective.reduction = options_.reduction;
    if (group_scales(layout.dtype)) collective.factor = factor_of(layout.dtype);
    collective.count = static_cast<std::uint64_t>(layout.elements * parts_of(layout.dtype));
    collective.data = bucket.storage->data();
    collective.device = &bucket.storage->device();
    collective.ready = collective.device->record(collective.device->current_stream());
  }
  collective.bucket = static_cast<int>(b);
  return launch(collective, bucket.work, TraceEntry::What::kBucket, bucket.trace_sequence);
}

// Sums how many ranks used each parameter: a parameter that no rank used stays untouched (G5). The
// usage map follows the last bucket on every rank (T2), also on a rank that used everything.
Status Reducer::launch_usage_map() {
  for (std::size_t i = 0; i < reduced_parameters_.size(); ++i)
    usage_map_[i] = reduced_parameters_[i].used ? 1 : 0;
  Collective collective;
  collective.dtype = DType::kInt32;
  collective.count = usage_map_.size();
  collective.data = reinterpret_cast<std::byte*>(usage_map_.data());
  return launch(collective, usage_work_, TraceEntry::What::kUsageMap, usage_sequence_);
}

Status Reducer::launch(Collective& collective, Work& work, TraceEntry::What what,
                       std::int64_t& sequence) {
  if (collective.pass == kNone) collective.pass = pass_->number;
  collective.reducer_id = reducer_id_;
  collective.verify = options_.verify_payload;
  const bool by_first_group = what == TraceEntry::What::kState || what == TraceEntry::What::kJoin;
  ProcessGroup& group = by_first_group ? *membership_.group : backward_group();
  if (!pass_ || pass_->state == Pass::State::kOpen)
    failed_at_.reset();  // An earlier failure that left the reducer clean is over.
  if (Status status = group.start(collective, work); !status.ok()) {
    if (status.failure().collective.empty()) status.failure().collective = name_of(collective.op);
    annotate(status.failure(), collective.bucket);
    return status;
  }
  TraceEntry entry;
  entry.pass = collective.pass;
  entry.what = what;
  entry.op = collective.op;
  entry.dtype = collective.dtype;
  entry.bucket = collective.bucket;
  entry.layout_hash = layout_.hash;
  entry.count = static_cast<std::int64_t>(collective.count);
  entry.launched = platform::now();
  sequence = trace_.append(entry);
  const bool is_of_pass = what == TraceEntry::What::kBucket || what == TraceEntry::What::kUsageMap;
  if (is_of_pass) ++launched_;
  return {};
}

// Hooks that run from here on are those of a local backward.
void Reducer::stop_listening() {
  platform::MutexLock lock(mutex_);
  running_task_ = nullptr;
}

// Called at the end of an outermost backward of the running pass.
Status Reducer::end_backward() {
  bool agrees = false;
  {
    platform::MutexLock lock(mutex_);
    running_task_ = nullptr;
    agrees = core_.on_backward_end().kind == core::Action::Kind::kLaunchUsageMap;
  }
  clock_.backward_ended();
  bool all_ready = false;
  if (Status status = mark_remaining_ready(agrees, all_ready); !status.ok())
    return give_up(std::move(status));
  if (!all_ready) {
    if (!can_complete_later()) return give_up(incomplete());
    suspend_pass();
    return {};
  }
  if (Status status = finalize(); !status.ok()) return give_up(std::move(status));
  idle_core().on_pass_complete();
  clock_.end_pass(pass_->number);
  end_pass();
  return {};
}

// Whether an output that a later backward can use leads to a replica gradient that is not ready
// (P5). An output that leads to none keeps no pass open: a constant, a metric, or features that the
// loss is computed from.
bool Reducer::can_complete_later() {
  const core::PassCore& core = idle_core();
  return search_.leads_to(
      *pass_, [&](std::uint32_t gradient) { return !core.is_gradient_ready(gradient); });
}

void Reducer::end_pass() {
  // A rank without inputs has no ready order of its own.
  recorded_ = recorded_ || all_train();
  window_open_ = false;
  close_pass(true);
}

// Does what remains before all buckets can be launched.
Status Reducer::mark_remaining_ready(bool agrees, bool& all_ready) {
  if (agrees) LOCKSTEP_RETURN_IF_ERROR(agree_on_use());
  platform::MutexLock lock(mutex_);
  if (agrees) core_.on_usage_agreed();
  LOCKSTEP_RETURN_IF_ERROR(copy_unused_grads());
  unused_marked_ = true;
  // This check comes before the remaining launches: where nothing was launched yet (P14, the first
  // static pass, or no hook at all) the other ranks still wait for this rank.
  LOCKSTEP_RETURN_IF_ERROR(usage_changed());
  LOCKSTEP_RETURN_IF_ERROR(launch_ready_buckets());
  all_ready = core_.is_all_ready();
  LOCKSTEP_CHECK(!all_ready || core_.is_all_launched());
  return {};
}

// Static mode: called at the end of the first backward of the first pass, which ends the pass
// whatever outputs are alive. Its hooks are those that later passes must have, and the parameters
// that some rank used in it are those that are reduced from now on (P11). The usage map comes
// before the buckets (T2), because the used parameters must be known when unused ones are marked.
Status Reducer::agree_on_use() {
  for (ReducedParameter& reduced : reduced_parameters_) {
    reduced.used = false;
    each_replica(reduced, [&](const ReplicaGradient& replica) {
      reduced.used = reduced.used || (!shadowing_ && replica.parameter->used());
    });
  }
  LOCKSTEP_RETURN_IF_ERROR(launch_usage_map());
  LOCKSTEP_RETURN_IF_ERROR(await(usage_work_, usage_sequence_, kNone));
  for (std::size_t i = 0; i < reduced_parameters_.size(); ++i)
    reduced_parameters_[i].in_use = usage_map_[i] != 0;
  return {};
}

// Static mode: parameters that no rank used in the first pass are not reduced, so a later pass must
// not use them.
Status Reducer::usage_changed() const {
  if (!options_.static_graph) return {};
  Failure failure = describe(Code::kUsageChanged, "");
  for (const ReducedParameter& reduced : reduced_parameters_) {
    if (!core_.is_parameter_ready(reduced.number) || !reduced.used || reduced.in_use) continue;
    if (failure.bucket == kNone) failure.bucket = static_cast<int>(reduced.bucket);
    failure.parameters.push_back(reduced.parameter->name());
  }
  if (failure.parameters.empty()) return {};
  failure.definite = true;
  failure.detail =
      "these parameters are used, and no rank used them in the first synced pass: with "
      "static_graph "
      "on every pass, what was accumulated under no_sync included, has to use the same ones";
  return failure;
}

Status Reducer::finalize() {
  bool usage_pending = options_.find_unused_parameters && !reduced_parameters_.empty();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    LOCKSTEP_RETURN_IF_ERROR(finish_bucket(b));
    const bool is_sum = !buckets_[b].hooked && !buckets_[b].sparse;
    clock_.bucket_completed(b, is_sum ? buckets_[b].work.completed_at() : platform::now());
    transfers_.clear();
    Status status = copy_bucket_to_grads(buckets_[b], usage_pending);
    if (!transfers_.empty()) {  // Runs also for a bucket that fails half-way.
      Device& device = buckets_[b].storage->device();
      device.unpack_bucket(device.current_stream(), transfers_);
    }
    LOCKSTEP_RETURN_IF_ERROR(std::move(status));
  }
  if (usage_pending) return await(usage_work_, usage_sequence_, kNone);
  return {};
}

Status Reducer::copy_bucket_to_grads(const Bucket& bucket, bool& usage_pending) {
  for (const std::size_t index : bucket.members) {
    ReducedParameter& reduced = reduced_parameters_[index];
    if (options_.static_graph && !reduced.in_use) continue;
    // A parameter that this rank used was used by some rank; only for the others must this rank
    // wait for the map.
    if (options_.find_unused_parameters && !reduced.used) {
      if (usage_pending) LOCKSTEP_RETURN_IF_ERROR(await(usage_work_, usage_sequence_, kNone));
      usage_pending = false;
      if (usage_map_[index] == 0) continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(copy_bucket_to_grad(reduced));
  }
  return {};
}

Status Reducer::finish_bucket(std::size_t b) {
  Bucket& bucket = buckets_[b];
  if (bucket.hooked) return finish_hook(b);
  LOCKSTEP_RETURN_IF_ERROR(await(bucket.work, bucket.trace_sequence, static_cast<int>(b)));
  return bucket.sparse ? finish_sparse(b) : Status();
}

// By now all ranks know how many rows each rank has.
Status Reducer::finish_sparse(std::size_t b) {
  Bucket& bucket = buckets_[b];
  Result<std::vector<Collective>> rows = bucket.sparse->prepare();
  if (!rows) return with_bucket(std::move(rows.error()), b);
  for (Collective& collective : *rows) {
    collective.bucket = static_cast<int>(b);
    LOCKSTEP_RETURN_IF_ERROR(
        launch(collective, bucket.work, TraceEntry::What::kBucket, bucket.trace_sequence));
    LOCKSTEP_RETURN_IF_ERROR(await(bucket.work, bucket.trace_sequence, static_cast<int>(b)));
  }
  return {};
}

// Makes the sum in the bucket view the gradient; in copying mode transfers_ copies it there.
// Further replicas of the parameter have no gradient after that (P15).
Status Reducer::copy_bucket_to_grad(ReducedParameter& reduced) {
  Parameter& parameter = *reduced.parameter;
  Device& device = parameter.device();
  for (std::uint32_t i = 0; i < reduced.further_replica_count; ++i)
    further_replicas_[reduced.first_further_replica + i].parameter->undefine_grad();
  // The graph that the gradient was computed from ends here (P16). This happens on a rank that
  // shadows the pass (S2), as other ranks refused such a gradient.
  if (parameter.grad().requires_grad()) {
    Tensor plain = parameter.grad();
    plain.set_requires_grad(false);
    parameter.set_grad(std::move(plain));
  }
  if (SparseSum* const sparse = buckets_[reduced.bucket].sparse.get()) {
    Result<Tensor> sum = sparse->sum();
    if (!sum) return with_bucket(std::move(sum.error()), reduced.bucket);
    parameter.move_grad(std::move(*sum));
    parameter.mark_reduced();
    return {};
  }
  if (reduced.is_grad_saved) drop_stale_grad(reduced);
  if (options_.gradient_as_bucket_view) {
    if (!grad_is_bucket_view(reduced)) parameter.move_grad(reduced.bucket_view);
    parameter.mark_reduced();
    return {};
  }
  if (!parameter.grad().defined() || parameter.grad().shape().is_expanded()) {
    Result<Tensor> fresh = Tensor::empty(device, parameter.dtype(), parameter.shape());
    if (!fresh) return fresh.error();
    parameter.move_grad(std::move(*fresh));
  }
  transfers_.push_back({&parameter.grad(), reduced.bucket_view.data(), &parameter.shape()});
  parameter.mark_reduced();
  return {};
}

Status Reducer::await(Work& work, std::int64_t trace_sequence, int bucket) {
  Status status = wait_for(work);
  close_trace(trace_sequence, status);
  if (!status.ok()) annotate(status.failure(), bucket);
  return status;
}

Status Reducer::with_bucket(Status status, std::size_t b) const {
  annotate(status.failure(), static_cast<int>(b));
  return status;
}

void Reducer::close_trace(std::int64_t sequence, const Status& status) {
  trace_.close(sequence, status.ok() ? TraceEntry::State::kCompleted : TraceEntry::State::kFailed,
               platform::now());
}

// The process group ends every collective itself; this deadline lies behind the group's own.
Status Reducer::wait_for(Work& work) const {
  return wait_behind(work, {membership_.group.get(), &backward_group()});
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
