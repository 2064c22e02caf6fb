// `lockstep doctor`: what this machine can run, and for what it cannot run yet, what to do.
#pragma once

namespace lockstep::properties {

// Prints a line for each lane, for planted bugs, and for the subject torch. Returns 0 if the lanes
// sim and gloo can run, and 2 (inconclusive) otherwise.
int run_doctor();

}  // namespace lockstep::properties
