// nearest: "did you mean" for words that a person typed. Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::properties {

// The word of `known` that is closest to `word`, by edit distance, or empty when none is close.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "did you mean X?", or "known are: A, B, C" when nothing is close.
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

}  // namespace lockstep::properties
