// TakenGradients: in view mode, the gradients that a pass has taken are undefined between two of
// its backwards (B7). A gradient is taken when its hook has run and does not run again in the pass,
// so it is known at the end of the pass which ones were taken. A parameter to which no gradient
// came may keep the gradient of the pass before, as no rank may have used it (G5).
//
// Threads: the one that trains, while no backward runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "properties/observe/observation.h"
#include "reducer/autograd/parameter.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class TakenGradients {
 public:
  using Hooks = std::vector<properties::ObservedHook>;

  // Gradients of several replicas are taken together, and sparse ones are no views.
  explicit TakenGradients(const reference::Program& program) {
    const auto& all = program.parameters;
    for (std::uint32_t p = 0; p < all.size(); ++p)
      if (program.options.views && !all[p].sparse &&
          std::none_of(all.begin(), all.end(), [](const auto& each) { return each.copy_of > 0; }))
        viewed_.push_back(p);
  }

  void begin() { defined_.clear(); }
  bool is_empty() const { return viewed_.empty(); }

  // A backward has ended well and left its pass open; `hooks` are those that the pass has had.
  void note(const std::vector<Ref<Parameter>>& parameters, const Hooks& hooks) {
    for (const std::uint32_t p : viewed_)
      if (parameters[p]->grad().defined() && parameters[p]->used() && had_hook(p, hooks, 0))
        defined_.push_back({p, hooks.size()});
  }

  // The pass has ended well. Returns what was wrong in it, or an empty text.
  std::string flaw(const Hooks& hooks) const {
    for (const Defined& each : defined_)
      if (!had_hook(each.parameter, hooks, each.hooks))
        return "the gradient of p" + std::to_string(each.parameter) +
               " is there between two backwards, and the pass has taken it";
    return {};
  }

 private:
  struct Defined {
    std::uint32_t parameter;
    std::size_t hooks;  // how many there had been
  };

  static bool had_hook(std::uint32_t parameter, const Hooks& hooks, std::size_t from) {
    return std::any_of(hooks.begin() + static_cast<std::ptrdiff_t>(from), hooks.end(),
                       [=](const auto& hook) { return hook.parameter == parameter; });
  }

  std::vector<std::uint32_t> viewed_;
  std::vector<Defined> defined_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
