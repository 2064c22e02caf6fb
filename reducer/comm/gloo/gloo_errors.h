// What the texts of Gloo's exceptions mean: Gloo has one type for every failure of the transport
// and tells them apart in words only.
#pragma once

#include <string>
#include <string_view>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// kPeerLost for a connection that the peer closed, reset or refused, kTimeout for a wait that
// ended, kTransport for all else.
Code code_of_gloo_error(std::string_view text);

// The text without the place in Gloo's source that it begins with, and with the ports of addresses
// as the system counts them: Gloo writes their bytes in the order of the network.
std::string readable_gloo_error(std::string_view text);

// The system refused a thread for `what`.
Status no_thread(const std::string& what, const std::string& why);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
