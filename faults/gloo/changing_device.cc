#include "faults/gloo/changing_device.h"

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <utility>

namespace lockstep::inline LOCKSTEP_NS {
namespace {

using ::gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;

constexpr std::uint64_t kAllToAll = 8;  // the highest byte of Gloo's slots for it

// An exchange makes a buffer of all its frames, and sends one after the other from it.
class ChangingBuffer final : public UnboundBuffer {
 public:
  ChangingBuffer(std::unique_ptr<UnboundBuffer> inner, const OnExchange& on_exchange,
                 faults::SentBefore& before)
      : UnboundBuffer(inner->ptr, inner->size),
        inner_(std::move(inner)),
        on_exchange_(on_exchange),
        before_(before) {}

  bool waitRecv(int* rank, milliseconds limit) override { return inner_->waitRecv(rank, limit); }
  bool waitSend(int* rank, milliseconds limit) override { return inner_->waitSend(rank, limit); }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    if (slot >> 56 == kAllToAll && !std::exchange(has_sent_, true))
      on_exchange_({{static_cast<std::byte*>(ptr), size}, bytes}, before_);
    inner_->send(to, slot, offset, bytes);
  }
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    inner_->recv(from, slot, offset, bytes);
  }
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset,
            std::size_t bytes) override {
    inner_->recv(std::move(from), slot, offset, bytes);
  }

 private:
  const std::unique_ptr<UnboundBuffer> inner_;
  const OnExchange& on_exchange_;
  faults::SentBefore& before_;
  bool has_sent_ = false;
};

class ChangingContext final : public ::gloo::transport::Context {
 public:
  ChangingContext(std::shared_ptr<::gloo::transport::Context> inner, OnExchange on_exchange)
      : ::gloo::transport::Context(inner->rank, inner->size),
        inner_(std::move(inner)),
        on_exchange_(std::move(on_exchange)) {}

  std::unique_ptr<::gloo::transport::Pair>& getPair(int peer) override {
    return inner_->getPair(peer);
  }
  std::unique_ptr<::gloo::transport::Pair>& createPair(int peer) override {
    inner_->setTimeout(getTimeout());
    return inner_->createPair(peer);
  }
  std::unique_ptr<UnboundBuffer> createUnboundBuffer(void* data, size_t bytes) override {
    return std::make_unique<ChangingBuffer>(inner_->createUnboundBuffer(data, bytes), on_exchange_,
                                            before_);
  }

 private:
  const std::shared_ptr<::gloo::transport::Context> inner_;
  const OnExchange on_exchange_;
  faults::SentBefore before_;
};

class ChangingDevice final : public ::gloo::transport::Device {
 public:
  ChangingDevice(std::shared_ptr<::gloo::transport::Device> inner, OnExchange on_exchange)
      : inner_(std::move(inner)), on_exchange_(std::move(on_exchange)) {}

  std::string str() const override { return inner_->str(); }
  const std::string& getPCIBusID() const override { return inner_->getPCIBusID(); }
  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override {
    return std::make_shared<ChangingContext>(inner_->createContext(rank, size), on_exchange_);
  }

 private:
  const std::shared_ptr<::gloo::transport::Device> inner_;
  const OnExchange on_exchange_;
};

}  // namespace

std::shared_ptr<::gloo::transport::Device> make_changing_device(
    std::shared_ptr<::gloo::transport::Device> inner, OnExchange on_exchange) {
  return std::make_shared<ChangingDevice>(std::move(inner), std::move(on_exchange));
}

}  // namespace lockstep::inline LOCKSTEP_NS
