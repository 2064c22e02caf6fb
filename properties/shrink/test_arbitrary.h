// arbitrary: cases for RapidCheck. It draws a seed, whatever the size, and generate() creates the
// case; shrinking uses the structural shrinker. It is for tests: the program does not link
// RapidCheck.
#pragma once

#include <rapidcheck.h>

#include <iosfwd>

#include "properties/generate/generate.h"

namespace lockstep::properties {

rc::Gen<Case> cases(const GenerateOptions& options = {});

// Prints a counterexample for RapidCheck: the description, then the JSON that `lockstep replay`
// reads.
void showValue(const Case& value, std::ostream& out);

}  // namespace lockstep::properties

namespace rc {
template <>
struct Arbitrary<lockstep::properties::Case> {
  static Gen<lockstep::properties::Case> arbitrary() { return lockstep::properties::cases(); }
};
}  // namespace rc
