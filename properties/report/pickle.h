// Reads a pickle of plain data (dictionaries, lists, tuples, texts, numbers, truth values and None)
// as JSON. Nothing is ever executed: a pickle that names a function or a class, as one must that
// runs code in Python, is refused, whatever it names.
//
// Limits. The data has at most kMostPickleParts parts, and a list or dictionary is at one place
// alone, so that a small file cannot become a large one. Threads: any. Failure: one sentence.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "reducer/base/status.h"

namespace lockstep::properties {

constexpr std::size_t kMostPickleParts = 50'000'000;

// Whether the bytes begin as a pickle of protocol 2 or newer does.
bool is_pickle(std::string_view bytes);

// Tuples become lists. Keys are texts, or numbers as texts.
Result<nlohmann::json> json_of_pickle(std::string_view bytes);

}  // namespace lockstep::properties
