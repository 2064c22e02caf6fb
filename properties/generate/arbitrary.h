// arbitrary: cases for RapidCheck. A seed is drawn, whatever the size, and generate() makes the
// case; shrinking goes through the structural shrinker. For tests: the program does not link
// RapidCheck.
#pragma once

#include <rapidcheck.h>

#include <iosfwd>

#include "properties/generate/generate.h"

namespace lockstep::properties {

rc::Gen<Case> cases(const GenerateOptions& options = {});

// What RapidCheck prints of a counterexample: the description, then the JSON that `lockstep replay`
// reads.
void showValue(const Case& value, std::ostream& out);

}  // namespace lockstep::properties

namespace rc {
template <>
struct Arbitrary<lockstep::properties::Case> {
  static Gen<lockstep::properties::Case> arbitrary() { return lockstep::properties::cases(); }
};
}  // namespace rc
