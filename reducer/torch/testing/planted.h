// Which planted bug of the adapter is on: that which the environment variable
// LOCKSTEP_TORCH_PLANTED names. Only the extension that is compiled with the patches of
// reducer/torch/planted/ asks.
#pragma once

#include <cstdlib>
#include <cstring>

inline bool lockstep_planted(const char* name) {
  static const char* const chosen = std::getenv("LOCKSTEP_TORCH_PLANTED");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}

// What the bug busy-without-atomic writes and reads.
inline bool lockstep_planted_flag = false;
