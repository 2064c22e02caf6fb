// OutputLimit: a process that carries what another one prints, and bounds it. The first part of
// each standard stream goes on as it comes; of the rest only the last part is kept, and comes at
// the end, after a line that says how much was left out. So a subject that prints without end fills
// no disk.
//
// Threads: one caller, in a process without other threads (it forks). Failure: start() returns the
// system's error; where the output is not wanted any more, it is dropped.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "reducer/base/status.h"

namespace lockstep::properties {

constexpr std::uint64_t kFirstOutput = 1 << 20;  // bytes of a stream that go on at once
constexpr std::uint64_t kLastOutput = 1 << 16;   // bytes of the rest that are kept

class OutputLimit {
 public:
  OutputLimit() = default;
  ~OutputLimit() { finish(); }
  OutputLimit(const OutputLimit&) = delete;
  OutputLimit& operator=(const OutputLimit&) = delete;

  Status start();  // finishes what was started before
  // In a process that was forked after start(): what it and its children print goes the limited
  // way.
  void take_over();
  // In the process that has forked it, before it forks others, which would hold the way open.
  void let_go();
  // Returns when all has been printed, once the processes that printed have ended; what one prints
  // that has not ended is lost after a second.
  void finish();

 private:
  pid_t pid_ = -1;
  std::array<int, 2> to_reader_{-1, -1};  // for standard output, and for errors
};

}  // namespace lockstep::properties
