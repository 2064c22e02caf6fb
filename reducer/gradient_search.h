// GradientSearch finds which of the reducer's gradients the outputs of a pass lead to. Each
// gradient is known by its parameter, and has a number.
//
// Threads: one call at a time; the reducer's mutex, or the thread that trains alone, sees to that.
// Memory: what a search allocates is used again by the next one.
#pragma once

#include <cstdint>
#include <vector>

#include "reducer/autograd/engine.h"
#include "reducer/autograd/node_map.h"
#include "reducer/base/check.h"
#include "reducer/pass.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class GradientSearch {
 public:
  // Adds a gradient: of `parameter`, with the next number, from 0 on.
  void add(const Node* parameter) {
    const bool is_known = numbers_.insert(parameter, count_).second;
    LOCKSTEP_CHECK(!is_known);
    ++count_;
  }

  // Which gradients the outputs of the pass lead to now, by number.
  const std::vector<bool>& reachable_from(Pass& pass);

  // Whether an output leads to a gradient that is wanted, or to a backward inside of the graph,
  // which may lead to any.
  template <class IsWanted>
  bool leads_to(Pass& pass, const IsWanted& is_wanted) {
    bool is_found = false;
    pass.with_outputs([&](std::span<PassOutput* const> outputs) {
      each_reachable(outputs,
                     [&](std::uint32_t number) { is_found = is_found || is_wanted(number); });
      is_found = is_found || search_.met_nested_backward();
    });
    return is_found;
  }

 private:
  static constexpr std::uint32_t kNoGradient = ~std::uint32_t{0};
  template <class Call>
  void each_reachable(std::span<PassOutput* const> outputs, const Call& call) {
    roots_.assign(outputs.begin(), outputs.end());
    for (const Node* node : search_.reachable_from(roots_)) {
      const std::uint32_t number = numbers_.number_or(node, kNoGradient);
      if (number != kNoGradient) call(number);
    }
  }

  ParameterSearch search_;
  NodeMap numbers_;
  std::uint32_t count_ = 0;
  std::vector<Node*> roots_;
  std::vector<bool> reachable_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
