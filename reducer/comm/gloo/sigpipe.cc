#include "reducer/comm/gloo/sigpipe.h"

#include <ctime>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

sigset_t only_sigpipe() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  return set;
}

bool is_pending() {
  sigset_t pending;
  ::sigemptyset(&pending);
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

WithoutSigpipe::WithoutSigpipe() {
  const sigset_t set = only_sigpipe();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  was_pending_ = ::sigismember(&before_, SIGPIPE) == 1 || is_pending();
}

WithoutSigpipe::~WithoutSigpipe() {
  if (!was_pending_ && is_pending()) {
    const sigset_t set = only_sigpipe();
    const timespec at_once{};
    ::sigtimedwait(&set, nullptr, &at_once);
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
