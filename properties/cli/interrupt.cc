#include "properties/cli/interrupt.h"

#include <signal.h>

#include <atomic>

#include "properties/process/child.h"

namespace lockstep::properties {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // written by a signal handler

extern "C" void on_signal(int signal, siginfo_t* info, void*) {
  const bool has_sender = info->si_code == SI_USER || info->si_code == SI_QUEUE;
  if (has_sender && is_signal_of_child(signal, info->si_pid)) return;
  g_interrupted = true;
  ::signal(signal, SIG_DFL);  // the second signal has its usual effect
}

}  // namespace

void watch_for_interrupt() {
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  struct sigaction current {};
  const bool is_known = ::sigaction(SIGHUP, nullptr, &current) == 0;
  if (is_known && current.sa_handler == SIG_IGN) return;  // started by nohup
  ::sigaction(SIGHUP, &action, nullptr);
}

bool interrupted() { return g_interrupted; }

}  // namespace lockstep::properties
