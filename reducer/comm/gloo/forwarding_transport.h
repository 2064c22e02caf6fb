// A Gloo device that forwards everything to another one, and calls a function before each send. It
// is for tests and faults, which may change, shorten or delay what is sent. The library itself uses
// none.
//
// Threads: the sending thread makes the call, perhaps two threads at once.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reducer/base/check.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct ForwardedSend {
  // The highest byte of Gloo's slots says which collective the send belongs to.
  static constexpr std::uint8_t kAllReduce = 4;
  static constexpr std::uint8_t kAllToAll = 8;

  std::uint8_t part_of = 0;
  int to = 0;
  std::span<std::byte> buffer;  // All of the memory that the send is a part of.
  std::size_t offset = 0;       // Where the send begins.
  std::size_t& bytes;           // How much it sends.
  bool is_first = false;        // Whether it is the first send from this buffer.
};
using BeforeSend = std::function<void(const ForwardedSend&)>;

class ForwardingBuffer final : public ::gloo::transport::UnboundBuffer {
 public:
  ForwardingBuffer(std::unique_ptr<UnboundBuffer> inner, const BeforeSend& before_send)
      : UnboundBuffer(inner->ptr, inner->size),
        inner_(std::move(inner)),
        before_send_(before_send) {}
  bool waitRecv(int* rank, std::chrono::milliseconds limit) override {
    return inner_->waitRecv(rank, limit);
  }
  bool waitSend(int* rank, std::chrono::milliseconds limit) override {
    return inner_->waitSend(rank, limit);
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    LOCKSTEP_CHECK(bytes == 0 || offset <= size);  // A chunk behind the end of a ring is empty.
    before_send_({static_cast<std::uint8_t>(slot >> 56),
                  to,
                  {static_cast<std::byte*>(ptr), size},
                  offset,
                  bytes,
                  !std::exchange(has_sent_, true)});
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
  const BeforeSend& before_send_;
  bool has_sent_ = false;
};

class ForwardingContext final : public ::gloo::transport::Context {
 public:
  ForwardingContext(std::shared_ptr<::gloo::transport::Context> inner, BeforeSend before_send)
      : ::gloo::transport::Context(inner->rank, inner->size),
        inner_(std::move(inner)),
        before_send_(std::move(before_send)) {}
  std::unique_ptr<::gloo::transport::Pair>& getPair(int peer) override {
    return inner_->getPair(peer);
  }
  std::unique_ptr<::gloo::transport::Pair>& createPair(int peer) override {
    inner_->setTimeout(getTimeout());
    return inner_->createPair(peer);
  }
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                        size_t bytes) override {
    return std::make_unique<ForwardingBuffer>(inner_->createUnboundBuffer(data, bytes),
                                              before_send_);
  }

 private:
  const std::shared_ptr<::gloo::transport::Context> inner_;
  const BeforeSend before_send_;
};

class ForwardingDevice final : public ::gloo::transport::Device {
 public:
  // Each context that the device makes has a copy of `before_send`, with its captured state.
  ForwardingDevice(std::shared_ptr<::gloo::transport::Device> inner, BeforeSend before_send)
      : inner_(std::move(inner)), before_send_(std::move(before_send)) {}
  std::string str() const override { return inner_->str(); }
  const std::string& getPCIBusID() const override { return inner_->getPCIBusID(); }
  std::shared_ptr<::gloo::transport::Context> createContext(int rank, int size) override {
    return std::make_shared<ForwardingContext>(inner_->createContext(rank, size), before_send_);
  }

 private:
  const std::shared_ptr<::gloo::transport::Device> inner_;
  const BeforeSend before_send_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
