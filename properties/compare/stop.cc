#include "properties/compare/stop.h"

#include <signal.h>

namespace lockstep::properties {
namespace {

volatile sig_atomic_t g_signal = 0;

void note_signal(int number) { g_signal = number; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

int stop_signal() { return g_signal; }

}  // namespace lockstep::properties
