// graph: the part of the generator that draws what one rank does in one step: forwards, graphs,
// outputs, backward calls. Internal to generate/.
//
// A strict pass must reach every parameter once (a synced pass in plain mode), and is legal by
// construction. Each parameter that it must reach belongs to one backward call, and there either to
// the graph itself or to one checkpoint; nothing cuts the parameter off. A pass that is not strict
// has no such limits.
#pragma once

#include <cstdint>

#include "properties/case/capabilities.h"
#include "properties/generate/random.h"
#include "reference/program.h"

namespace lockstep::properties {

// The graphs are drawn of so many parameters at most; draw_many_parameters() adds more (reach.h).
constexpr std::uint32_t kMostDrawn = 64;
// A set of such parameters as a bit mask, by index.
using ParameterSet = std::uint64_t;
static_assert(kMostDrawn <= 64);

// Features that a case draws once, and that its passes then use.
struct GraphFeatures {
  bool checkpoint = false;
  bool several_forwards = false;
  bool several_backwards = false;
  bool discard = false;
  bool keep_outputs = false;
  bool unused_outputs = false;  // outputs from which no backward starts
  bool stop = false;
  bool detach = false;
  bool split = false;
  bool scale = false;
  bool zero_scale = false;
  bool fan_out = false;
  bool repeat = false;  // several uses of a parameter in one graph
  bool row_major = false;
};

struct PassConstraints {
  bool strict = false;
  bool single_backward = false;  // dynamic and synced: one call completes the pass
  bool may_drop = false;         // the loss may leave outputs out
  bool several_hooks = false;    // a parameter may be used inside and outside of checkpoints
  bool in_several_calls = false;  // and in calls after the one that it belongs to
  bool bodies_train = false;      // checkpoints may contain parameters that train
  bool discard_all = false;       // every forward is dropped
  bool extra_discard = false;     // one more forward, which is dropped, beside the others
  // The parameters to use (one bit per tensor: the first index of a shared one).
  ParameterSet reach = 0;
  ParameterSet frozen = 0;  // further parameters, which may be used anywhere
};

// A shared tensor may be drawn by any of its names: `names[i]` are the indices that mean tensor i.
struct Names {
  std::uint8_t count[kMostDrawn] = {};
  std::uint8_t of[kMostDrawn][4] = {};
};

// Replaces the pass's backward calls by one call that starts from all their roots. In a strict pass
// it fires the same hooks as those calls together.
void join_calls(reference::RankPass& pass);

reference::RankPass draw_pass(Random& random, const GraphFeatures& features, const Names& names,
                              const PassConstraints& constraints);

// What becomes of the outputs of each pass, beside its backward calls.
void draw_outputs(Random random, const Capabilities& can, reference::Program& program);

// Which backward calls start from outputs without a graph, too. Call it after all that draws calls.
void draw_constant_roots(Random random, reference::Program& program);

// Calls f(node) for each node of the list, and of the bodies of checkpoints in it.
template <typename List, typename F>
void for_each_node_in(List& nodes, const F& f) {
  for (auto& node : nodes) {
    f(node);
    for_each_node_in(node.body, f);
  }
}
template <typename AnyProgram, typename F>
void for_each_node(AnyProgram& program, const F& f) {
  for (auto& step : program.steps)
    for (auto& pass : step.variants)
      for (auto& forward : pass.forwards) for_each_node_in(forward.nodes, f);
}

}  // namespace lockstep::properties
