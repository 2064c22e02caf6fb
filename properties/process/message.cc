#include "properties/process/message.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;

constexpr std::uint64_t kMark = 0x4c6f636b73746570;  // "Lockstep"
constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 30;
constexpr std::size_t kFirstPart = std::size_t{64} << 10;

struct Header {
  std::uint64_t mark = kMark;
  std::uint64_t bytes = 0;
};

Deadline deadline_of(std::optional<std::chrono::milliseconds> limit) {
  if (!limit) return std::nullopt;
  return Clock::now() + *limit;
}

// Returns false if the deadline has passed. Without a deadline the following call blocks by itself.
bool wait_until_ready(int fd, short event, const Deadline& deadline) {
  while (deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - Clock::now()).count();
    pollfd entry{fd, event, 0};
    const auto wait = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
    if (::poll(&entry, 1, wait) > 0) return true;
    if (left <= 0) return false;
  }
  return true;
}

bool send_all(int fd, const char* data, std::size_t bytes, const Deadline& deadline) {
  const int flags = MSG_NOSIGNAL | (deadline ? MSG_DONTWAIT : 0);
  while (bytes > 0) {
    if (!wait_until_ready(fd, POLLOUT, deadline)) return false;
    const ssize_t sent = ::send(fd, data, bytes, flags);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

Receive receive_all(int fd, char* data, std::size_t bytes, const Deadline& deadline) {
  while (bytes > 0) {
    if (!wait_until_ready(fd, POLLIN, deadline)) return Receive::kTimeout;
    const ssize_t got = ::recv(fd, data, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Receive::kClosed;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return Receive::kMessage;
}

}  // namespace

bool send_message(int fd, const std::string& text, std::optional<std::chrono::milliseconds> limit) {
  const Deadline deadline = deadline_of(limit);
  const Header header{kMark, text.size()};
  return send_all(fd, reinterpret_cast<const char*>(&header), sizeof header, deadline) &&
         send_all(fd, text.data(), text.size(), deadline);
}

Receive receive_message(int fd, std::string& text, std::optional<std::chrono::milliseconds> limit) {
  const Deadline deadline = deadline_of(limit);
  Header header;
  // This reads the mark alone, because foreign bytes may be fewer than a header has.
  Receive got =
      receive_all(fd, reinterpret_cast<char*>(&header.mark), sizeof header.mark, deadline);
  if (got != Receive::kMessage) return got;
  if (header.mark != kMark) return Receive::kForeign;
  got = receive_all(fd, reinterpret_cast<char*>(&header.bytes), sizeof header.bytes, deadline);
  if (got != Receive::kMessage) return got;
  if (header.bytes > kMaxMessageBytes) return Receive::kForeign;
  // Memory is asked for as bytes come: the length alone may be anybody's.
  text.clear();
  while (text.size() < header.bytes) {
    const std::size_t begin = text.size();
    text.resize(begin + std::min<std::uint64_t>(header.bytes - begin, std::max(begin, kFirstPart)));
    got = receive_all(fd, text.data() + begin, text.size() - begin, deadline);
    if (got != Receive::kMessage) return got;
  }
  return Receive::kMessage;
}

}  // namespace lockstep::properties
