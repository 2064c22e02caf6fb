#include "properties/cli/interrupt.h"

#include <signal.h>

#include <atomic>

namespace lockstep::properties {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // written by a signal handler

extern "C" void on_interrupt(int) { g_interrupted = true; }

}  // namespace

void watch_for_interrupt() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal has its usual effect
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  struct sigaction current {};
  const bool is_known = ::sigaction(SIGHUP, nullptr, &current) == 0;
  if (is_known && current.sa_handler == SIG_IGN) return;  // started by nohup
  ::sigaction(SIGHUP, &action, nullptr);
}

bool interrupted() { return g_interrupted; }

}  // namespace lockstep::properties
