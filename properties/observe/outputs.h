// The outputs of forwards that a rank keeps, and which of them a backward starts from.
// Plain values and functions; the thread that trains.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "reducer/autograd/node.h"
#include "reducer/base/check.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The outputs that a rank keeps of its forwards, those without a graph apart from the others.
struct Outputs {
  std::vector<Edge> kept;
  std::vector<Edge> constants;
};

// Moves the last `count` elements of `from` to the end of `to`.
inline void move_last(std::vector<Edge>& from, std::size_t count, std::vector<Edge>& to) {
  LOCKSTEP_CHECK_GE(from.size(), count);
  const auto first = from.end() - static_cast<std::ptrdiff_t>(count);
  std::move(first, from.end(), std::back_inserter(to));
  from.erase(first, from.end());
}

// Lets go of outputs; the others keep their numbers.
inline void drop(const std::vector<bool>& is_dropped, std::vector<Edge>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (is_dropped[i]) outputs[i] = {};
}

// Returns the outputs that backward number `call` has as its roots.
inline std::vector<Edge> choose_roots(const reference::RankPass& pass, std::size_t call,
                                      const std::vector<Edge>& outputs) {
  if (pass.backwards.empty() || pass.backwards[call].roots.empty()) return outputs;
  if (outputs.empty()) return {};
  std::vector<bool> chosen(outputs.size(), false);
  for (const std::uint32_t root : pass.backwards[call].roots) chosen[root % outputs.size()] = true;
  std::vector<Edge> roots;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (chosen[i]) roots.push_back(outputs[i]);
  return roots;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
