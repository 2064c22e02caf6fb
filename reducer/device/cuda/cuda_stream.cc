#include "reducer/device/cuda/cuda_stream.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "reducer/base/check.h"
#include "reducer/device/cuda/cuda_error.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// An error here cannot be reported, and nothing depends on it.
CudaStream::~CudaStream() {
  if (is_abandoned_) return;
  LOCKSTEP_CHECK_EQ(followers_, 0);
  for (const Point& point : ahead_) cudaEventDestroy(point.event);
  for (CUevent_st* event : spare_) cudaEventDestroy(event);
  if (is_owned_) cudaStreamDestroy(native_);
}

std::uint64_t CudaStream::record() {
  platform::MutexLock order(record_mutex_);
  CUevent_st* event = spare_event();
  int error = cudaSuccess;
  if (event == nullptr) error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cudaEventRecord(event, native_);
  platform::MutexLock lock(mutex_);
  const std::uint64_t number = ++recorded_;
  if (error == cudaSuccess) {
    LOCKSTEP_CHECK(ahead_.empty() || ahead_.back().number < number);
    ahead_.push_back({number, event});
    return number;
  }
  if (event != nullptr) spare_.push_back(event);
  keep(cuda_failure(error, ordinal_, "recording an event"), number);
  return number;
}

// Returns null when there is none.
CUevent_st* CudaStream::spare_event() {
  platform::MutexLock lock(mutex_);
  retire_passed();  // An error of submitted work shows when somebody waits for the point.
  if (spare_.empty()) return nullptr;
  CUevent_st* const event = spare_.back();
  spare_.pop_back();
  return event;
}

Result<bool> CudaStream::passed(std::uint64_t point) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_LE(point, recorded_);
  const int error = retire_passed();
  if (ahead_.empty() || ahead_.front().number > point) return true;
  if (error == cudaSuccess) return false;
  return failed(cuda_failure(error, ordinal_, "work that was submitted earlier"));
}

bool CudaStream::surely_passed(std::uint64_t point) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_LE(point, recorded_);
  retire_passed();
  return point <= passed_;
}

bool CudaStream::is_idle() {
  const cudaError_t error = cudaStreamQuery(native_);
  static_cast<void>(cudaGetLastError());
  return error != cudaErrorNotReady;
}

// Returns 0, or the error of the first pending point.
int CudaStream::retire_passed() {
  while (!ahead_.empty()) {
    const Point first = ahead_.front();
    const cudaError_t error = cudaEventQuery(first.event);
    // Otherwise the runtime would remember it as an error for the next call that asks.
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    if (error == cudaErrorNotReady) return cudaSuccess;
    if (error != cudaSuccess) return error;
    (followers_ == 0 ? spare_ : resting_).push_back(first.event);
    LOCKSTEP_CHECK_LT(passed_, first.number);  // Points pass in their order.
    passed_ = first.number;
    ahead_.pop_front();
  }
  return cudaSuccess;
}

void CudaStream::wait(CudaStream& other, std::uint64_t point) {
  if (&other == this) return;
  fail(other.take_failure(point));
  fail(follow(other, point), "waiting for another stream");
}

int CudaStream::follow(CudaStream& other, std::uint64_t point) {
  if (&other == this) return cudaSuccess;
  CUevent_st* event = nullptr;
  {
    platform::MutexLock lock(other.mutex_);
    LOCKSTEP_CHECK_LE(point, other.recorded_);
    if (point <= other.passed_) return cudaSuccess;
    for (const Point& ahead : other.ahead_) {
      if (ahead.number < point) continue;
      event = ahead.event;
      break;
    }
    if (event == nullptr) return cudaErrorInvalidResourceHandle;  // Recording it was refused.
    // So that nobody records the event again before the wait has been submitted to the GPU.
    ++other.followers_;
  }
  const int error = cudaStreamWaitEvent(native_, event, 0);
  platform::MutexLock lock(other.mutex_);
  if (--other.followers_ == 0)
    while (!other.resting_.empty()) {
      other.spare_.push_back(other.resting_.back());
      other.resting_.pop_back();
    }
  return error;
}

void CudaStream::fail(int error, const char* what) {
  if (error == cudaSuccess) return;
  fail(cuda_failure(error, ordinal_, what));
}

void CudaStream::fail(Status status) {
  if (status.ok()) return;
  platform::MutexLock lock(mutex_);
  keep(std::move(status), recorded_ + 1);
}

void CudaStream::keep(Status status, std::uint64_t from) {
  if (!failures_.empty() && failures_.back().until == 0) return;
  failures_.push_back({std::move(status), from});
  if (failures_.size() > kMaxFailures) failures_.pop_front();
}

Status CudaStream::take_failure(std::uint64_t point) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_LE(point, recorded_);
  for (Failure& failure : failures_) {
    if (point < failure.from || (failure.until != 0 && point > failure.until)) continue;
    if (failure.until == 0) failure.until = recorded_;
    return failure.status;
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
