#include "faults/nccl_net/socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::faults::net {
namespace {

constexpr int kBacklog = 128;

tl::unexpected<Error> refused(const std::string& action, int error) {
  return error_of(kSystemError, "cannot " + action + ": " + std::strerror(error));
}

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.bytes);
}

Outcome<Socket> make(const Address& address) {
  const int family = generic(address)->sa_family;
  const int descriptor = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return refused("make a socket", errno);
  return Socket(descriptor);
}

void send_at_once(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool is_for_later(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// Errors of connections that closed before they were accepted; the next connection may succeed.
bool is_of_the_peer(int error) {
  return error == ECONNABORTED || error == EPROTO || error == EPERM || error == ENETDOWN ||
         error == EHOSTUNREACH || error == ENETUNREACH;
}

}  // namespace

bool Address::is_valid() const {
  const int family = generic(*this)->sa_family;
  return (family == AF_INET && size == sizeof(sockaddr_in)) ||
         (family == AF_INET6 && size == sizeof(sockaddr_in6));
}

std::string Address::text() const {
  char buffer[INET6_ADDRSTRLEN] = "?";
  std::uint16_t port = 0;
  if (generic(*this)->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &bytes, sizeof v4);
    ::inet_ntop(AF_INET, &v4.sin_addr, buffer, sizeof buffer);
    port = ntohs(v4.sin_port);
  } else {
    ::inet_ntop(AF_INET6, &bytes.sin6_addr, buffer, sizeof buffer);
    port = ntohs(bytes.sin6_port);
  }
  return std::string(buffer) + " port " + std::to_string(port);
}

std::string Moved::reason() const {
  if (error != 0) return std::strerror(error);
  return is_closed ? "the other end closed it" : "";
}

Outcome<Socket> Socket::listening(const Address& address) {
  Outcome<Socket> socket = make(address);
  if (!socket) return socket;
  if (::bind(socket->descriptor_, generic(address), address.size) != 0)
    return refused("bind to " + address.text(), errno);
  if (::listen(socket->descriptor_, kBacklog) != 0)
    return refused("listen on " + address.text(), errno);
  return socket;
}

Outcome<Socket> Socket::connecting(const Address& address) {
  Outcome<Socket> socket = make(address);
  if (!socket) return socket;
  send_at_once(socket->descriptor_);
  const int result = ::connect(socket->descriptor_, generic(address), address.size);
  if (result != 0 && errno != EINPROGRESS && errno != EINTR)
    return refused("connect to " + address.text(), errno);
  return socket;
}

Outcome<bool> Socket::is_connected() const {
  pollfd event{descriptor_, POLLOUT, 0};
  if (::poll(&event, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return refused("connect", error);
  return true;
}

Outcome<Address> Socket::own_address() const {
  Address address;
  address.size = sizeof address.bytes;
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address.bytes), &address.size) != 0)
    return refused("find a socket's address", errno);
  return address;
}

Outcome<Socket> Socket::take_in() const {
  const int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor < 0) {
    if (is_for_later(errno) || is_of_the_peer(errno)) return Socket();
    return refused("take in a connection", errno);
  }
  send_at_once(descriptor);
  return Socket(descriptor);
}

Moved Socket::send(std::span<iovec> parts) const {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return {static_cast<std::size_t>(sent), false, 0};
  if (is_for_later(errno)) return {};
  return {0, errno == EPIPE || errno == ECONNRESET, errno};
}

Moved Socket::receive(void* data, std::size_t size) const {
  const ssize_t received = ::recv(descriptor_, data, size, MSG_DONTWAIT);
  if (received > 0) return {static_cast<std::size_t>(received), false, 0};
  if (received == 0) return {0, true, 0};
  if (is_for_later(errno)) return {};
  return {0, errno == ECONNRESET, errno};
}

void Socket::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

}  // namespace lockstep::faults::net
