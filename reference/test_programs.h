// Short ways to write programs down, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/test_values.h"

namespace lockstep::reference::testing {

using Kind = Node::Kind;
using Indices = std::vector<std::uint32_t>;

inline Node node(Kind kind, std::vector<Input> inputs = {}, std::int32_t factor = 0) {
  Node made;
  made.kind = kind;
  made.inputs = std::move(inputs);
  made.factor = factor;
  return made;
}

inline Node use(std::uint32_t parameter, std::uint32_t key, std::vector<Input> inputs = {}) {
  Node made = node(Kind::kUse, std::move(inputs));
  made.parameter = parameter;
  made.key = key;
  return made;
}

inline Node checkpoint(std::vector<Node> body, std::vector<Input> inputs = {}) {
  Node made = node(Kind::kCheckpoint, std::move(inputs));
  made.body = std::move(body);
  return made;
}

// A chain of uses, the last one the output; the node that uses parameter p has the key 100 + p.
inline RankPass uses(const Indices& parameters) {
  RankPass pass;
  pass.forwards.resize(1);
  for (const std::uint32_t parameter : parameters) {
    const bool is_first = pass.forwards[0].nodes.empty();
    pass.forwards[0].nodes.push_back(
        use(parameter, 100 + parameter, is_first ? std::vector<Input>{} : std::vector<Input>{{}}));
  }
  return pass;
}

inline RankPass graph(std::vector<Node> nodes, std::vector<Input> outputs = {{0, 0}}) {
  RankPass pass;
  pass.forwards.resize(1);
  pass.forwards[0].nodes = std::move(nodes);
  pass.forwards[0].outputs = std::move(outputs);
  return pass;
}

// Its output depends on no parameter.
inline RankPass nothing() { return graph({node(Kind::kSum)}); }

inline RankPass discarded(RankPass pass) {
  for (Forward& forward : pass.forwards) forward.discard = true;
  return pass;
}

inline RankPass with_backwards(RankPass pass, std::vector<Backward> backwards,
                               bool keep_outputs = false) {
  pass.backwards = std::move(backwards);
  pass.keep_outputs = keep_outputs;
  return pass;
}

// Two parameters of three elements; a step under no_sync that uses the first one, and a synced one
// that uses both.
inline Program local_then_synced() {
  Program program;
  Parameter parameter;
  parameter.sizes = {3};
  program.parameters = {parameter, parameter};
  Step local;
  local.kind = PassKind::kNoSync;
  local.variants = {uses({0})};
  Step synced;
  synced.variants = {uses({0, 1})};
  synced.zero_grad = ZeroGrad::kKeep;
  program.steps = {local, synced};
  return program;
}

// A program of `parameters` floats, run at the end.
class Case {
 public:
  Case(std::uint32_t world, Mode mode, std::uint32_t parameters) {
    program.world = world;
    program.values = Values::kGeneral;
    program.options.mode = mode;
    program.parameters.resize(parameters);
    for (std::uint32_t i = 0; i < parameters; ++i) program.parameters[i].key = i + 1;
  }

  Case& step(std::vector<RankPass> variants, PassKind kind = PassKind::kSynced,
             ZeroGrad zero_grad = ZeroGrad::kKeep) {
    Step step;
    step.key = static_cast<std::uint32_t>(program.steps.size()) + 1;
    step.kind = kind;
    step.zero_grad = zero_grad;
    step.variants = std::move(variants);
    program.steps.push_back(step);
    return *this;
  }

  Case& run(const std::vector<Recovery>& recoveries = {}) {
    normalize(program);
    expectation = reference::run(program, Contract::lockstep(), recoveries);
    return *this;
  }

  // What a use sends with the scalar 1.
  float c(std::uint32_t step, std::uint32_t rank, std::uint32_t parameter, std::uint32_t node_key,
          std::uint64_t element = 0) const {
    const std::uint64_t bits = value_of(program, program.parameters[parameter], rank,
                                        program.steps[step].key, node_key, element);
    return static_cast<float>(to_double(program.parameters[parameter].dtype, bits));
  }
  float c(std::uint32_t step, std::uint32_t rank, std::uint32_t parameter) const {
    return c(step, rank, parameter, 100 + parameter);
  }

  const ExpectedRankStep& at(std::uint32_t step, std::uint32_t rank) const {
    return expectation.steps[step].ranks[rank];
  }
  const ExpectedGradient& gradient(std::uint32_t step, std::uint32_t rank,
                                   std::uint32_t parameter) const {
    return at(step, rank).gradients[parameter];
  }
  std::uint64_t bits(std::uint32_t step, std::uint32_t rank, std::uint32_t parameter,
                     std::uint64_t element = 0) const {
    EXPECT_TRUE(gradient(step, rank, parameter).defined);
    return expectation.bits[gradient(step, rank, parameter).offset + element];
  }
  float value(std::uint32_t step, std::uint32_t rank, std::uint32_t parameter,
              std::uint64_t element = 0) const {
    return static_cast<float>(
        to_double(program.parameters[parameter].dtype, bits(step, rank, parameter, element)));
  }

  Program program;
  Expectation expectation;
};

}  // namespace lockstep::reference::testing
