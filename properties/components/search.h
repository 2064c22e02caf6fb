// search() runs the situations of a component, one after the other, until one fails or the time is
// over, and makes the situation that fails smaller. They run in child processes, so that a crash
// and a hang are verdicts as well.
//
// Threads: one caller, in a process without other threads (it forks). Failure: an error of the
// system, when no process can be started.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "properties/components/component.h"
#include "reducer/base/status.h"

namespace lockstep::components {

struct SearchOptions {
  std::uint64_t seed = 1;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();  // situations
  double seconds = std::numeric_limits<double>::infinity();
  double shrink_seconds = 20;
  std::function<bool()> is_interrupted;  // asked now and then
};

struct FailedSituation {
  properties::Verdict verdict;
  std::uint64_t index = 0;             // of the seed
  std::vector<std::uint32_t> choices;  // as small as they have become
  std::size_t first_count = 0;         // of choices, before
  std::uint64_t runs = 0;              // to make them smaller
};

struct SearchResult {
  std::uint64_t situations = 0;
  std::optional<FailedSituation> failed;
};

Result<SearchResult> search(const Component& component, const SearchOptions& options);

// Judges one situation in a process of its own. Afterwards the numbers are those that were used.
Result<properties::Verdict> judge_apart(const Component& component,
                                        std::vector<std::uint32_t>& numbers);

// Makes the situation smaller, with RapidCheck's ways to shrink a list, while it fails in the same
// way.
Status shrink(const Component& component, const SearchOptions& options, FailedSituation& failed);

}  // namespace lockstep::components
