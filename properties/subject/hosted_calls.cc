#include "properties/subject/hosted_calls.h"

#include <cstring>
#include <limits>
#include <optional>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using properties::ObservedCollective;

std::optional<DType> dtype_from_c(std::uint32_t dtype) {
  switch (dtype) {
    case LOCKSTEP_FLOAT32:
      return DType::kFloat32;
    case LOCKSTEP_FLOAT64:
      return DType::kFloat64;
    case LOCKSTEP_FLOAT16:
      return DType::kFloat16;
    case LOCKSTEP_BFLOAT16:
      return DType::kBFloat16;
    case LOCKSTEP_INT32:
      return DType::kInt32;
    case LOCKSTEP_BYTE:
      return DType::kByte;
    default:
      return std::nullopt;
  }
}

constexpr std::size_t kRecorded = 64;  // collectives of a flight record, besides those of a pass

std::uint64_t microseconds(platform::Duration at) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(at).count());
}

ObservedCollective observed(const TraceEntry& entry) {
  ObservedCollective out;
  const bool is_map = entry.what == TraceEntry::What::kUsageMap;
  if (entry.op == Op::kAllReduceSum && (is_map || entry.bucket != kNone))
    out.op =
        is_map ? ObservedCollective::Op::kAllReduceUsage : ObservedCollective::Op::kAllReduceBucket;
  out.bucket = entry.bucket;
  out.count = static_cast<std::uint64_t>(entry.count);
  out.dtype = entry.dtype;
  out.sequence = entry.sequence;
  out.launched_us = microseconds(entry.launched);
  out.completed_us = microseconds(entry.completed);
  return out;
}

HostedCalls& calls_of(const lockstep_host* host) {
  LOCKSTEP_CHECK(host != nullptr);
  return *static_cast<HostedCalls*>(host->context);
}

}  // namespace

HostedCalls::HostedCalls(const HostedParameters& parameters, const properties::HostedErrors& errors)
    : parameters_(parameters), errors_(errors), trace_(kRecorded + 2 * parameters.buckets.size()) {
  host_.size = sizeof host_;
  host_.context = this;
  host_.start = [](const lockstep_host* host, const lockstep_collective* collective,
                   std::uint64_t* ticket, lockstep_error* error) {
    LOCKSTEP_CHECK(collective != nullptr);
    LOCKSTEP_CHECK(ticket != nullptr);
    return calls_of(host).start(*collective, *ticket, error);
  };
  host_.wait = [](const lockstep_host* host, std::uint64_t ticket, lockstep_error* error) {
    return calls_of(host).wait(ticket, error);
  };
  host_.gradient = [](const lockstep_host* host, std::uint32_t parameter, std::uint32_t* used) {
    return calls_of(host).gradient(parameter, used);
  };
  host_.result = [](const lockstep_host* host, std::uint32_t parameter, lockstep_error* error) {
    return calls_of(host).result(parameter, error);
  };
  host_.lock = [](const lockstep_host* host) { calls_of(host).lock(); };
  host_.unlock = [](const lockstep_host* host) { calls_of(host).unlock(); };
  host_.store_set = [](const lockstep_host* host, const char* key, const void* value,
                       std::uint64_t bytes, lockstep_error* error) {
    return calls_of(host).store_set(key, {static_cast<const char*>(value), bytes}, error);
  };
  host_.store_get = [](const lockstep_host* host, const char* key, void* value,
                       std::uint64_t capacity, std::uint64_t* bytes, std::uint32_t timeout_ms,
                       lockstep_error* error) {
    return calls_of(host).store_get(key, {static_cast<char*>(value), capacity}, bytes, timeout_ms,
                                    error);
  };
  host_.abort_group = [](const lockstep_host* host, const lockstep_error* cause) {
    HostedCalls& calls = calls_of(host);
    Status status = Status(Code::kAborted, "the subject gave up");
    if (cause != nullptr && cause->code != LOCKSTEP_OK)
      status = calls.errors_.to_status(cause->code, *cause, calls.group().rank());
    calls.group().abort(status);
  };
}

void HostedCalls::enter_group(Membership membership) {
  platform::MutexLock lock(mutex_);
  for (const Slot& slot : slots_) LOCKSTEP_CHECK(!slot.is_taken);
  membership_ = std::move(membership);
  trace_.clear();
  taken_ = 0;
  pass_ = kNone;
  launched_ = 0;
}

void HostedCalls::quiesce() {
  bool is_aborted = false;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!slot.is_taken) continue;
    if (!slot.work.done() && !is_aborted) {
      group().abort(Status(Code::kAborted, "the subject left a collective unfinished"));
      is_aborted = true;
    }
    slot.work.wait(platform::Deadline::never()).ignore();  // an aborted group completes it
    release(static_cast<std::uint32_t>(i));
  }
}

void HostedCalls::set_pass(std::int64_t number) {
  platform::MutexLock lock(mutex_);
  pass_ = number;
}

