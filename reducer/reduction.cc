// The path of a gradient through the reducer: hook, bucket, all-reduce, and back.
#include <algorithm>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/base/status.h"
#include "reducer/pass.h"
#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Unused parameters are marked at the first hook of a pass, and not earlier: a forward whose output
// is dropped starts nothing (P2). The launch may call the user's communication hook, which may run
// a local backward to any parameter, so this thread holds no lock of a parameter.
Status Reducer::backward_reached(GraphTask& task) {
  if (unused_marked_) return {};
  platform::MutexLock lock(mutex_);
  if (unused_marked_ || shared_.running_task != &task.outermost()) return {};
  LOCKSTEP_CHECK(passes_.is_running());
  unused_marked_ = true;
  shared_.core.on_backward_reached();
  LOCKSTEP_RETURN_IF_ERROR(copy_unused_grads());
  return launch_ready_buckets();
}

// Everything that must not see a gradient while it changes is done here, before the parameter's
// accumulator runs.
Status Reducer::gradient_arriving(Parameter&, std::size_t index, GraphTask& task) {
  platform::MutexLock lock(mutex_);
  if (shared_.running_task != &task.outermost()) return arriving_locally(index);
  if (shared_.core.on_gradient_arriving(index)) return {};
  return ready_twice(index);
}

// Handles a backward that stays local (P1, P9). In the middle of a pass, what it adds to a gradient
// that was already copied to its bucket would be lost, because the result replaces the gradient.
Status Reducer::arriving_locally(std::size_t index) {
  LOCKSTEP_CHECK_LT(index, replicas_.gradient_count());
  const ReducedParameter& reduced = replicas_.parameter_of(index);
  if (!passes_.is_running() || !shared_.core.is_parameter_ready(reduced.number)) return {};
  Failure failure = describe(
      position(), Code::kReadyTwice,
      "a local backward reached it when pass " + std::to_string(passes_.current()->number) +
          " had taken its gradient already, and the average takes the place of "
          "what it adds: run it before that pass, or when it is complete");
  failure.bucket = static_cast<int>(reduced.bucket);
  failure.parameters = {replicas_.gradient(index).parameter->name()};
  failure.definite = true;
  return failure;
}

Status Reducer::gradient_ready(Parameter&, std::size_t index, GraphTask& task) {
  platform::MutexLock lock(mutex_);
  if (shared_.running_task != &task.outermost()) return {};
  const core::Action action = shared_.core.on_hook(index);
  if (action.kind == core::Action::Kind::kNone) return {};
  return mark_ready(replicas_[action.index]);
}

Failure Reducer::ready_twice(std::size_t index) {
  LOCKSTEP_CHECK(passes_.is_running());
  const std::string pass = std::to_string(passes_.current()->number);
  Failure failure = describe(
      position(), Code::kReadyTwice,
      options_.static_graph
          ? "in pass " + pass + " a further hook of it fired, after the " +
                std::to_string(shared_.core.hooks_expected(index)) +
                " of the first pass: with static_graph on, every pass has to be the same"
      : shared_.core.was_taken_for_unused(index)
          ? "pass " + pass +
                " took it for unused, as the outputs of its forward do not lead to it, and then "
                "the backward reached it: a reentrant checkpoint hides what it computes again, so "
                "use one that is not reentrant, turn static_graph on, or turn "
                "find_unused_parameters off where every pass uses every parameter"
          : "its hook ran twice in pass " + pass +
                ": it is reached again by a nested or a further backward of the same pass");
  failure.bucket = static_cast<int>(replicas_.parameter_of(index).bucket);
  failure.parameters = {replicas_.gradient(index).parameter->name()};
  failure.definite = true;
  return failure;
}

