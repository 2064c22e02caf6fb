#include "reducer/comm/gloo/gloo_errors.h"

#include <arpa/inet.h>
#include <gloo/transport/tcp/address.h>
#include <netinet/in.h>

#include <cstring>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// "Socket closed" is the error of a pair whose end was noticed before. ENOTCONN and EPIPE come from
// writing to a connection that the peer has just closed.
constexpr std::string_view kPeerLostTexts[] = {
    "closed by peer",   "Connection reset",    "Broken pipe",
    "Socket closed",    "Connection refused",  "not connected",
    "No route to host", "unexpectedly closed", "Network is unreachable"};
constexpr std::string_view kTimeoutTexts[] = {"Timed out", "timed out", "timeout"};

// Whether this Gloo prints the port 1 as 256. The function tries it, because another release may
// not.
bool swaps_ports() {
  sockaddr_storage storage{};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(1);
  static_assert(sizeof address <= sizeof storage);
  std::memcpy(&storage, &address, sizeof address);
  return ::gloo::transport::tcp::Address(storage).str().ends_with(
             ":" + std::to_string(address.sin_port)) &&
         address.sin_port != 1;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Swaps the bytes of the port in each "[address]:port".
void mend_ports(std::string& text) {
  static const bool is_needed = swaps_ports();
  if (!is_needed) return;
  for (std::size_t at = text.find("]:"); at != std::string::npos; at = text.find("]:", at + 2)) {
    std::size_t end = at + 2;
    std::uint32_t port = 0;
    while (end < text.size() && is_digit(text[end]) && port <= 0xffff)
      port = 10 * port + static_cast<std::uint32_t>(text[end++] - '0');
    if (end == at + 2 || port > 0xffff) continue;
    text.replace(at + 2, end - at - 2, std::to_string(ntohs(static_cast<std::uint16_t>(port))));
  }
}

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
    // The text is "[path/file.cc:123] words"; an address in brackets has no space before its
    // closing bracket.
    const std::size_t end = text.find("] ");
    if (end != std::string_view::npos && text.find(".cc:") < end) text.remove_prefix(end + 2);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::string out(text);
  for (char& c : out)
    if (c == '\n') c = ' ';
  mend_ports(out);
  return out;
}

Status no_thread(const std::string& what, const std::string& why) {
  return Status(Code::kTransport,
                "the system refused a thread for " + what + ": " + why +
                    ". Raise the limit of threads (ulimit -u, or that of the container), or run "
                    "fewer ranks and groups in one place");
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