std::int64_t HostedCalls::launched() const {
  platform::MutexLock lock(mutex_);
  return launched_;
}

void HostedCalls::forget_launched() {
  platform::MutexLock lock(mutex_);
  launched_ = 0;
}

std::int64_t HostedCalls::pass() const {
  platform::MutexLock lock(mutex_);
  return pass_;
}

void HostedCalls::take_trace(std::vector<ObservedCollective>& out) {
  platform::MutexLock lock(mutex_);
  for (const TraceEntry& entry : trace_.entries(taken_)) out.push_back(observed(entry));
  taken_ = trace_.next_sequence();
}

FlightRecord HostedCalls::flight_record(const ProgressSnapshot& progress) const {
  const Layout layout;  // that of no collective: the names follow here
  const std::vector<ParameterInfo> infos;
  platform::MutexLock lock(mutex_);
  FlightRecord record = record_flight({.rank = membership_.group->rank(),
                                       .size = membership_.group->size(),
                                       .reducer_id = kNone,
                                       .layout = layout,
                                       .parameters = infos},
                                      progress, trace_);
  for (RecordedCollective& each : record.collectives)
    if (each.bucket != kNone)
      for (const std::uint32_t member : parameters_.buckets[each.bucket].parameters)
        each.parameters.add(errors_.names()[member]);
  return record;
}

Status HostedCalls::check(const lockstep_collective& collective, Collective& out) {
  const auto invalid = [](std::string detail) {
    return Status(Code::kInvalidArgument, std::move(detail));
  };
  const std::optional<DType> dtype = dtype_from_c(collective.dtype);
  if (!dtype) return invalid("there is no dtype " + std::to_string(collective.dtype));
  if (collective.op != LOCKSTEP_ALL_REDUCE_SUM && collective.op != LOCKSTEP_BROADCAST)
    return invalid("there is no collective " + std::to_string(collective.op));
  out.op = collective.op == LOCKSTEP_BROADCAST ? Op::kBroadcast : Op::kAllReduceSum;
  if (out.op == Op::kAllReduceSum && !group().can_reduce(*dtype))
    return invalid(std::string(name_of(*dtype)) + " cannot be summed");
  if (collective.data == nullptr && collective.count > 0)
    return invalid("the data of a collective is NULL");
  if (out.op == Op::kBroadcast && collective.root >= static_cast<std::uint32_t>(group().size()))
    return invalid("there is no rank " + std::to_string(collective.root) + " to broadcast from");
  if (collective.bucket < LOCKSTEP_USAGE_MAP ||
      collective.bucket >= static_cast<std::int32_t>(parameters_.buckets.size()))
    return invalid("there is no bucket " + std::to_string(collective.bucket));
  out.dtype = *dtype;
  out.count = collective.count;
  out.root = static_cast<int>(collective.root);
  out.data = static_cast<std::byte*>(collective.data);
  out.bucket = collective.bucket < 0 ? kNone : collective.bucket;
  return {};
}

std::int32_t HostedCalls::start(const lockstep_collective& collective, std::uint64_t& ticket,
                                lockstep_error* error) {
  Collective ours;
  if (Status status = check(collective, ours); !status.ok())
    return tell(std::move(status), LOCKSTEP_OTHER, error);
  std::uint32_t index = 0;
  Slot* slot = nullptr;
  {
    platform::MutexLock lock(mutex_);
    if (free_slots_.empty()) {
      free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    index = free_slots_.back();
    free_slots_.pop_back();
    slot = &slots_[index];
    slot->is_taken = true;
    slot->bucket = collective.bucket;
    slot->recorded = kNone;
    ++slot->uses;
    ours.pass = pass_;
  }
  const platform::Duration launched = platform::now();
  if (Status status = group().start(ours, slot->work); !status.ok()) {
    release(index);
    return tell(std::move(status), collective.bucket, error);
  }
  record(ours, launched, *slot);
  ticket = std::uint64_t{slot->uses} << 32 | index;
  return LOCKSTEP_OK;
}

void HostedCalls::record(const Collective& collective, platform::Duration launched, Slot& slot) {
  platform::MutexLock lock(mutex_);
  if (pass_ == kNone) return;  // construction, reset, or between passes
  ++launched_;
  TraceEntry entry;
  entry.number = slot.work.sequence();
  entry.pass = pass_;
  entry.op = collective.op;
  if (slot.bucket == LOCKSTEP_USAGE_MAP) entry.what = TraceEntry::What::kUsageMap;
  if (slot.bucket >= 0) entry.layout_hash = 1;  // a subject has one layout
  entry.dtype = collective.dtype;
  entry.bucket = collective.bucket;
  entry.count = static_cast<std::int64_t>(collective.count);
  entry.launched = launched;
  slot.recorded = trace_.append(entry);
}

std::int32_t HostedCalls::wait(std::uint64_t ticket, lockstep_error* error) {
  Slot* slot = slot_of(ticket);
  if (slot == nullptr)
    return tell(Status(Code::kInvalidArgument,
                       "there is no ticket " + std::to_string(ticket) + ", or it was waited for"),
                LOCKSTEP_OTHER, error);
  // The group ends every collective itself; this is a second line of defence.
  Status status = wait_behind(slot->work, {&group()});
  if (!slot->work.done()) {
    group().abort(status);
    slot->work.wait(platform::Deadline::never()).ignore();
  }
  const std::int32_t bucket = slot->bucket;
  if (slot->recorded != kNone) {
    using State = TraceEntry::State;
    platform::MutexLock lock(mutex_);
    trace_.close(slot->recorded, status.ok() ? State::kCompleted : State::kFailed,
                 slot->work.completed_at());
  }
  release(static_cast<std::uint32_t>(ticket));
  return status.ok() ? LOCKSTEP_OK : tell(std::move(status), bucket, error);
}

HostedCalls::Slot* HostedCalls::slot_of(std::uint64_t ticket) {
  const auto index = static_cast<std::uint32_t>(ticket);
  platform::MutexLock lock(mutex_);
  if (index >= slots_.size()) return nullptr;
  Slot& slot = slots_[index];
  return slot.is_taken && slot.uses == ticket >> 32 ? &slot : nullptr;
}

void HostedCalls::release(std::uint32_t index) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK(slots_[index].is_taken);
  slots_[index].is_taken = false;
  free_slots_.push_back(index);
}

