// Handles Ctrl-C and a closed terminal: the first signal asks the running command to end in order.
// A second one ends the process at once. A signal from a process that runs cases is no interruption
// but a crash of that process (process/child.h).
#pragma once

namespace lockstep::properties {

void watch_for_interrupt();  // SIGINT, SIGTERM, and SIGHUP unless it is ignored
bool interrupted();

}  // namespace lockstep::properties
