// nearest: suggests the word that a person may have meant. Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::properties {

// Returns the word of `known` that is closest to `word` by edit distance, or nothing if none is
// close.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// Returns "did you mean X?", or "known are: A, B, C" if no word is close.
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

}  // namespace lockstep::properties
