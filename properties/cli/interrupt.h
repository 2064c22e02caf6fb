// Ctrl-C: asks the running command to end in order. A second one ends the process at once.
#pragma once

namespace lockstep::properties {

void watch_for_interrupt();  // SIGINT and SIGTERM
bool interrupted();

}  // namespace lockstep::properties
