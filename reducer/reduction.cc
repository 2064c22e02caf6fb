// The path of a gradient through the reducer: hook, bucket, all-reduce, and back.
#include <algorithm>

#include "reducer/base/check.h"
#include "reducer/pass.h"
#include "reducer/reducer.h"

namespace lockstep::inline LOCKSTEP_NS {

Status Reducer::gradient_ready(Parameter&, std::size_t index, GraphTask& task) {
  platform::MutexLock lock(mutex_);
  if (running_task_ != &task.outermost()) return {};  // a backward that stays local (P1, P9)
  if (options_.find_unused_parameters && !unused_marked_) {
    unused_marked_ = true;  // at the first hook, not earlier: a forward whose output is dropped
                            // starts nothing (P2)
    LOCKSTEP_RETURN_IF_ERROR(mark_unused_ready());
  }
  return mark_ready(index, lock);
}

Status Reducer::mark_ready(std::size_t index, platform::MutexLock& lock) {
  Slot& slot = slots_[index];
  if (slot.ready) {
    Failure failure =
        describe(Code::kReadyTwice,
                 "its hook ran twice in pass " + std::to_string(pass_->number) +
                     ": it is reached again by a nested or a further backward of the same pass");
    failure.bucket = static_cast<int>(slot.bucket);
    failure.parameters = {slot.parameter->name()};
    failure.definite = true;
    return failure;
  }
  slot.ready = true;
  lock.unlock();  // members do not overlap, so copies of different workers run side by side
  fill(slot);
  lock.lock();
  LOCKSTEP_CHECK(unready_ > 0);
  --unready_;
  LOCKSTEP_CHECK(buckets_[slot.bucket].pending > 0);
  --buckets_[slot.bucket].pending;
  return launch_ready_buckets();
}

// Parameters that no output of the pass can reach will have no hook: their slots are filled now.
Status Reducer::mark_unused_ready() {
  for (const std::size_t index : unused_) fill_unreached(slots_[index]);
  return launch_ready_buckets();
}

void Reducer::fill_unreached(Slot& slot) {
  LOCKSTEP_CHECK(!slot.ready);
  slot.ready = true;
  fill(slot);
  --unready_;
  --buckets_[slot.bucket].pending;
}

// Copies the accumulated gradient, scaled (G2), into its place; an undefined one counts as +0 (G1).
void Reducer::fill(Slot& slot) {
  const Parameter& parameter = *slot.parameter;
  Device& device = parameter.device();
  const Stream stream = device.current_stream();
  slot.used = parameter.used();
  if (!parameter.grad().defined()) {
    const auto elements = static_cast<std::size_t>(parameter.shape().elements());
    device.fill_zero(stream, slot.data, elements * size_of(parameter.dtype()));
    return;
  }
  const double factor = parameter.dtype() == DType::kFloat64 ? factor_ : float_factor_;
  const Transfer transfer{&parameter.grad(), slot.data, &parameter.shape()};
  device.gather(stream, {&transfer, 1}, factor);
}

// Launches in index order, whatever order buckets become ready in (P3).
Status Reducer::launch_ready_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) {
    Bucket& bucket = buckets_[next_bucket_];
    const BucketLayout& layout = layout_.buckets[next_bucket_];
    Device& device = bucket.storage->device();
    LOCKSTEP_RETURN_IF_ERROR(
        device.synchronize(device.record(device.current_stream()), operation_deadline()));
    Collective collective;
    collective.dtype = layout.dtype;
    collective.count = static_cast<std::uint64_t>(layout.elements);
    collective.data = bucket.storage->data();
    collective.bucket = static_cast<int>(next_bucket_);
    LOCKSTEP_RETURN_IF_ERROR(
        launch(collective, bucket.work, TraceEntry::What::kBucket, bucket.trace_sequence));
    ++next_bucket_;
  }
  return {};
}

// How many ranks used each parameter: what nobody used stays untouched (G5). Follows the last
// bucket on every rank (T2), also on a rank that used everything.
Status Reducer::launch_usage_map() {
  for (std::size_t i = 0; i < slots_.size(); ++i) usage_map_[i] = slots_[i].used ? 1 : 0;
  Collective collective;
  collective.dtype = DType::kInt32;
  collective.count = usage_map_.size();
  collective.data = reinterpret_cast<std::byte*>(usage_map_.data());
  return launch(collective, usage_work_, TraceEntry::What::kUsageMap, usage_sequence_);
}