// Where all gradients lie on one device, one worker calls all hooks, and a second one would only
// wait. A hook that takes the mutex once less is faster; what runs under it is the reducer's own
// copy, and the end of the memory of a gradient that becomes a view.
Status Reducer::mark_ready(ReducedParameter& reduced) {
  LOCKSTEP_CHECK(shared_.core.is_parameter_ready(reduced.number));
  note_ready(reduced);
  if (replicas_.has_several_devices()) {
    // Members of a bucket do not overlap, so workers of different devices copy concurrently.
    const platform::MutexUnlock unlocked(mutex_);
    LOCKSTEP_RETURN_IF_ERROR(copy_grad_to_bucket(reduced));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(copy_grad_to_bucket(reduced));
  }
  note_copied_to_bucket(reduced);
  return launch_ready_buckets();
}

// Copies the gradients that are ready without a hook to their buckets.
Status Reducer::copy_unused_grads() {
  for (core::Action next = shared_.core.next_copy(); next.kind != core::Action::Kind::kNone;
       next = shared_.core.next_copy()) {
    LOCKSTEP_CHECK(next.kind == core::Action::Kind::kCopyToBucket);
    ReducedParameter& reduced = replicas_[next.index];
    note_ready(reduced);
    LOCKSTEP_RETURN_IF_ERROR(copy_grad_to_bucket(reduced));
    note_copied_to_bucket(reduced);
  }
  return {};
}

void Reducer::note_copied_to_bucket(const ReducedParameter& reduced) {
  if (shared_.core.on_copied(reduced.number)) clock_.bucket_ready(reduced.bucket);
}

// Records the ready order for the rebuild (B2), and the time (T3).
void Reducer::note_ready(const ReducedParameter& reduced) {
  order_.note_ready(reduced.number);
  clock_.gradient_ready(reduced.info);
}

double Reducer::bucket_factor(DType dtype) const {
  return options_.hook || group_scales(dtype) ? 1.0 : factor_of(dtype);
}

bool Reducer::group_scales(DType dtype) const {
  return !options_.hook && collectives_.backward_group().can_scale(real_of(dtype));
}

// Copies the accumulated gradient to its bucket view. It is scaled (G2) unless a communication hook
// (G4) or the sum does that. An undefined gradient counts as +0 (G1).
Status Reducer::copy_grad_to_bucket(ReducedParameter& reduced) {
  const ReplicaGradient* requiring = nullptr;
  bool is_used = false;
  replicas_.each_replica(reduced, [&](const ReplicaGradient& replica) {
    if (replica.parameter->grad().requires_grad() && requiring == nullptr) requiring = &replica;
    is_used = is_used || replica.parameter->used();
  });
  const bool is_shadowing = join_.is_shadowing();
  if (requiring != nullptr && !is_shadowing) return requires_grad(*requiring, reduced.bucket);
  reduced.used = is_used && !is_shadowing;
  const DType dtype = reduced.parameter->dtype();
  if (buckets_.is_sparse(reduced))
    return buckets_.copy_sparse_grad_to_bucket(reduced, factor_of(dtype), is_shadowing);
  return buckets_.copy_dense_grad_to_bucket(
      reduced, {bucket_factor(dtype), is_shadowing, usage_.is_surely_used(reduced)});
}

// The average would differ from what the gradient's graph says it is (P16).
Failure Reducer::requires_grad(const ReplicaGradient& replica, std::size_t bucket) const {
  LOCKSTEP_CHECK_LT(bucket, buckets_.size());
  Failure failure = describe(
      position(), Code::kRequiresGrad,
      "its gradient requires a gradient itself: a sum over ranks cannot be differentiated. "
      "Run the backward that made it without a graph of its own, or outside of the reducer");
  failure.bucket = static_cast<int>(bucket);
  failure.parameters = {replica.parameter->name()};
  failure.definite = true;
  return failure;
}

// Called when the pass continues in a later backward. Between the two backwards the gradients
// belong to the user. The gradients that are ready have been copied to their buckets. In view mode,
// where a bucket may be in flight, the user does not see these gradients (B7).
void Reducer::suspend_pass() {
  const core::PassCore& core = idle_core();
  for (std::size_t b = core.next_bucket(); b < buckets_.size(); ++b)
    buckets_.pack_bucket(b, bucket_factor(buckets_.dtype(b)));
  buckets_.take_back_ready_views(core);
}

