// graph: the part of the generator that draws what one rank does in one step: forwards, graphs,
// outputs, backward calls. Internal to generate/.
//
// A strict pass is legal by construction where every parameter has to be reached once: in plain
// mode, synced. Each parameter to reach belongs to one backward call, and there either to the graph
// itself or to one checkpoint; nothing cuts it off. A loose pass does what it likes.
#pragma once

#include <cstdint>

#include "properties/generate/random.h"
#include "reference/program.h"

namespace lockstep::properties {

// Parameters as a set of bits, by index. The first 64 are all there may be.
using ParameterSet = std::uint64_t;
static_assert(reference::kMaxParameters <= 64);

// What a case draws once, and its passes then use.
struct GraphFeatures {
  bool checkpoint = false;
  bool several_forwards = false;
  bool several_backwards = false;
  bool discard = false;
  bool keep_outputs = false;
  bool unused_outputs = false;  // outputs that no backward starts from
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
  bool may_drop = false;         // outputs may be left out of the loss
  bool several_hooks = false;  // static: a parameter may be used inside and outside of checkpoints
  bool bodies_train = false;   // checkpoints may hold parameters that train
  bool discard_all = false;    // every forward is dropped
  bool extra_discard = false;  // one more forward, dropped, beside the kept ones
  ParameterSet reach =
      0;  // parameters to use (one bit per tensor: the first index of a shared one)
  ParameterSet frozen = 0;  // further ones, which may be used anywhere
};

// For a shared tensor any of its names may be drawn: `names[i]` are the indices that mean tensor i.
struct Names {
  std::uint8_t count[reference::kMaxParameters] = {};
  std::uint8_t of[reference::kMaxParameters][4] = {};
};

// One call that starts from all the roots of the pass's calls. Of a strict pass it fires the same
// hooks as they do together.
void join_calls(reference::RankPass& pass);

reference::RankPass draw_pass(Random& random, const GraphFeatures& features, const Names& names,
                              const PassConstraints& constraints);

// What becomes of the outputs of each pass, beside its backward calls.
void draw_outputs(Random random, const Capabilities& can, reference::Program& program);

}  // namespace lockstep::properties
