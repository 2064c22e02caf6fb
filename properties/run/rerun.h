// Decides whether a case that failed runs again. The machine may have made it fail: a rank that
// waits for a processor misses a timeout, and that is no failure of the subject.
// Wrong bits, a crash and a race are, whatever the time.
//
// A case whose ranks waited for a quarter of their timeout runs again up to twice. Should it fail
// each time, then it counts as failing: a defect shows in all runs, and a rank that waits by chance
// in few. On a machine where ranks wait for longer than their timeout in each of the runs, or
// nearly all the time (Lane::was_starved), nobody can tell: the case is inconclusive.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "properties/oracle/verdict.h"

namespace lockstep::properties {

// The result of a run, and what the decision depends on besides.
struct RunOfCase {
  Failing failing = Failing::kNothing;
  int runs = 1;                         // with this one
  double waited_s = 0;                  // Observation::waited_s
  double least_wait_s = 0;              // that of the run in which it was least
  bool was_starved = false;             // Lane::was_starved()
  std::chrono::milliseconds timeout{};  // of a collective
};

enum class Next : std::uint8_t { kAccept, kRunAgain, kInconclusive };
Next next_after(const RunOfCase& run);

// For the message of a failure that counts although its ranks were late: a line; else nothing.
std::string note_of_wait(const RunOfCase& run);

}  // namespace lockstep::properties
