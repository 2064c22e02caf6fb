// Programs of any field values whatever, for tests of what must hold for all of them.
#pragma once

#include <random>
#include <vector>

#include "reference/program.h"

namespace lockstep::reference::testing {

using Random = std::mt19937_64;

inline std::uint32_t number(Random& random, std::uint32_t end) {
  return static_cast<std::uint32_t>(random() % end);
}

// Any value at all; small ones more often.
inline std::uint32_t any(Random& random) {
  return number(random, 3) == 0 ? static_cast<std::uint32_t>(random()) : number(random, 12);
}

inline std::vector<Input> any_inputs(Random& random) {
  std::vector<Input> inputs(number(random, 12));
  for (Input& input : inputs) input = {any(random), any(random)};
  return inputs;
}

inline std::vector<Node> any_nodes(Random& random, int depth) {
  std::vector<Node> nodes(number(random, depth == 0 ? 40 : 5));
  for (Node& node : nodes) {
    node.key = any(random);
    node.kind = static_cast<Node::Kind>(number(random, 256));
    if (depth < 6 && number(random, 4) == 0) node.kind = Node::Kind::kCheckpoint;
    node.parameter = any(random);
    node.factor = static_cast<std::int32_t>(any(random));
    node.inputs = any_inputs(random);
    if (depth < 6 && number(random, 3) == 0) node.body = any_nodes(random, depth + 1);
  }
  return nodes;
}

inline RankPass any_pass(Random& random) {
  RankPass pass;
  pass.skip = number(random, 2) == 0;
  pass.absent = number(random, 2) == 0;
  pass.keep_outputs = number(random, 2) == 0;
  pass.hold_outputs = number(random, 2) == 0;
  pass.recompute = static_cast<Recompute>(number(random, 256));
  pass.forwards.resize(number(random, 6));
  for (Forward& forward : pass.forwards) {
    forward.discard = number(random, 2) == 0;
    forward.local = number(random, 2) == 0;
    forward.nodes = any_nodes(random, 0);
    forward.outputs = any_inputs(random);
    forward.constants = number(random, 6);
  }
  pass.backwards.resize(number(random, 6));
  for (Backward& backward : pass.backwards) {
    backward.roots.resize(number(random, 40));
    for (std::uint32_t& root : backward.roots) root = any(random);
    backward.forwards = number(random, 5);
    backward.evaluates = number(random, 4) == 0;
    backward.zeroes = number(random, 4) == 0;
    backward.updates = number(random, 4) == 0;
    backward.drops = number(random, 4) == 0;
    backward.held = number(random, 4) == 0;
    backward.held_synced = number(random, 2) == 0;
    backward.with_constants = number(random, 4) == 0;
  }
  return pass;
}

inline Program any_program(std::uint64_t seed) {
  Random random(seed);
  Program program;
  program.world = any(random);
  program.values = static_cast<Values>(number(random, 256));
  program.headroom = any(random);
  program.bad_number = {static_cast<BadNumber::Kind>(number(random, 256)), any(random), any(random),
                        any(random), any(random)};
  program.options.mode = static_cast<Mode>(number(random, 256));
  program.options.order = static_cast<Order>(number(random, 256));
  program.options.first_bucket_bytes = random();
  program.options.rebuild = number(random, 2) == 0;
  program.options.views = number(random, 2) == 0;
  program.options.manual_sync = number(random, 2) == 0;
  program.options.pinned = number(random, 2) * any(random);
  program.options.launch = static_cast<Launch>(number(random, 256));
  program.options.transport = static_cast<Transport>(number(random, 256));
  program.options.own_group = number(random, 2) == 0;
  program.options.hook = static_cast<Hook>(number(random, 256));
  program.options.hook_result = static_cast<HookResult>(number(random, 256));
  program.options.hook_completion = static_cast<HookCompletion>(number(random, 256));
  program.options.hook_backward = static_cast<HookBackward>(number(random, 256));
  program.options.power_sgd_rank = any(random);
  program.parameters.resize(number(random, 70));
  for (Parameter& parameter : program.parameters) {
    parameter.key = any(random);
    parameter.dtype = static_cast<DType>(number(random, 256));
    parameter.sizes.resize(number(random, 6));
    for (std::uint32_t& size : parameter.sizes) size = any(random);
    parameter.column_major = number(random, 2) == 0;
    parameter.permuted = any(random);
    parameter.frozen = number(random, 2) == 0;
    parameter.shared_with = any(random);
    parameter.device = any(random);
  }
  program.steps.resize(number(random, 5));
  for (Step& step : program.steps) {
    step.kind = static_cast<PassKind>(number(random, 256));
    step.zero_grad = static_cast<ZeroGrad>(number(random, 256));
    step.variants.resize(number(random, 10));
    for (RankPass& pass : step.variants) pass = any_pass(random);
  }
  program.options.verify = number(random, 2) == 0;
  program.options.repeated_hooks = number(random, 2) == 0;
  return program;
}

}  // namespace lockstep::reference::testing