// Launches buckets in index order, whatever order they become ready in (P3).
Status Reducer::launch_ready_buckets() {
  for (core::Action next = shared_.core.next_launch(); next.kind != core::Action::Kind::kNone;
       next = shared_.core.next_launch()) {
    if (next.kind == core::Action::Kind::kLaunchUsageMap) {
      LOCKSTEP_RETURN_IF_ERROR(launch_usage_map());
      continue;
    }
    LOCKSTEP_CHECK(next.kind == core::Action::Kind::kLaunch);
    const std::size_t b = next.index;
    Bucket& bucket = buckets_[b];
    buckets_.pack_bucket(b, bucket_factor(buckets_.dtype(b)));
    bucket.is_skipped = options_.skip_unused_buckets && !buckets_.is_used(bucket);
    if (bucket.is_skipped) {
      shared_.core.on_launched(b);
      continue;
    }
    clock_.bucket_launched(b);
    LOCKSTEP_RETURN_IF_ERROR(bucket.hooked ? start_hook(b) : launch_bucket(b));
    shared_.core.on_launched(b);
  }
  return {};
}

Status Reducer::launch_bucket(std::size_t b) {
  Bucket& bucket = buckets_[b];
  LOCKSTEP_CHECK(bucket.hooked == nullptr);
  Collective collective;
  if (bucket.sparse) {
    collective = bucket.sparse->count(collectives_.backward_group());
  } else {
    const BucketLayout& layout = buckets_.layout().buckets[b];
    LOCKSTEP_CHECK_LE(static_cast<std::size_t>(layout.elements) * size_of(layout.dtype),
                      bucket.storage->bytes());
    collective.dtype = real_of(layout.dtype);
    collective.reduction = options_.reduction;
    if (group_scales(layout.dtype)) collective.factor = factor_of(layout.dtype);
    collective.count = static_cast<std::uint64_t>(layout.elements * parts_of(layout.dtype));
    collective.data = bucket.storage->data();
    collective.device = &bucket.storage->device();
    collective.ready = collective.device->record(collective.device->current_stream());
  }
  collective.bucket = static_cast<int>(b);
  return collectives_.launch(collective, bucket.work, TraceEntry::What::kBucket,
                             bucket.trace_sequence);
}

// Sums how many ranks used each parameter: a parameter that no rank used stays untouched (G5). The
// usage map follows the last bucket on every rank (T2), also on a rank that used everything.
Status Reducer::launch_usage_map() {
  Collective collective = usage_.map();
  return collectives_.launch_control(collective, TraceEntry::What::kUsageMap);
}

// Outside of passes. An earlier failure that left the reducer clean is over.
Status Reducer::run_control(Collective& collective, TraceEntry::What what) {
  if (!passes_.is_running()) failures_.forget_progress();
  return collectives_.run_control(collective, what);
}

// Called at the end of an outermost backward of the running pass.
Status Reducer::end_backward() {
  LOCKSTEP_CHECK(passes_.is_running());
  bool must_agree_on_usage = false;
  {
    platform::MutexLock lock(mutex_);
    shared_.running_task = nullptr;
    must_agree_on_usage =
        shared_.core.on_backward_end().kind == core::Action::Kind::kLaunchUsageMap;
  }
  clock_.backward_ended();
  bool all_ready = false;
  if (Status status = mark_remaining_ready(must_agree_on_usage, all_ready); !status.ok())
    return give_up(std::move(status));
  if (!all_ready) {
    if (!can_complete_later()) return give_up(incomplete());
    suspend_pass();
    return {};
  }
  if (Status status = finalize(); !status.ok()) return give_up(std::move(status));
  idle_core().on_pass_complete();
  clock_.end_pass(passes_.current()->number);
  end_pass();
  return {};
}

// Whether an output that a later backward can use leads to a replica gradient that is not ready
// (P5). An output that leads to none keeps no pass open: a constant, a metric, or features that the
// loss is computed from.
bool Reducer::can_complete_later() {
  const core::PassCore& core = idle_core();
  return usage_.search().leads_to(*passes_.current(), [&](std::uint32_t gradient) {
    return !core.is_gradient_ready(gradient);
  });
}

