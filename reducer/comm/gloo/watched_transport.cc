#include "reducer/comm/gloo/watched_transport.h"

#include <gloo/common/error.h>

#include <algorithm>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestWait = std::chrono::hours(24 * 365);  // Gloo adds it to a clock.

class WorkerTransport final : public ::gloo::transport::Context {
 public:
  WorkerTransport(std::shared_ptr<::gloo::transport::Context> inner, const EventLoop& loop,
                  WaitBoard& board, Waiter& waiter)
      : ::gloo::transport::Context(inner->rank, inner->size),
        inner_(std::move(inner)),
        loop_(loop),
        board_(board),
        waiter_(waiter) {
    setTimeout(kLongestWait);
  }

  std::unique_ptr<::gloo::transport::Pair>& getPair(int peer) override {
    return inner_->getPair(peer);
  }

  std::unique_ptr<::gloo::transport::Pair>& createPair(int) override {
    throw ::gloo::InvalidOperationException("a worker's context makes no connections");
  }

  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                        size_t bytes) override {
    return std::make_unique<WatchedBuffer>(inner_->createUnboundBuffer(data, bytes), loop_, board_,
                                           &waiter_);
  }

 private:
  std::shared_ptr<::gloo::transport::Context> inner_;
  const EventLoop& loop_;
  WaitBoard& board_;
  Waiter& waiter_;
};

class WorkerContext final : public ::gloo::Context {
 public:
  WorkerContext(std::shared_ptr<::gloo::transport::Context> transport,
                std::shared_ptr<::gloo::transport::Device> device, const EventLoop& loop,
                WaitBoard& board, Waiter& waiter)
      : ::gloo::Context(transport->rank, transport->size) {
    device_ = std::move(device);
    transportContext_ =
        std::make_shared<WorkerTransport>(std::move(transport), loop, board, waiter);
    setTimeout(kLongestWait);
  }
};

}  // namespace

WaitBoard::~WaitBoard() { LOCKSTEP_CHECK(first_ == nullptr); }

void WaitBoard::add(WatchedBuffer& buffer) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK(buffer.next_ == nullptr);
  LOCKSTEP_CHECK(buffer.previous_ == nullptr);
  buffer.next_ = first_;
  if (first_ != nullptr) first_->previous_ = &buffer;
  first_ = &buffer;
}

void WaitBoard::remove(WatchedBuffer& buffer) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_EQ(buffer.previous_ == nullptr, first_ == &buffer);
  if (buffer.next_ != nullptr) buffer.next_->previous_ = buffer.previous_;
  (buffer.previous_ != nullptr ? buffer.previous_->next_ : first_) = buffer.next_;
}

// After the flag is set no wait begins. A wait that began before is on the list, or will find its
// abort already requested.
void WaitBoard::interrupt() {
  is_interrupted_.store(true, std::memory_order_release);
  platform::MutexLock lock(mutex_);
  for (WatchedBuffer* buffer = first_; buffer != nullptr; buffer = buffer->next_) {
    LOCKSTEP_CHECK(buffer->next_ == nullptr || buffer->next_->previous_ == buffer);
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

void WatchedBuffer::Peers::remove(int rank) {
  if (ranks_.empty()) return;
  auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  // Gloo names the latest of several transfers that ended, so another one is removed.
  if (found == ranks_.end()) found = ranks_.begin();
  ranks_.erase(found);
}

WatchedBuffer::WatchedBuffer(std::unique_ptr<::gloo::transport::UnboundBuffer> inner,
                             const EventLoop& loop, WaitBoard& board, Waiter* waiter)
    : ::gloo::transport::UnboundBuffer(inner->ptr, inner->size),
      inner_(std::move(inner)),
      loop_(loop),
      board_(board),
      waiter_(waiter) {
  board_.add(*this);
}

WatchedBuffer::~WatchedBuffer() { board_.remove(*this); }

void WatchedBuffer::throw_if_interrupted() const {
  if (board_.is_interrupted()) throw Interrupted();
}

bool WatchedBuffer::waitRecv(int* rank, milliseconds) {
  throw_if_interrupted();
  if (waiter_ != nullptr) waiter_->peer.store(senders_.oldest(), std::memory_order_relaxed);
  int from = kNone;
  if (!inner_->waitRecv(&from, kLongestWait)) throw Interrupted();
  senders_.remove(from);
  note_step();
  if (rank != nullptr) *rank = from;
  return true;
}

bool WatchedBuffer::waitSend(int* rank, milliseconds) {
  throw_if_interrupted();
  if (waiter_ != nullptr) waiter_->peer.store(receivers_.oldest(), std::memory_order_relaxed);
  int to = kNone;
  if (!inner_->waitSend(&to, kLongestWait)) throw Interrupted();
  receivers_.remove(to);
  note_step();
  if (rank != nullptr) *rank = to;
  return true;
}

void WatchedBuffer::send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  throw_if_interrupted();
  receivers_.add(to);
  const EventLoop::Hurry hurry(loop_);
  inner_->send(to, slot, offset, bytes);
}

void WatchedBuffer::recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  throw_if_interrupted();
  senders_.add(from);
  const EventLoop::Hurry hurry(loop_);
  inner_->recv(from, slot, offset, bytes);
}

void WatchedBuffer::recv(std::vector<int> from, std::uint64_t slot, std::size_t offset,
                         std::size_t bytes) {
  throw_if_interrupted();
  const EventLoop::Hurry hurry(loop_);
  inner_->recv(std::move(from), slot, offset, bytes);
}

std::shared_ptr<::gloo::Context> make_worker_context(
    std::shared_ptr<::gloo::transport::Context> transport,
    std::shared_ptr<::gloo::transport::Device> device, const EventLoop& loop, WaitBoard& board,
    Waiter& waiter) {
  return std::make_shared<WorkerContext>(std::move(transport), std::move(device), loop, board,
                                         waiter);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