// Fills in what the host knows of a failure: the pass and the bucket. A dead group answers every
// call with the bucket of its first failure.
std::int32_t HostedCalls::tell(Status status, std::int32_t bucket, lockstep_error* error) {
  Failure& failure = status.failure();
  if (failure.pass == kNone) failure.pass = pass();
  if (failure.bucket == kNone && bucket >= 0) failure.bucket = bucket;
  const auto index = static_cast<std::size_t>(failure.bucket);
  if (failure.bucket != kNone && index < parameters_.buckets.size() && failure.parameters.empty())
    for (const std::uint32_t member : parameters_.buckets[index].parameters)
      failure.parameters.push_back(errors_.names()[member]);
  if (error != nullptr) *error = errors_.to_c(failure);
  return properties::code_to_c(failure.code);
}

const void* HostedCalls::gradient(std::uint32_t parameter, std::uint32_t* used) {
  LOCKSTEP_CHECK_LT(parameter, parameters_.distinct.size());
  const Parameter& each = *parameters_.distinct[parameter];
  if (used != nullptr) *used = each.used() ? 1 : 0;
  if (!each.grad().defined()) return nullptr;
  LOCKSTEP_CHECK(each.grad().shape().same_strides(each.shape()));  // as the engine accumulates it
  return each.grad().data();
}

void* HostedCalls::result(std::uint32_t parameter, lockstep_error* error) {
  LOCKSTEP_CHECK_LT(parameter, parameters_.distinct.size());
  Parameter& each = *parameters_.distinct[parameter];
  if (!each.grad().defined()) {
    Result<Tensor> fresh = Tensor::empty(each.device(), each.dtype(), each.shape());
    if (!fresh) {
      tell(fresh.error(), LOCKSTEP_OTHER, error);
      return nullptr;
    }
    each.set_grad(std::move(*fresh));
  }
  LOCKSTEP_CHECK(each.grad().shape().same_strides(each.shape()));
  each.mark_reduced();
  return each.grad().data();
}

void HostedCalls::lock() {
  auto held = std::make_unique<platform::MutexLock>(subject_mutex_);
  subject_lock_ = std::move(held);
}

void HostedCalls::unlock() {
  LOCKSTEP_CHECK(subject_lock_ != nullptr);  // unlock() without lock()
  const auto held = std::move(subject_lock_);
}

std::int32_t HostedCalls::store_set(const char* key, std::string_view value,
                                    lockstep_error* error) {
  LOCKSTEP_CHECK(key != nullptr);
  const Result<bool> set = membership_.store->set(std::string("subject/") + key, value);
  return set ? LOCKSTEP_OK : tell(set.error(), LOCKSTEP_OTHER, error);
}

std::int32_t HostedCalls::store_get(const char* key, std::span<char> value, std::uint64_t* bytes,
                                    std::uint32_t timeout_ms, lockstep_error* error) {
  LOCKSTEP_CHECK(key != nullptr);
  const Result<std::string> got = membership_.store->get(
      std::string("subject/") + key, platform::Deadline::in(std::chrono::milliseconds(timeout_ms)));
  if (!got) return tell(got.error(), LOCKSTEP_OTHER, error);
  if (bytes != nullptr) *bytes = got->size();
  if (got->size() > value.size())
    return tell(Status(Code::kInvalidArgument,
                       std::string("the value of ") + key + " has " + std::to_string(got->size()) +
                           " bytes, and there is room for " + std::to_string(value.size())),
                LOCKSTEP_OTHER, error);
  if (!got->empty()) std::memcpy(value.data(), got->data(), got->size());
  return LOCKSTEP_OK;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
