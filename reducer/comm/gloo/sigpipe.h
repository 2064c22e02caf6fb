// While a WithoutSigpipe is alive, the calling thread gets no SIGPIPE from what it writes. Gloo
// writes to sockets that a peer may have closed, and writev() has no MSG_NOSIGNAL. The disposition
// of the signal belongs to the process, and programs that it starts inherit it. So the library does
// not change it, and blocks the signal in its own threads and around what Gloo writes in a caller's
// thread.
//
// A thread that is started meanwhile inherits the block for its whole life.
// Threads: it belongs to the thread that made it.
#pragma once

#include <signal.h>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class WithoutSigpipe {
 public:
  WithoutSigpipe();
  ~WithoutSigpipe();  // Removes a SIGPIPE that arrived meanwhile, but no earlier one.
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t before_;  // The signals that the thread had blocked.
  bool was_pending_ = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
