// Line: a TCP connection between two of our processes. Every call has a deadline, and a peer that
// closes, resets or says nothing is an error in one sentence.
//
// Threads: one caller for each direction. Failure: kTimeout at the deadline, kPeerLost when the
// other end is gone, kTransport for what the system refuses.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "reducer/base/status.h"

namespace lockstep::properties::hosts {

using Clock = std::chrono::steady_clock;

// Where a server listens: "tcp://HOST:PORT".
struct Address {
  std::string host;
  std::uint16_t port = 0;
  std::string to_string() const;
};
// Reads "tcp://HOST:PORT", also with an IPv6 address in brackets.
Result<Address> read_address(const std::string& text);

class Line {
 public:
  explicit Line(int fd = -1) : fd_(fd) {}
  ~Line();
  Line(Line&& other) noexcept : fd_(other.release()) {}
  Line& operator=(Line&& other) noexcept;

  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }  // the caller closes it
  std::string peer() const;                         // its address as text

  Status write(std::string_view bytes, Clock::time_point deadline) const;
  // Fills `bytes` from the line.
  Status read(char* bytes, std::size_t count, Clock::time_point deadline) const;
  // Puts the next `count` bytes into `text`, which takes no more memory than twice what has
  // arrived: the other end may announce more than it sends.
  Status read_text(std::string& text, std::uint64_t count, Clock::time_point deadline) const;

 private:
  int fd_;
};

// Whether the name of a host resolves; the error names it.
Status check_host(const std::string& name);

// Tries again while nobody listens there yet, until the deadline.
Result<Line> connect_to(const Address& address, Clock::time_point deadline);

// Listens on all that `host` resolves to first; port 0: the system chooses. `address.port` becomes
// the port.
Result<Line> listen_on(Address& address);

}  // namespace lockstep::properties::hosts
