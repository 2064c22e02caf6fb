// What the model of PyTorch's reducer keeps of each rank (hook_model.cc). Plain data; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/program.h"

namespace lockstep::properties::torch_model {

struct Gradient {
  bool defined = false;
  bool touched = false;        // in this step
  bool reduced = false;        // in this step
  bool recorded = false;       // its bits are in Expectation::bits, at `offset`
  bool in_bucket = false;      // B7
  bool in_new_bucket = false;  // with lazy buckets: in the memory that the bucket has in this pass
  bool shapeless = false;      // sparse: zeroed in place, and without rows since
  bool is_result = false;  // sparse: what the last reduction of its bucket gave, and still gives
  bool loose = false;      // lies in a bucket whose reduction goes on
  std::uint64_t offset = 0;
};

// What the reducer of one rank keeps.
struct Rank {
  // In this step.
  struct InStep {
    // All buckets of the pass were launched; the pass has ended besides; a hook of the user's ends
    // it; the next forward waits for the other ranks, as buckets are rebuilt in it.
    bool is_complete = false;
    bool is_over = false;
    bool is_in_hook = false;
    bool is_rebuilding = false;
    bool has_launched_unarmed = false;  // all buckets, in an error
    bool has_synced_forward = false;
    std::uint32_t next_forward = 0;
    std::uint32_t next_call = 0;       // of backward
    std::size_t next_event = 0;        // of that call
    std::uint32_t whole_forwards = 0;  // bits: those whose outputs share one function
  };
  // The step before whose outputs the rank holds (Backward::held), or null if it holds none, and
  // `whole_forwards` in that step.
  struct Held {
    const reference::Step* step = nullptr;
    std::uint32_t whole_forwards = 0;
  };

  bool is_armed = false;       // its hooks are expected
  bool has_marked = false;     // what is unused, in this pass
  bool is_unfinished = false;  // something was marked, and the pass is not complete
  InStep in_step;
  // By parameter; `sent` is what was used when the pass became complete, and `takes` what counts as
  // used at its end (usage_map.h).
  std::vector<std::uint8_t> unused, ready, used, sent, takes;
  bool has_sums = false;             // `used` is what all ranks have sent
  std::vector<std::uint32_t> order;  // of hooks, for the rebuild
  // Static mode: how many synced forwards there were; the hooks of the first pass, and those that
  // are still to come in this one, by parameter.
  std::uint32_t forwards = 0;
  // With first_static_pass_is_any: how many passes had a hook, whether this one has had one, and
  // whether a backward has ended the first pass.
  std::uint32_t hooked_passes = 0;
  bool has_hook = false;
  bool has_ended_first = false;
  std::vector<std::uint32_t> hooks, left;
  Held held;

  void begin_step() { in_step = {}; }
  // A synced forward arms the hooks.
  void begin_pass() {
    in_step.is_complete = in_step.is_over = in_step.is_in_hook = has_marked = false;
    ready.assign(unused.size(), 0);
    left = hooks;
  }
};

// Returns whether all of these parameters are ready.
inline bool are_ready(const Rank& rank, const std::vector<std::uint32_t>& parameters) {
  return std::all_of(parameters.begin(), parameters.end(),
                     [&rank](std::uint32_t parameter) { return rank.ready[parameter] != 0; });
}

// Returns those of these parameters that are not ready.
inline std::vector<std::uint32_t> not_ready(const Rank& rank,
                                            const std::vector<std::uint32_t>& parameters) {
  std::vector<std::uint32_t> out;
  for (const std::uint32_t parameter : parameters)
    if (!rank.ready[parameter]) out.push_back(parameter);
  return out;
}

}  // namespace lockstep::properties::torch_model
