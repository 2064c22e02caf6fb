// A signal that asks this process to end (Ctrl-C): what waits for other processes looks here in
// between, so that they and their files are removed in order.
//
// Threads: catch_stop_signals() once, before others begin; stop_signal() from any.
#pragma once

namespace lockstep::properties {

void catch_stop_signals();
int stop_signal();  // its number; 0 if there was none

}  // namespace lockstep::properties
