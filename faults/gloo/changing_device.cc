#include "faults/gloo/changing_device.h"

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

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
