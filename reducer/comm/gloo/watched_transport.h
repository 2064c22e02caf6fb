// A thin layer between Gloo's collectives and Gloo's transport that makes every wait of a
// collective interruptible and says whom it waits for.
//
// Why: Gloo's own time limit counts per wait, not per operation; its bcube ignores the limit;
// closing a connection does not wake who waits for it; and a time-out inside Gloo closes all
// connections before peers could be told why. So the collectives run on a gloo::Context of ours
// (WorkerContext) that hands out WatchedBuffers. These forward to the real buffers, and a WaitBoard
// knows all of them: interrupt() ends every wait on it, now and from then on, with an Interrupted
// exception.
//
// Threads: a buffer belongs to one worker; WaitBoard may be called from any thread.
// Ownership: the loop, the board and the Waiter outlive the buffers.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <memory>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/gloo/device.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Thrown out of a wait that was interrupted. It stays within this folder.
struct Interrupted {};

// How far the operations of a group have come. Any thread notes a step, the watchdog looks at when
// the latest was.
class Progress {
 public:
  void note() {
    steps_.fetch_add(1, std::memory_order_relaxed);
    latest_.store(platform::now().count(), std::memory_order_relaxed);
  }
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  platform::Duration latest() const {
    return platform::Duration(latest_.load(std::memory_order_relaxed));
  }

 private:
  platform::Atomic<std::uint64_t> steps_{0};
  platform::Atomic<platform::Duration::rep> latest_{0};
};

// The one wait at a time of one worker: written by it, read by the watchdog.
struct Waiter {
  enum class Phase : std::uint8_t { kAgreement, kPayload };
  Progress* progress = nullptr;       // of the group; each wait that ends is a step
  platform::Atomic<int> peer{kNone};  // whom the latest wait depends on
  platform::Atomic<Phase> phase{Phase::kAgreement};
};

class WatchedBuffer;

class WaitBoard {
 public:
  WaitBoard() : mutex_("gloo.wait_board") {}
  WaitBoard(const WaitBoard&) = delete;
  WaitBoard& operator=(const WaitBoard&) = delete;

  void interrupt();
  bool is_interrupted() const { return is_interrupted_.load(std::memory_order_acquire); }

 private:
  friend class WatchedBuffer;
  void add(WatchedBuffer& buffer);
  void remove(WatchedBuffer& buffer);

  platform::Mutex mutex_;
  WatchedBuffer* first_ = nullptr;  // guarded by mutex_
  platform::Atomic<bool> is_interrupted_{false};
};

class WatchedBuffer final : public ::gloo::transport::UnboundBuffer {
 public:
  WatchedBuffer(std::unique_ptr<::gloo::transport::UnboundBuffer> inner, const EventLoop& loop,
                WaitBoard& board, Waiter* waiter);
  ~WatchedBuffer() override;

  // For buffers that outlive an operation: who waits next.
  void set_waiter(Waiter* waiter) { waiter_ = waiter; }

  // The time limits given here are ignored: the watchdog of the group keeps the deadline, which is
  // one of progress. A wait that Gloo ends by time cannot be taken up again, as Gloo closes all
  // connections then; so Gloo is given no limit here, and interrupt() ends the wait.
  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override;
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override;
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override;
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset,
            std::size_t bytes) override;

 private:
  friend class WaitBoard;

  // Peers of the transfers in flight, in the order they were begun.
  class Peers {
   public:
    void add(int rank) { ranks_.push_back(rank); }
    void remove(int rank);
    int oldest() const { return ranks_.empty() ? kNone : ranks_.front(); }

   private:
    std::vector<int> ranks_;
  };

  void note_step() const {
    if (waiter_ != nullptr && waiter_->progress != nullptr) waiter_->progress->note();
  }
  void throw_if_interrupted() const;

  std::unique_ptr<::gloo::transport::UnboundBuffer> inner_;
  const EventLoop& loop_;
  WaitBoard& board_;
  Waiter* waiter_;
  Peers senders_;
  Peers receivers_;
  WatchedBuffer* previous_ = nullptr;  // links of the board's list, guarded by its mutex
  WatchedBuffer* next_ = nullptr;
};

// The context that a worker hands to Gloo's collectives. Connections are those of `transport`,
// which all workers of a mesh share.
std::shared_ptr<::gloo::Context> make_worker_context(
    std::shared_ptr<::gloo::transport::Context> transport,
    std::shared_ptr<::gloo::transport::Device> device, const EventLoop& loop, WaitBoard& board,
    Waiter& waiter);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
