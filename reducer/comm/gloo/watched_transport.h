// A thin layer between Gloo's collectives and Gloo's transport that makes every wait of a
// collective interruptible and records which peer it waits for.
//
// Why: Gloo's own time limit counts per wait, not per operation; its bcube ignores the limit;
// closing a connection does not wake the threads that wait for it; and a timeout inside Gloo closes
// all connections before peers could be told why. So the collectives run on a gloo::Context of ours
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
#include "reducer/comm/waiter.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Thrown out of a wait that was interrupted. It never leaves this folder.
struct Interrupted {};

class WatchedBuffer;

class WaitBoard {
 public:
  WaitBoard() : mutex_("gloo.wait_board") {}
  ~WaitBoard();
  WaitBoard(const WaitBoard&) = delete;
  WaitBoard& operator=(const WaitBoard&) = delete;

  void interrupt();
  bool is_interrupted() const { return is_interrupted_.load(std::memory_order_acquire); }

 private:
  friend class WatchedBuffer;
  void add(WatchedBuffer& buffer);
  void remove(WatchedBuffer& buffer);

  platform::Mutex mutex_;
  WatchedBuffer* first_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
  platform::Atomic<bool> is_interrupted_{false};
};

class WatchedBuffer final : public ::gloo::transport::UnboundBuffer {
 public:
  WatchedBuffer(std::unique_ptr<::gloo::transport::UnboundBuffer> inner, const EventLoop& loop,
                WaitBoard& board, Waiter* waiter);
  ~WatchedBuffer() override;

  // For buffers that outlive an operation: sets the next waiter.
  void set_waiter(Waiter* waiter) { waiter_ = waiter; }

  // These ignore the time limits given here: the watchdog of the group enforces the deadline, which
  // is one of progress. A wait that Gloo ends by its time limit cannot be resumed, since Gloo then
  // closes all connections; so Gloo is given no limit here, and interrupt() ends the wait.
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

  // The peers of the transfers in flight, in the order in which they were started.
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
  WatchedBuffer* previous_ = nullptr;  // The links of the board's list, guarded by its mutex.
  WatchedBuffer* next_ = nullptr;
};

// Makes the context that a worker hands to Gloo's collectives. Its connections are those of
// `transport`, which all workers of a mesh share.
std::shared_ptr<::gloo::Context> make_worker_context(
    std::shared_ptr<::gloo::transport::Context> transport,
    std::shared_ptr<::gloo::transport::Device> device, const EventLoop& loop, WaitBoard& board,
    Waiter& waiter);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
