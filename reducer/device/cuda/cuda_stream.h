// CudaStream: a stream of a card, the points that were recorded in it, and the first thing that
// went wrong when work was submitted to it.
//
// Points are numbered from 1 in the order of the stream, so all before a point that is done are
// done, too. That lets the card's events (without times) be used again as soon as they are done: a
// point is a number, which nobody has to give back. Threads: all from any thread; record() by one
// at a time with what it stands behind. Ownership: the stream may be borrowed, and must then
// outlive this object. Failure: submissions return nothing; what they failed with is kept by fail()
// and comes out once, of take_failure() of a point behind it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

struct CUstream_st;
struct CUevent_st;

namespace lockstep::inline LOCKSTEP_NS {

class CudaStream {
 public:
  // The device `ordinal` is current whenever a call is made.
  CudaStream(int ordinal, CUstream_st* native, bool is_owned)
      : ordinal_(ordinal), native_(native), is_owned_(is_owned) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream();

  CUstream_st* native() const { return native_; }

  // A point behind all that was submitted so far.
  std::uint64_t record();
  // Whether the stream has passed it. Asks the card and does not wait. Of work that failed on the
  // card: the error.
  Result<bool> passed(std::uint64_t point);
  // What is submitted to this stream from now on begins when `other` has passed the point.
  void wait(CudaStream& other, std::uint64_t point);

  // Keeps the first failure of a submission; `error` is a cudaError_t, 0 is none.
  void fail(int error, const char* what);
  void fail(Status status);
  // What failed before the point was recorded, once.
  Status take_failure(std::uint64_t point);

  // Leaves the card's objects to the end of the process: it still works on them.
  void abandon() { is_abandoned_ = true; }

 private:
  struct Point {
    std::uint64_t number;
    CUevent_st* event;
  };
  int retire_passed(const platform::MutexLock& lock);
  Status failure_before(std::uint64_t point, bool take);

  const int ordinal_;
  CUstream_st* const native_;
  const bool is_owned_;
  bool is_abandoned_ = false;

  platform::Mutex mutex_{"cuda.stream"};  // guards what is below; innermost
  std::deque<Point> ahead_;               // not known to be done, in order
  std::vector<CUevent_st*> spare_;
  std::uint64_t recorded_ = 0;
  Status failure_;
  std::uint64_t failed_at_ = 0;  // the first point behind it
};

}  // namespace lockstep::inline LOCKSTEP_NS
