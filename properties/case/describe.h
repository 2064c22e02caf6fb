// describe: describes a case in about ten lines of English, for people who write reducers. The
// description of a small case is complete except for values and keys. In a large case each step
// becomes a summary, and the description never has more than kMaxDescriptionLines lines.
//
// Graphs are expressions: `p0(p1)` is a use of parameter p0 whose input is a use of p1, so that
// backward reaches p0 first. `const` is a node without inputs, and `a.1` is the second output of
// the split a. Threads: any.
#pragma once

#include <cstddef>
#include <string>

#include "properties/case/case.h"

namespace lockstep::properties {

constexpr std::size_t kMaxDescriptionLines = 25;

// Each line ends with a newline.
std::string describe(const Case& value);

// Returns one fault as a sentence without its full stop, such as "rank 1's process exits at its 2nd
// collective of step 3".
std::string describe(const faults::Fault& fault);

}  // namespace lockstep::properties
