// CudaStream: a stream of a GPU, the points that were recorded in it, and what went wrong when
// work was submitted to it.
//
// Points are numbered from 1 in the order of the stream, so all before a point that is done are
// done, too. That lets the GPU's events (without times) be used again as soon as they are done: a
// point is a number, which nobody has to give back. Threads: all from any thread; record() by one
// at a time with what it stands behind. A call that submits may wait, as may everything that does,
// while too many launches are ahead of the GPU; asking (passed(), is_idle()) never waits for one
// that does. Ownership: the stream may be borrowed, and must then outlive this object.
//
// Failure: submissions return nothing; what they failed with is kept by fail(), and take_failure()
// tells it of each point from there on. As soon as it has been told once, the points of later work
// are free of it; those that it was told of, or would have been, keep it. Of failures the last
// kMaxFailures are remembered.
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

  // The device `ordinal` is current whenever a call is made.
  CudaStream(int ordinal, CUstream_st* native, bool is_owned)
      : ordinal_(ordinal), native_(native), is_owned_(is_owned) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream();

  CUstream_st* native() const { return native_; }

  // A point behind all that was submitted so far. When the GPU refuses it that is a failure.
  std::uint64_t record();
  // Whether the stream has passed it, or it was refused. Asks the GPU and does not wait. Of work
  // that failed on the GPU: the error.
  Result<bool> passed(std::uint64_t point);
  // Whether it is certain that the stream has passed it: of a refused one when a later one is.
  bool surely_passed(std::uint64_t point);
  // Whether nothing is ahead, or what is has failed. Records nothing.
  bool is_idle();
  // What is submitted to this stream from now on begins when `other` has passed the point, and the
  // failures before that come along.
  void wait(CudaStream& other, std::uint64_t point);
  // The same for memory's sake: failures stay where they are. 0, or why there is no such order.
  [[nodiscard]] int follow(CudaStream& other, std::uint64_t point);

  // Keeps a failure of a submission, unless there is one that was not told yet; `error` is a
  // cudaError_t, 0 is none.
  void fail(int error, const char* what);
  void fail(Status status);
  // What failed before the point was recorded.
  Status take_failure(std::uint64_t point);

  // Leaves the GPU's objects to the end of the process: it still works on them.
  void abandon() { is_abandoned_ = true; }

 private:
  struct Point {
    std::uint64_t number;
    CUevent_st* event;
  };
  struct Failure {
    Status status;
    std::uint64_t from;       // the first point behind it
    std::uint64_t until = 0;  // the last one; 0 while it was not told
  };
  CUevent_st* spare_event();
  int retire_passed(const platform::MutexLock& lock);
  void keep(const platform::MutexLock& lock, Status status, std::uint64_t from);

  const int ordinal_;
  CUstream_st* const native_;
  const bool is_owned_;
  bool is_abandoned_ = false;

  // The order of points; held while the GPU is told of one. Guards nothing else.
  platform::Mutex record_mutex_{"cuda.record"};
  platform::Mutex mutex_{"cuda.stream"};  // guards what is below; innermost, nothing waits with it
  std::deque<Point> ahead_;               // not known to be done, in order
  std::vector<CUevent_st*> spare_;
  std::vector<CUevent_st*> resting_;  // done, and perhaps just being waited for
  int followers_ = 0;                 // who wait for one of our events just now
  std::uint64_t recorded_ = 0;
  std::uint64_t passed_ = 0;  // the last point that is known to be done
  std::deque<Failure> failures_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
