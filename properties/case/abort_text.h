// Compares the fields of an error with its text, where that is the text of an abort: "rank 1
// aborted the group: ", and then the cause as rank 1 has it. Both must name the same ranks (F2).
//
// Pure functions; any thread.
#pragma once

#include <cstdlib>
#include <string>

#include "reducer/base/status.h"

namespace lockstep::properties {

// Returns the number behind the last of some words in a text, or kNone.
inline int number_behind(const std::string& text, const std::string& words) {
  const std::size_t at = text.rfind(words);
  return at == std::string::npos ? kNone : std::atoi(text.c_str() + at + words.size());
}

// Returns a sentence about the first field of an error that says something else than its text, if
// that is the text of an abort; empty if there is none.
inline std::string flaw_of_abort(const Failure& failure) {
  const std::string words = " aborted the group: ";
  const std::size_t at = failure.detail.find(words);
  if (failure.code != Code::kAborted || !failure.detail.starts_with("rank ") ||
      at == std::string::npos || failure.detail.find(' ', 5) != at)
    return {};
  const int by = number_behind(failure.detail.substr(0, at), "rank ");
  // The fields of the cause come before its text.
  const std::size_t begin = at + words.size();
  const std::string fields = failure.detail.substr(begin, failure.detail.find(": ", begin) - begin);
  const int suspected = number_behind(fields, "suspected peer ");
  const auto names = [&](const char* what, int rank) {
    return std::string("an error names another ") + what + " than its text, which is rank " +
           std::to_string(rank) + ": " + failure.to_string();
  };
  if (failure.rank != by) return names("rank", by);
  const int suspect = suspected == kNone ? by : suspected;
  return failure.suspect == suspect ? "" : names("suspect", suspect);
}

}  // namespace lockstep::properties
