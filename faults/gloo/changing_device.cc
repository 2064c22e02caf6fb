#include "faults/gloo/changing_device.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "reducer/comm/gloo/forwarding_transport.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

std::shared_ptr<::gloo::transport::Device> make_changing_device(
    std::shared_ptr<::gloo::transport::Device> inner, OnExchange on_exchange) {
  // An exchange allocates a buffer for all its frames, and sends them from it one after another.
  const auto before_send = [on_exchange = std::move(on_exchange),
                            before = faults::SentBefore()](const ForwardedSend& send) mutable {
    if (send.part_of == ForwardedSend::kAllToAll && send.is_first)
      on_exchange({send.buffer, send.bytes}, before);
  };
  return std::make_shared<ForwardingDevice>(std::move(inner), before_send);
}

std::shared_ptr<::gloo::transport::Device> make_late_device(
    std::shared_ptr<::gloo::transport::Device> inner, std::uint64_t seed) {
  const auto sent = std::make_shared<std::atomic<std::uint64_t>>(seed);
  const auto before_send = [sent](const ForwardedSend&) {
    constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
    const std::uint64_t hash = (sent->fetch_add(1) + 1) * kGolden;
    if (hash >> 61U == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  return std::make_shared<ForwardingDevice>(std::move(inner), before_send);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
