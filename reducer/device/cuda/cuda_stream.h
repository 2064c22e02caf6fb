// CudaStream is a stream of a GPU, the points that were recorded in it, and the failures of what
// was submitted to it.
//
// Points are numbered from 1 in the order of the stream, so when a point is complete, all points
// before it are, too. So the GPU's events (without times) can be used again as soon as they are
// complete; a point is a number, which nobody has to release.
// Threads: all calls from any thread; one thread at a time calls record() together with the
// submission before it. A call that submits may wait while too many launches are pending on the
// GPU, and so may everything that waits for that call; polling (passed(), is_idle()) never waits
// for such a call.
// Ownership: the stream may be borrowed, and must then outlive this object.
//
// Failure: submissions return nothing. fail() keeps their failure, and take_failure() reports it
// for each point after it. Once it has been reported, the points of later work do not have it; the
// points recorded before that keep it. The stream remembers the last kMaxFailures failures.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

struct CUstream_st;
struct CUevent_st;

namespace lockstep {
inline namespace LOCKSTEP_NS {

class CudaStream {
 public:
  static constexpr std::size_t kMaxFailures = 8;

  // The device `ordinal` must be current whenever a call is made.
  CudaStream(int ordinal, CUstream_st* native, bool is_owned)
      : ordinal_(ordinal), native_(native), is_owned_(is_owned) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream();

  CUstream_st* native() const { return native_; }

  // Records a point behind everything that was submitted so far. If the GPU refuses to record it,
  // that is a failure.
  std::uint64_t record();
  // Whether the stream has passed the point, or recording it was refused. The call polls the GPU
  // and does not wait. If work failed on the GPU, it returns the error.
  Result<bool> passed(std::uint64_t point);
  // Whether the stream has passed the point for certain. For a point whose recording was refused,
  // this is so when the stream has passed a later one.
  bool surely_passed(std::uint64_t point);
  // Whether nothing is pending, or the pending work has failed. It records nothing.
  bool is_idle();
  // Everything submitted to this stream from now on begins when `other` has passed the point. The
  // failures before that point pass to this stream.
  void wait(CudaStream& other, std::uint64_t point);
  // Does the same for the sake of memory only: failures stay where they are. It returns 0, or the
  // error because of which there is no such order.
  [[nodiscard]] int follow(CudaStream& other, std::uint64_t point);

  // Keeps a failure of a submission, unless the stream holds one that was not reported yet. `error`
  // is a cudaError_t, with 0 for none.
  void fail(int error, const char* what);
  void fail(Status status);
  // Returns what failed before the point was recorded.
  Status take_failure(std::uint64_t point);

  // Leaves the GPU's objects to the end of the process, because the GPU still works on them.
  void abandon() { is_abandoned_ = true; }

 private:
  struct Point {
    std::uint64_t number;
    CUevent_st* event;
  };
  struct Failure {
    Status status;
    std::uint64_t from;       // The first point behind it.
    std::uint64_t until = 0;  // The last point that has it; 0 while it was not reported.
  };
  CUevent_st* spare_event();
  int retire_passed() LOCKSTEP_REQUIRES(mutex_);
  void keep(Status status, std::uint64_t from) LOCKSTEP_REQUIRES(mutex_);

  const int ordinal_;
  CUstream_st* const native_;
  const bool is_owned_;
  bool is_abandoned_ = false;

  // Held while a point is recorded on the GPU, for the order of points. It guards nothing else.
  platform::Mutex record_mutex_{"cuda.record"};
  // It is innermost, and no thread waits while it holds it.
  platform::Mutex mutex_{"cuda.stream"};
  // Points that are not known to be complete, in order.
  std::deque<Point> ahead_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<CUevent_st*> spare_ LOCKSTEP_GUARDED_BY(mutex_);
  // Complete events that another stream may just be waiting for.
  std::vector<CUevent_st*> resting_ LOCKSTEP_GUARDED_BY(mutex_);
  // The number of threads that are waiting for one of our events just now.
  int followers_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t recorded_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  // The last point that is known to be complete.
  std::uint64_t passed_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::deque<Failure> failures_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
