// A device of Gloo's that may change what is sent in the exchanges of verified collectives (F3):
// payload faults on real connections. All else goes by untouched.
//
// Threads: on_exchange is called by the workers of a group, perhaps by two at once; each context
// that the device makes has memory of its own for what it sent before.
#pragma once

#include <gloo/transport/device.h>

#include <functional>
#include <memory>

#include "faults/payload.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The frames that are about to be sent, one for each rank of the context, the own one included.
using OnExchange = std::function<void(const faults::Frames& out, faults::SentBefore& before)>;

std::shared_ptr<::gloo::transport::Device> make_changing_device(
    std::shared_ptr<::gloo::transport::Device> inner, OnExchange on_exchange);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
