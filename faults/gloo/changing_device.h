// A Gloo device that can change the bytes that are sent in the exchanges of verified collectives
// (F3). It carries out payload faults on real connections. All other messages pass unchanged.
// Another device sends some messages late.
//
// Threads: the workers of a group call on_exchange, possibly two at once. Each context that the
// device creates remembers on its own what it sent before.
#pragma once

#include <gloo/transport/device.h>

#include <functional>
#include <memory>

#include "faults/payload.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Receives the frames that are about to be sent: one for each rank of the context, this rank
// included.
using OnExchange = std::function<void(const faults::Frames& out, faults::SentBefore& before)>;

std::shared_ptr<::gloo::transport::Device> make_changing_device(
    std::shared_ptr<::gloo::transport::Device> inner, OnExchange on_exchange);

// A device that sends one message of eight 2 ms late; the seed says which. A rank that sends to
// several others then reaches some of them long before the rest.
std::shared_ptr<::gloo::transport::Device> make_late_device(
    std::shared_ptr<::gloo::transport::Device> inner, std::uint64_t seed);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