Status Reducer::launch(Collective& collective, Work& work, TraceEntry::What what,
                       std::int64_t& sequence) {
  collective.pass = pass_->number;
  if (Status status = membership_.group->start(collective, work); !status.ok()) {
    annotate(status.failure(), collective.bucket);
    return status;
  }
  TraceEntry entry;
  entry.pass = pass_->number;
  entry.what = what;
  entry.op = collective.op;
  entry.dtype = collective.dtype;
  entry.bucket = collective.bucket;
  entry.count = static_cast<std::int64_t>(collective.count);
  entry.launched = platform::now();
  sequence = trace_.append(entry);
  ++launched_;
  return {};
}

// The end of an outermost backward of the pass that is running.
Status Reducer::end_backward() {
  {
    platform::MutexLock lock(mutex_);
    running_task_ = nullptr;
    if (options_.find_unused_parameters) {
      for (Slot& slot : slots_)  // outputs that the loss does not reach, or no hook at all (P5, P8)
        if (!slot.ready) fill_unreached(slot);
      unused_marked_ = true;
    }
    if (unready_ == 0) {
      if (Status status = launch_ready_buckets(); !status.ok())
        return fail(std::move(status.failure()));
      LOCKSTEP_CHECK_EQ(next_bucket_, buckets_.size());
    }
  }
  if (unready_ != 0) return pass_->usable_outputs() > 0 ? Status() : give_up(incomplete());
  if (Status status = finalize(); !status.ok()) return fail(std::move(status.failure()));
  close_pass(true);
  return {};
}

Status Reducer::finalize() {
  bool usage_pending = options_.find_unused_parameters && !slots_.empty();
  if (usage_pending) LOCKSTEP_RETURN_IF_ERROR(launch_usage_map());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    LOCKSTEP_RETURN_IF_ERROR(
        await(buckets_[b].work, buckets_[b].trace_sequence, static_cast<int>(b)));
    for (const std::size_t index : buckets_[b].slots) {
      Slot& slot = slots_[index];
      // What this rank used, somebody used: only the others have to wait for the map.
      if (options_.find_unused_parameters && !slot.used) {
        if (usage_pending) LOCKSTEP_RETURN_IF_ERROR(await(usage_work_, usage_sequence_, kNone));
        usage_pending = false;
        if (usage_map_[index] == 0) continue;
      }
      LOCKSTEP_RETURN_IF_ERROR(scatter(slot));
    }
  }
  if (usage_pending) return await(usage_work_, usage_sequence_, kNone);
  return {};
}

Status Reducer::scatter(Slot& slot) {
  Parameter& parameter = *slot.parameter;
  Device& device = parameter.device();
  if (!parameter.grad().defined()) {
    Result<Tensor> fresh = Tensor::empty(device, parameter.dtype(), parameter.shape());
    if (!fresh) return fresh.error();
    parameter.set_grad(std::move(*fresh));
  }
  const Transfer transfer{&parameter.grad(), slot.data, &parameter.shape()};
  device.scatter(device.current_stream(), {&transfer, 1});
  parameter.mark_reduced();
  return {};
}

Status Reducer::await(Work& work, std::int64_t trace_sequence, int bucket) {
  Status status = work.wait(operation_deadline());
  trace_.close(trace_sequence,
               status.ok() ? TraceEntry::State::kCompleted : TraceEntry::State::kFailed,
               platform::now());
  if (!status.ok()) annotate(status.failure(), bucket);
  return status;
}

// The process group ends every collective within its timeout; this is the line behind that line.
platform::Deadline Reducer::operation_deadline() const {
  const platform::Duration timeout = membership_.group->timeout();
  if (timeout == platform::Duration::max()) return platform::Deadline::never();
  return platform::Deadline::in(2 * timeout + std::chrono::seconds(1));
}

}  // namespace lockstep::inline LOCKSTEP_NS
