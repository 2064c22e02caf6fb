// describe: a case as about ten lines of English, for people who write reducers. A small case is
// told completely, but for values and keys; of a large one each step becomes a summary, and never
// more than kMaxDescriptionLines lines come out.
//
// Graphs are written as expressions: `p0(p1)` is a use of parameter p0 whose input is a use of p1,
// so that backward reaches p0 first. `const` is a node without inputs, `a.1` the second output of
// the split a. Threads: any.
#pragma once

#include <cstddef>
#include <string>

#include "properties/case/case.h"

namespace lockstep::properties {

constexpr std::size_t kMaxDescriptionLines = 25;

// Lines end with a newline.
std::string describe(const Case& value);

// One fault as a sentence without its full stop: "rank 1's process exits at its 2nd collective of
// step 3".
std::string describe(const faults::Fault& fault);

}  // namespace lockstep::properties
