#include "reducer/comm/gloo/gloo_errors.h"

namespace lockstep::inline LOCKSTEP_NS {
namespace {

// "Socket closed" is what a pair says whose end was seen before; ENOTCONN and EPIPE come from
// writing to a connection that the peer has just closed.
constexpr std::string_view kPeerLostTexts[] = {
    "closed by peer",   "Connection reset",    "Broken pipe",
    "Socket closed",    "Connection refused",  "not connected",
    "No route to host", "unexpectedly closed", "Network is unreachable"};
constexpr std::string_view kTimeoutTexts[] = {"Timed out", "timed out", "timeout"};

}  // namespace

Code code_of_gloo_error(std::string_view text) {
  for (const std::string_view part : kPeerLostTexts)
    if (text.find(part) != std::string_view::npos) return Code::kPeerLost;
  for (const std::string_view part : kTimeoutTexts)
    if (text.find(part) != std::string_view::npos) return Code::kTimeout;
  return Code::kTransport;
}

std::string readable_gloo_error(std::string_view text) {
  if (text.substr(0, 1) == "[") {
    // "[path/file.cc:123] words": an address in brackets has no space before its bracket ends.
    const std::size_t end = text.find("] ");
    if (end != std::string_view::npos && text.find(".cc:") < end) text.remove_prefix(end + 2);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::string out(text);
  for (char& c : out)
    if (c == '\n') c = ' ';
  return out;
}

}  // namespace lockstep::inline LOCKSTEP_NS
