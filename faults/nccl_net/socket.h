// Socket: a non-blocking TCP socket, and the outcome type of this folder.
//
// Threads: one at a time. Ownership: the object closes its descriptor when it is destroyed.
// Failure: an Error has the code for NCCL and a sentence for people.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "faults/nccl_net/net_tables.h"

namespace lockstep::faults::net {

struct Error {
  int code = kSystemError;
  std::string text;
};
template <typename T>
using Outcome = tl::expected<T, Error>;

inline tl::unexpected<Error> error_of(int code, std::string text) {
  return tl::unexpected<Error>(Error{code, std::move(text)});
}

struct Address {
  sockaddr_in6 bytes{};  // an IPv4 address uses the beginning of it
  socklen_t size = 0;

  bool is_valid() const;
  std::string text() const;
};

// The number of bytes that one call moved. `error` is an errno; `is_closed` says that the peer
// closed its end.
struct Moved {
  std::size_t bytes = 0;
  bool is_closed = false;
  int error = 0;

  bool is_broken() const { return is_closed || error != 0; }
  std::string reason() const;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
  }

  static Outcome<Socket> listening(const Address& address);
  // Begins to connect; is_connected() returns whether it is done.
  static Outcome<Socket> connecting(const Address& address);

  Outcome<bool> is_connected() const;
  Outcome<Address> own_address() const;
  // Returns a connection that waits to be accepted, or a closed socket if there is none.
  Outcome<Socket> take_in() const;

  Moved send(std::span<iovec> parts) const;
  Moved receive(void* data, std::size_t size) const;

  bool is_open() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

}  // namespace lockstep::faults::net
