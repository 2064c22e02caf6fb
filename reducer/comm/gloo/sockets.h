// The sockets and the event loop behind Gloo's TCP connections, whose descriptors Gloo does not
// expose. This class finds them among those of the process (/proc/self/fd) by what the system says
// about each. Where there is no /proc it finds nothing, and does nothing.
//
// Why: Gloo does not set close-on-exec. A program that this process starts would keep its
// connections open when this process is gone, and the peers would not notice. If another thread
// forks and execs between the call that makes a descriptor and these functions, its child still
// inherits the descriptor. Also, Gloo does not report how much of a long message has arrived; the
// system does.
//
// Threads: any.
#pragma once

#include <gloo/transport/pair.h>

#include <cstdint>
#include <vector>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Sockets {
 public:
  // Adds the sockets of the pairs, which have an address by now, and sets close-on-exec on them.
  // Pairs other than TCP's are skipped.
  void find(const std::vector<::gloo::transport::Pair*>& pairs);

  std::size_t count() const { return sockets_.size(); }

  // The number of bytes that the peers have acknowledged, plus those that were received from them;
  // 0 where the system does not count.
  std::uint64_t bytes_moved() const;

 private:
  struct Socket {
    int descriptor = -1;
    // Identifies the socket, since a descriptor's number may later belong to another socket.
    std::uint64_t cookie = 0;
  };
  std::vector<Socket> sockets_;
};

// Sets close-on-exec on the event loop that `event` was registered with, and on the pipe by which
// Gloo of 2023 and newer wakes it up.
void close_loop_on_exec(int event);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