void Reducer::end_pass() {
  // A rank without inputs has no ready order of its own.
  if (join_.all_train()) order_.end_pass();
  state_.is_window_open = false;
  close_pass(true);
}

// Does what remains before all buckets can be launched.
Status Reducer::mark_remaining_ready(bool must_agree_on_usage, bool& all_ready) {
  if (must_agree_on_usage) LOCKSTEP_RETURN_IF_ERROR(agree_on_use());
  platform::MutexLock lock(mutex_);
  if (must_agree_on_usage) shared_.core.on_usage_agreed();
  LOCKSTEP_RETURN_IF_ERROR(copy_unused_grads());
  // This check comes before the remaining launches: where nothing was launched yet (P14, the first
  // static pass, or no hook at all) the other ranks still wait for this rank.
  LOCKSTEP_RETURN_IF_ERROR(usage_changed());
  LOCKSTEP_RETURN_IF_ERROR(launch_ready_buckets());
  all_ready = shared_.core.is_all_ready();
  LOCKSTEP_CHECK(!all_ready || shared_.core.is_all_launched());
  return {};
}

// Static mode: called at the end of the first backward of the first pass, which ends the pass
// whatever outputs are alive. Its hooks are those that later passes must have, and the parameters
// that some rank used in it are those that are reduced from now on (P11). The usage map comes
// before the buckets (T2), because the used parameters must be known when unused ones are marked.
Status Reducer::agree_on_use() {
  usage_.note_all_uses(join_.is_shadowing());
  LOCKSTEP_RETURN_IF_ERROR(launch_usage_map());
  LOCKSTEP_RETURN_IF_ERROR(collectives_.await_control());
  usage_.keep_map();
  return {};
}

// Static mode: parameters that no rank used in the first pass are not reduced, so a later pass must
// not use them.
Status Reducer::usage_changed() const {
  if (!options_.static_graph) return {};
  Failure failure = describe(position(), Code::kUsageChanged, "");
  for (const ReducedParameter& reduced : replicas_) {
    if (!shared_.core.is_parameter_ready(reduced.number) || !reduced.used || reduced.in_use)
      continue;
    if (failure.bucket == kNone) failure.bucket = static_cast<int>(reduced.bucket);
    failure.parameters.push_back(reduced.parameter->name());
  }
  if (failure.parameters.empty()) return {};
  failure.definite = true;
  failure.detail =
      "these parameters are used, and no rank used them in the first synced pass: with "
      "static_graph on, every pass has to use the same ones, what was accumulated under no_sync "
      "included";
  return failure;
}

Status Reducer::finalize() {
  LOCKSTEP_CHECK(idle_core().is_all_launched());
  usage_.begin_unpack();
  // Rows go out one bucket after the other, before anybody waits for the first of them. Only the
  // second halves of hooks have their places between them (T2).
  for (std::size_t b = 0; b < buckets_.size() && !options_.hook; ++b)
    if (buckets_[b].sparse && !buckets_[b].is_skipped) LOCKSTEP_RETURN_IF_ERROR(launch_rows(b));
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].is_skipped) continue;
    LOCKSTEP_RETURN_IF_ERROR(finish_bucket(b));
    const bool is_sum = !buckets_[b].hooked && !buckets_[b].sparse;
    clock_.bucket_completed(b, is_sum ? buckets_[b].work.completed_at() : platform::now());
    buckets_.begin_unpack();
    Status status = copy_bucket_to_grads(buckets_[b]);
    buckets_.end_unpack(b);  // Runs also for a bucket that fails half-way.
    LOCKSTEP_RETURN_IF_ERROR(std::move(status));
  }
  return await_usage_map();
}

