// What one library does with a case, for a bisection over libraries:
//
//   a file     a case of lockstep, replayed on the nccl lane by the program `lockstep`; the result
//              is its exit code
//   "abort", "all_reduce/float32/16 KiB", "killed"
//              a row of a report, measured beside the first library; the result is whether the
//              bits, the time or what is told differ
//
// Threads: one caller, in a process without other threads. Failure: a case that is not known, or
// that cannot be judged.
#pragma once

#include <string>

#include "properties/compare/bisect.h"
#include "properties/compare/side_by_side.h"

namespace lockstep::properties {

struct BisectCase {
  std::string name;      // a file, or a row
  std::string lockstep;  // the program
  SideBySideSetup setup;
  double limit = 0.02;
};

// Bisects over setup.libraries.
Result<Bisection> bisect_case(const BisectCase& bisect);

// A few lines: what each library did, and the first one that differs.
std::string to_text(const BisectCase& bisect, const Bisection& found);

}  // namespace lockstep::properties
