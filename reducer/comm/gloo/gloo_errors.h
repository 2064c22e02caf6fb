// The meaning of the texts of Gloo's exceptions: Gloo has one type for every failure of the
// transport, and only the texts differ.
#pragma once

#include <string>
#include <string_view>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Returns kPeerLost for a connection that the peer closed, reset or refused, kTimeout for a wait
// that timed out, and kTransport for everything else.
Code code_of_gloo_error(std::string_view text);

// Returns the text without the position in Gloo's source that it begins with, and with corrected
// ports: Gloo prints their bytes in network order.
std::string readable_gloo_error(std::string_view text);

// The Status when the system refuses to start a thread for `what`.
Status no_thread(const std::string& what, const std::string& why);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