Status Reducer::copy_bucket_to_grads(const Bucket& bucket) {
  for (const std::size_t index : bucket.members) {
    ReducedParameter& reduced = replicas_[index];
    LOCKSTEP_CHECK(&buckets_[reduced.bucket] == &bucket);
    if (!usage_.is_reduced(reduced)) continue;
    // A parameter that this rank used was used by some rank; only for the others must this rank
    // wait for the map.
    if (usage_.needs_map(reduced)) {
      LOCKSTEP_RETURN_IF_ERROR(await_usage_map());
      if (!usage_.is_used_by_some(index)) continue;
    }
    Status status = buckets_.copy_bucket_to_grad(reduced);
    if (!status.ok()) return with_bucket(std::move(status), reduced.bucket);
  }
  return {};
}

// Waits once for a sum that nobody has waited for yet.
Status Reducer::await_usage_map() {
  return usage_.take_pending_map() ? collectives_.await_control() : Status();
}

Status Reducer::finish_bucket(std::size_t b) {
  Bucket& bucket = buckets_[b];
  LOCKSTEP_CHECK(static_cast<bool>(bucket.storage) != (bucket.sparse != nullptr));
  if (bucket.hooked) {
    Status status = hooks_.finish(*bucket.hooked, collectives_.backward_group().timeout());
    return status.ok() ? status : with_bucket(std::move(status), b);
  }
  if (bucket.sparse) return finish_sparse(b);
  return collectives_.await(bucket.work, bucket.trace_sequence, static_cast<int>(b));
}

// Sends the rows of a sparse bucket, when all ranks know how many rows each rank has.
Status Reducer::launch_rows(std::size_t b) {
  Bucket& bucket = buckets_[b];
  LOCKSTEP_CHECK_EQ(bucket.members.size(), std::size_t{1});
  bucket.rows_sent = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      collectives_.await(bucket.work, bucket.trace_sequence, static_cast<int>(b)));
  Result<std::vector<Collective>> rows = bucket.sparse->prepare();
  if (!rows) return with_bucket(std::move(rows.error()), b);
  LOCKSTEP_CHECK_LE(rows->size(), bucket.rows.size());
  for (Collective& collective : *rows) {
    collective.bucket = static_cast<int>(b);
    Bucket::Rows& sent = bucket.rows[bucket.rows_sent];
    LOCKSTEP_RETURN_IF_ERROR(
        collectives_.launch(collective, sent.work, TraceEntry::What::kBucket, sent.trace_sequence));
    ++bucket.rows_sent;
  }
  return {};
}

Status Reducer::finish_sparse(std::size_t b) {
  Bucket& bucket = buckets_[b];
  if (options_.hook) LOCKSTEP_RETURN_IF_ERROR(launch_rows(b));
  for (std::size_t i = 0; i < bucket.rows_sent; ++i)
    LOCKSTEP_RETURN_IF_ERROR(collectives_.await(bucket.rows[i].work, bucket.rows[i].trace_sequence,
                                                static_cast<int>(b)));
  return {};
}

// This implements HookCollectives, under the same lock as the launches of buckets without a hook.
Status Reducer::start(Collective& collective, Work& work, std::int64_t& trace_sequence) {
  platform::MutexLock lock(mutex_);
  return collectives_.launch(collective, work, TraceEntry::What::kBucket, trace_sequence);
}

Status Reducer::await(Work& work, std::int64_t trace_sequence) {
  Status status = collectives_.wait_for(work);
  platform::MutexLock lock(mutex_);
  collectives_.close_trace(trace_sequence, status);
  return status;
}

// No user code runs under a lock. Other threads may complete buckets meanwhile; the thread that
// runs the hook launches those, too. After a failure this stays the last launch of the pass.
Status Reducer::start_hook(std::size_t b) {
  HookBucket& bucket = *buckets_[b].hooked;
  const platform::MutexUnlock unlocked(mutex_);
  Status status = hooks_.start(bucket, join_.scale().divisor(), factor_of(buckets_.dtype(b)),
                               options_.reduction);
  return status.ok() ? status : with_bucket(std::move(status), b);
}

// Where memory is refused again, the failure stays as it is: what follows must still run.
Status Reducer::with_bucket(Status status, std::size_t b) const {
  attempt([&] { annotate(position(), status.failure(), static_cast<int>(b)); });
  return status;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
