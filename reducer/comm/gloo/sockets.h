// The sockets and the event loop behind Gloo's TCP connections, whose descriptors Gloo keeps to
// itself. They are found among those of the process (/proc/self/fd) by what the system tells of
// each; where there is no /proc nothing is found, and nothing happens.
//
// Why: Gloo does not ask for close-on-exec. A program that this process starts would keep its
// connections open when this process is gone, and the peers would not notice. Between the call that
// makes a descriptor and these functions a fork and exec of another thread still takes it along.
// And Gloo does not tell how far a long message has come; the system does.
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
  // Takes in the sockets of the pairs, which have an address now, and lets no program that this
  // process starts have them. Pairs that are not TCP's are passed over.
  void find(const std::vector<::gloo::transport::Pair*>& pairs);

  std::size_t count() const { return sockets_.size(); }

  // The bytes that the peers have acknowledged and those that came from them; 0 where the system
  // does not count.
  std::uint64_t bytes_moved() const;

 private:
  struct Socket {
    int descriptor = -1;
    std::uint64_t cookie = 0;  // a descriptor's number may become another socket's
  };
  std::vector<Socket> sockets_;
};

// Does the same for the event loop that `event` was registered with.
void close_loop_on_exec(int event);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
