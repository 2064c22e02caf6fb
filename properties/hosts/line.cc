#include "properties/hosts/line.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

namespace lockstep::properties::hosts {
namespace {

using std::chrono::milliseconds;

constexpr auto kPauseBetweenTries = milliseconds(20);
constexpr std::size_t kFirstPart = std::size_t{64} << 10;  // of a text
constexpr int kWaiting = 128;          // connections that nobody has accepted yet
constexpr int kLostAfterMs = 30'000;   // a peer that acknowledges nothing
constexpr int kKeepAliveSeconds = 10;  // how often an idle line is tried

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

int milliseconds_left(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
}

// Waits until the socket is ready for `event`; false at the deadline.
bool wait_for(int fd, short event, Clock::time_point deadline) {
  while (true) {
    pollfd entry{fd, event, 0};
    const int wait = milliseconds_left(deadline);
    if (::poll(&entry, 1, wait) > 0) return true;
    if (wait == 0) return false;
  }
}

Status timed_out(const std::string& what) {
  return {Code::kTimeout, what + " before the deadline"};
}

Status refused(const std::string& what, int error) {
  const bool is_lost = error == ECONNRESET || error == EPIPE || error == ECONNABORTED;
  return {is_lost ? Code::kPeerLost : Code::kTransport,
          fmt::format("{}: {}", what, std::strerror(error))};
}

Result<Addresses> resolve(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error == 0) return Addresses(found);
  return failed(Status(
      Code::kInvalidArgument,
      fmt::format("the host name '{}' does not resolve: {}", address.host, ::gai_strerror(error))));
}

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kKeepAliveSeconds, sizeof kKeepAliveSeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kLostAfterMs, sizeof kLostAfterMs);
}

// Returns 0, or the system's error.
int connect_socket(int fd, const addrinfo& address, Clock::time_point deadline) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  return error;
}

int open_socket(const addrinfo& address) {
  return ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                  address.ai_protocol);
}

Status cannot_listen(const Address& address, int error) {
  return {Code::kInvalidArgument,
          fmt::format("cannot listen on {}: {}", address.to_string(), std::strerror(error))};
}

}  // namespace

std::string Address::to_string() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("tcp://[{}]:{}", host, port) : fmt::format("tcp://{}:{}", host, port);
}

Result<Address> read_address(const std::string& text) {
  const std::string wrong =
      fmt::format("'{}' is no address of a store: write tcp://HOST:PORT", text);
  constexpr std::string_view kScheme = "tcp://";
  const std::size_t colon = text.rfind(':');
  if (text.compare(0, kScheme.size(), kScheme) != 0 || colon < kScheme.size())
    return failed(Status(Code::kInvalidArgument, wrong));
  Address address;
  address.host = text.substr(kScheme.size(), colon - kScheme.size());
  const bool is_in_brackets =
      address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (is_in_brackets) address.host = address.host.substr(1, address.host.size() - 2);
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, address.port);
  if (address.host.empty() || read.ec != std::errc() || read.ptr != end)
    return failed(Status(Code::kInvalidArgument, wrong));
  return address;
}

Line::~Line() {
  if (fd_ >= 0) ::close(fd_);
}

Line& Line::operator=(Line&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  fd_ = other.release();
  return *this;
}

std::string Line::peer() const {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(fd_, generic, &bytes) != 0 ||
      ::getnameinfo(generic, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "a peer that is gone";
  return fmt::format("{}:{}", host, port);
}

Status Line::write(std::string_view bytes, Clock::time_point deadline) const {
  while (!bytes.empty()) {
    if (!wait_for(fd_, POLLOUT, deadline)) return timed_out("the other end did not read");
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0) return refused("the line broke", errno);
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

Status Line::read(char* bytes, std::size_t count, Clock::time_point deadline) const {
  while (count > 0) {
    if (!wait_for(fd_, POLLIN, deadline)) return timed_out("the other end said nothing more");
    const ssize_t got = ::recv(fd_, bytes, count, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return refused("the line broke", errno);
    if (got == 0) return {Code::kPeerLost, "the other end closed the line"};
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
  return {};
}

Status Line::read_text(std::string& text, std::uint64_t count, Clock::time_point deadline) const {
  text.clear();
  while (text.size() < count) {
    const std::size_t begin = text.size();
    text.resize(begin + std::min<std::uint64_t>(count - begin, std::max(begin, kFirstPart)));
    LOCKSTEP_RETURN_IF_ERROR(read(text.data() + begin, text.size() - begin, deadline));
  }
  return {};
}

Status check_host(const std::string& name) {
  const Result<Addresses> found = resolve({name, 0}, 0);
  return found ? Status() : found.error();
}

Result<Line> connect_to(const Address& address, Clock::time_point deadline) {
  const Result<Addresses> found = resolve(address, 0);
  if (!found) return failed(found.error());
  int error = 0;
  do {
    for (const addrinfo* each = found->get(); each != nullptr; each = each->ai_next) {
      Line line(open_socket(*each));
      error = line.fd() < 0 ? errno : connect_socket(line.fd(), *each, deadline);
      if (error != 0) continue;
      set_options(line.fd());
      return line;
    }
    std::this_thread::sleep_for(kPauseBetweenTries);
  } while (Clock::now() < deadline);
  return failed(
      Status(error == ETIMEDOUT ? Code::kTimeout : Code::kTransport,
             fmt::format("cannot connect to {}: {}", address.to_string(), std::strerror(error))));
}

Result<Line> listen_on(Address& address) {
  const Result<Addresses> found = resolve(address, AI_PASSIVE);
  if (!found) return failed(found.error());
  const addrinfo& first = **found;
  Line line(open_socket(first));
  if (line.fd() < 0) return failed(cannot_listen(address, errno));
  const int on = 1;
  ::setsockopt(line.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(line.fd(), first.ai_addr, first.ai_addrlen) != 0 || ::listen(line.fd(), kWaiting) != 0)
    return failed(cannot_listen(address, errno));
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  if (::getsockname(line.fd(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0)
    return failed(cannot_listen(address, errno));
  const auto port = bound.ss_family == AF_INET6
                        ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                        : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
  address.port = ntohs(port);
  return line;
}

}  // namespace lockstep::properties::hosts
