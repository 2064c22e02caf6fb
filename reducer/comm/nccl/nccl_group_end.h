// NcclGroupEnd is how far the end of a group has come. Two threads bring it about: the watchdog
// publishes the cause and completes what is in flight, and the closer ends the communicator. The
// closer waits a while for the publication, and the watchdog for the communicator, but neither for
// ever; so either may be ahead of the other.
//
// Threads: under the mutex of the group.
#pragma once

#include <cstdint>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclGroupEnd {
 public:
  // The destructor of the group has begun. The threads end when they have nothing left to do.
  void leave() { is_leaving_ = true; }
  bool is_leaving() const { return is_leaving_; }

  void note_thread_begun() { ++running_threads_; }
  void note_thread_ended() {
    LOCKSTEP_CHECK_LT(0, running_threads_);
    --running_threads_;
  }
  int running_threads() const { return running_threads_; }

  // The group is shrunk while it is healthy: the communicator is not aborted, but finalized and
  // destroyed with the group. release() takes that back, until the group is destroyed.
  void keep_communicator() {
    LOCKSTEP_CHECK(!is_communicator_ended_);
    is_kept_ = true;
  }
  void release_communicator() { is_kept_ = false; }
  bool is_communicator_kept() const { return is_kept_; }

  // The cause is in the store.
  void note_published() {
    LOCKSTEP_CHECK(work_ == Work::kOpen);
    work_ = Work::kPublished;
  }
  bool is_published() const { return work_ != Work::kOpen; }

  // The closer has aborted or revoked the communicator, or has left it alone, as it is kept.
  void note_communicator_ended() {
    LOCKSTEP_CHECK(!is_communicator_ended_);
    is_communicator_ended_ = true;
  }
  bool is_communicator_ended() const { return is_communicator_ended_; }

  // Nothing is in flight any more. If `is_stuck`, the GPU, NCCL or the driver still uses some
  // memory.
  void note_finished(bool is_stuck) {
    LOCKSTEP_CHECK(work_ == Work::kPublished);
    work_ = is_stuck ? Work::kStuck : Work::kFinished;
  }
  bool is_finished() const { return work_ == Work::kFinished || is_stuck(); }
  bool is_stuck() const { return work_ == Work::kStuck; }

 private:
  // What the watchdog has done.
  enum class Work : std::uint8_t { kOpen, kPublished, kFinished, kStuck };
  Work work_ = Work::kOpen;
  bool is_communicator_ended_ = false;
  bool is_kept_ = false;
  bool is_leaving_ = false;
  int running_threads_ = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
