// The first of several libraries, the oldest first, whose result differs from that of the first
// one, found by bisection. It supposes that once a result differs, it does so in every later
// library.
//
// Threads: those of `probe`. Failure: that of a probe; or the first and the last library agree.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties {

struct Probed {
  bool is_different = false;  // from the first library
  std::string what;           // one line
};

struct Bisection {
  std::size_t first = 0;  // the index of the library
  std::vector<std::pair<std::size_t, Probed>> steps;
};

// `count` is 2 or more. `probe` is called with an index from 1 on.
using ProbeLibrary = std::function<Result<Probed>(std::size_t library)>;
Result<Bisection> bisect(std::size_t count, const ProbeLibrary& probe);

}  // namespace lockstep::properties
