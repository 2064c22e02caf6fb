// The message of a test that needs a GPU and has none; scripts look for the beginning of the line.
#pragma once

#include <string>

#include "reducer/base/status.h"

namespace lockstep {

// `why` is the error of opening the device.
inline std::string no_gpu(const Status& why) {
  return "skipped: no CUDA device (" + why.failure().detail + ")";
}

}  // namespace lockstep
