#include "properties/lane/message.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;

bool send_all(int fd, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

Receive receive_all(int fd, char* data, std::size_t bytes,
                    std::optional<Clock::time_point> deadline) {
  while (bytes > 0) {
    if (deadline) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - Clock::now()).count();
      if (left <= 0) return Receive::kTimeout;
      pollfd entry{fd, POLLIN, 0};
      const int ready = ::poll(&entry, 1, static_cast<int>(std::min<long>(left, 1000)));
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    }
    const ssize_t got = ::recv(fd, data, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Receive::kClosed;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return Receive::kMessage;
}

constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 30;

}  // namespace

bool send_message(int fd, const std::string& text) {
  const std::uint64_t bytes = text.size();
  return send_all(fd, reinterpret_cast<const char*>(&bytes), sizeof bytes) &&
         send_all(fd, text.data(), text.size());
}

Receive receive_message(int fd, std::string& text, std::optional<std::chrono::milliseconds> limit) {
  std::optional<Clock::time_point> deadline;
  if (limit) deadline = Clock::now() + *limit;
  std::uint64_t bytes = 0;
  const Receive header = receive_all(fd, reinterpret_cast<char*>(&bytes), sizeof bytes, deadline);
  if (header != Receive::kMessage) return header;
  if (bytes > kMaxMessageBytes) return Receive::kClosed;
  text.resize(bytes);
  return receive_all(fd, text.data(), text.size(), deadline);
}

}  // namespace lockstep::properties
