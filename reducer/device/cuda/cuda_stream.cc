#include "reducer/device/cuda/cuda_stream.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "reducer/base/check.h"
#include "reducer/device/cuda/cuda_error.h"

namespace lockstep::inline LOCKSTEP_NS {

// Nothing can be told of what fails here, and nothing depends on it.
CudaStream::~CudaStream() {
  if (is_abandoned_) return;
  for (const Point& point : ahead_) cudaEventDestroy(point.event);
  for (CUevent_st* event : spare_) cudaEventDestroy(event);
  if (is_owned_) cudaStreamDestroy(native_);
}

std::uint64_t CudaStream::record() {
  platform::MutexLock lock(mutex_);
  retire_passed(lock);  // an error of submitted work shows when the point is waited for
  CUevent_st* event = nullptr;
  int error = cudaSuccess;
  if (spare_.empty()) {
    error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  if (error == cudaSuccess) error = cudaEventRecord(event, native_);
  const std::uint64_t number = ++recorded_;
  if (error == cudaSuccess) {
    ahead_.push_back({number, event});
    return number;
  }
  // Without an event the point counts as passed, and shows as a failure.
  if (event != nullptr) spare_.push_back(event);
  if (failure_.ok()) {
    failure_ = cuda_failure(error, ordinal_, "recording an event");
    failed_at_ = number;
  }
  return number;
}

Result<bool> CudaStream::passed(std::uint64_t point) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_LE(point, recorded_);
  const int error = retire_passed(lock);
  if (ahead_.empty() || ahead_.front().number > point) return true;
  if (error == cudaSuccess) return false;
  return failed(cuda_failure(error, ordinal_, "work that was submitted earlier"));
}

// 0, or the error of the first point that is ahead.
int CudaStream::retire_passed(const platform::MutexLock&) {
  while (!ahead_.empty()) {
    const cudaError_t error = cudaEventQuery(ahead_.front().event);
    if (error == cudaErrorNotReady) return cudaSuccess;
    if (error != cudaSuccess) return error;
    spare_.push_back(ahead_.front().event);
    ahead_.pop_front();
  }
  return cudaSuccess;
}

void CudaStream::wait(CudaStream& other, std::uint64_t point) {
  if (&other == this) return;
  int error = cudaSuccess;
  {
    // The card remembers what the event stands for now, so it may be used again afterwards.
    platform::MutexLock lock(other.mutex_);
    for (const Point& ahead : other.ahead_) {
      if (ahead.number < point) continue;
      error = cudaStreamWaitEvent(native_, ahead.event, 0);
      break;
    }
  }
  fail(error, "waiting for another stream");
  fail(other.failure_before(point, false));
}

void CudaStream::fail(int error, const char* what) {
  if (error == cudaSuccess) return;
  // Some errors are remembered by the runtime for the next that asks; this one is told here.
  static_cast<void>(cudaGetLastError());
  fail(cuda_failure(error, ordinal_, what));
}

void CudaStream::fail(Status status) {
  if (status.ok()) return;
  platform::MutexLock lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = std::move(status);
  failed_at_ = recorded_ + 1;
}

Status CudaStream::take_failure(std::uint64_t point) { return failure_before(point, true); }

Status CudaStream::failure_before(std::uint64_t point, bool take) {
  platform::MutexLock lock(mutex_);
  if (failure_.ok() || point < failed_at_) return {};
  return take ? std::exchange(failure_, Status()) : failure_;
}

}  // namespace lockstep::inline LOCKSTEP_NS
