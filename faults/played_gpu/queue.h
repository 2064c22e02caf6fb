// Queue is a stream of the played GPU: a thread that runs what was submitted, in its order. Marker
// is its event: a point in a stream that others wait for.
//
// A queue starts its thread with its first work. NCCL uses streams of the caller, too: whatever a
// cudaStream_t points to here is a NativeStream, a Queue or another device's.
//
// Threads: any. Ownership: a Queue lives until what was submitted to it has run, also when it was
// given up before; a Marker lives as long as somebody waits for it. Failure: none.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "reducer/device/native_stream.h"

namespace lockstep::played {

class Queue final : public NativeStream {
 public:
  static Queue* make();
  // The caller uses the queue no more.
  void give_up();

  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

 private:
  Queue();
  void push(std::function<void()> body);
  static void run(const std::shared_ptr<Queue>& self);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool is_running_ = false;  // its thread
  bool is_given_up_ = false;
  std::shared_ptr<Queue> self_;  // until it is given up
};

// Submits work to a stream of whichever device.
void submit(NativeStream& stream, std::function<void()> body);

// Calls mean the last record() before them, whichever streams earlier and later ones were for. A
// marker that was never recorded has passed.
class Marker {
 public:
  // The marker stands for what was submitted to the stream up to now.
  void record(NativeStream& stream);
  bool has_passed() const;
  // The stream waits.
  void hold(NativeStream& stream) const;
  // The caller does.
  void wait() const;

 private:
  struct Point {  // of one record()
    std::mutex mutex;
    std::condition_variable changed;
    bool has_passed = false;
  };
  static void wait_for(Point* point);
  std::shared_ptr<Point> last() const;

  mutable std::mutex mutex_;
  std::shared_ptr<Point> last_;
};

// Waits until all that was submitted to the stream has run.
void drain(NativeStream& stream);

}  // namespace lockstep::played
