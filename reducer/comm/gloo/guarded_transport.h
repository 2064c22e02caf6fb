// A Gloo device over TCP to which only ranks can connect, and which survives what Gloo refuses.
//
// Gloo alone takes the first connection that reaches a port for that of its peer, and believes what
// it reads there; and where one of its checks fails, it throws on the thread of its event loop,
// which ends the process. Here
//  - each end of a connection has two secrets, which it hands out with its address through the
//    store, and nowhere else. The end that connects shows the other one's knock, and gets the
//    answer. Gloo reads from a connection only after that. Until the peer has come, the port stays
//    open, and whoever shows something else is sent away.
//  - an exception of Gloo on the event loop closes the connection that it concerns. All who use the
//    connection get the text as an error, as if the connection had broken.
//
// What it does not keep out: the secrets and all data travel unencrypted, so that whoever can read
// the store or the network can pass for a rank. A rank is trusted, because Gloo does not check all
// that it reads. A later Gloo, which listens at one port for all connections, is used as it is.
//
// Threads: as Gloo's devices. Failure: functions throw what Gloo throws.
#pragma once

#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reducer/base/build_namespace.h"

#if __has_include(<gloo/transport/tcp/listener.h>)
#define LOCKSTEP_GLOO_IS_GUARDED 0
#else
#define LOCKSTEP_GLOO_IS_GUARDED 1
#endif

namespace lockstep {
inline namespace LOCKSTEP_NS {

constexpr std::size_t kSecretBytes = 16;
constexpr int kMostGuests = 16;  // Who have come to one port, and have not shown a secret yet.

// `address` is the numeric address of an interface of this machine. Tests may throw from
// `before_transfer`, which the event loop calls before Gloo handles what a connection has.
std::shared_ptr<::gloo::transport::Device> make_guarded_device(
    const std::string& address, std::function<void()> before_transfer = {});

// The bytes by which the peer connects to this end of a connection: its address, and the secrets of
// a guarded one, the knock and the answer.
std::vector<char> invitation_of(::gloo::transport::Pair& pair);

// Connects a pair by the invitation of the other end. Returns false, and does nothing, if the bytes
// do not have the length of an invitation.
bool accept_invitation(::gloo::transport::Pair& pair, std::vector<char> invitation);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
