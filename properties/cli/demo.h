// `lockstep demo`: what Lockstep does, shown on a reducer with a bug that people had.
#pragma once

namespace lockstep::properties {

// Runs this program on a planted bug, then on the case that was found, and on the reducer without
// the bug, and prints what is seen. All files lie in a temporary folder, which is removed. Returns
// 0 if every step ended as it should, 130 after Ctrl-C, and 1 otherwise.
int run_demo();

}  // namespace lockstep::properties
