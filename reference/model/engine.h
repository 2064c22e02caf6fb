// The engine: which hooks a backward call runs, in which order, and what arrives at them (clause E;
// program.h has the rules). Tensors do not occur here: a graph carries scalars, and a use sends its
// scalar times a constant. Pure functions; any thread; nothing fails.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reference/program.h"

namespace lockstep::reference {

// The gradient tensor that one use of a parameter sends: `scalar` times the constant of the node.
struct UseGradient {
  const Node* use = nullptr;
  double scalar = 0;
};

// One run of a parameter's hook, once all uses that its backward call reaches were visited.
struct AutogradHook {
  std::uint32_t parameter = 0;     // the first owner of the tensor
  bool is_nested = false;          // the backward call is that of a checkpoint's body
  std::vector<UseGradient> terms;  // in the order of their addition; none: no gradient arrives

  bool is_defined() const { return !terms.empty(); }
  bool requires_grad() const;  // P16
};
using Calls = std::vector<std::vector<AutogradHook>>;  // by backward call of a rank
constexpr std::uint32_t kNotTrained = ~std::uint32_t{0};
using Owners = std::vector<std::uint32_t>;   // the first owner of each parameter, or kNotTrained
using Outputs = std::vector<std::uint32_t>;  // numbers among the kept ones of a pass, ascending

inline bool contains(const std::vector<std::uint32_t>& numbers, std::uint32_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

const RankPass& pass_of(const Step& step, std::uint32_t rank);
std::uint32_t call_count(const RankPass& pass);  // of backward
// What the pass says of this backward call; a pass without a list has one usual call.
const Backward& backward_of(const RankPass& pass, std::uint32_t call);
// The outputs that the call starts from; none if it starts from those of the step before.
Outputs roots_of(const RankPass& pass, std::uint32_t call);
std::uint32_t kept_outputs(const RankPass& pass);  // 0: no backward is called at all

// By kept output: whether the rank has let go of it before it makes backward call `call` (or, with
// the number of all calls, by the end), as Backward::drops says.
std::vector<bool> dropped_outputs(const RankPass& pass, std::uint32_t call);

// Which outputs a rank's next step may start a backward from (Backward::held): those that the rank
// holds, and whose graphs no backward has used up, either of the forwards under no_sync or of the
// synced ones (Backward::held_synced).
Outputs held_outputs(PassKind kind, const RankPass& pass, bool is_synced = false);

// The held outputs of `before` that the call starts from: what the rank has trained in the step
// before, of this kind. If it holds none, the call is left out.
Outputs held_roots(PassKind kind, const RankPass& before, const Backward& call);

// Whether a call of the pass zeroes the gradients. The step does not zero them at its beginning
// then.
bool zeroes_late(const RankPass& pass);

// Whether the call starts from an output of a synced forward (P1), in a synced step.
bool is_synced_call(const RankPass& pass, std::uint32_t call);
// The first such call of a pass that keeps an output (normalize() sees to it that there is one).
std::uint32_t first_synced_call(const RankPass& pass);

// The hooks of backward call `call`, those of nested calls included, in the order in which they
// run. The uses are those of `pass`, which has to outlive the result. A call with Backward::held
// has none there: run_held_backward() gives them (`kind` and `before` as for held_roots()).
std::vector<AutogradHook> run_backward(const Owners& owners, const RankPass& pass,
                                       std::uint32_t call);
std::vector<AutogradHook> run_held_backward(const Owners& owners, PassKind kind,
                                            const RankPass& before, const Backward& call);

// What the unused search of dynamic mode sees in call `call`, the first one of the pass (P6). It
// goes through all outputs of the synced forwards that the call starts at, but not into
// checkpoints.
struct UnusedSearch {
  // By parameter: whether the search does not reach it, but the call does, through outputs of local
  // forwards.
  std::vector<bool> reached_beside;
  // By parameter: whether the search leaves it to another forward of the pass, whose outputs are
  // still alive.
  std::vector<bool> seen_elsewhere;
};
UnusedSearch search_unused(const Owners& owners, const RankPass& pass, std::uint32_t call);

// Whether an output of the pass that lives after backward call `call`, and that no call has used
// up, leads to one of `parameters`, or to a checkpoint, as nobody sees what its body uses (P5).
bool live_output_reaches(const Owners& owners, const RankPass& pass, std::uint32_t call,
                  const std::vector<std::uint32_t>& parameters);

}  // namespace lockstep::reference
