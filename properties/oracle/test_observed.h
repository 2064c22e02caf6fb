// ObservedCaseTest: a small case that two ranks have run in the simulator, for tests of oracles
// that change what was observed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "properties/run/case_runner.h"

namespace lockstep::properties {

// A pass that uses these parameters, one after the other, in one forward and one backward.
inline reference::RankPass pass_of(const std::vector<std::uint32_t>& parameters) {
  reference::Forward forward;
  for (const std::uint32_t parameter : parameters) {
    reference::Node node;
    node.parameter = parameter;
    node.inputs.resize(1);
    forward.nodes.push_back(node);
  }
  forward.outputs.resize(1);
  reference::RankPass pass;
  pass.forwards = {forward};
  return pass;
}

// In the only step each rank uses every parameter.
class ObservedCaseTest : public ::testing::Test {
 protected:
  explicit ObservedCaseTest(std::uint32_t parameters) {
    reference::Program& program = case_.program;
    std::vector<std::uint32_t> all;
    for (std::uint32_t p = 0; p < parameters; ++p) {
      all.push_back(p);
      program.parameters.push_back({.sizes = {3}});
    }
    reference::Step step;
    step.variants = {pass_of(all), pass_of(all)};
    program.steps = {step};
  }

  void SetUp() override { observe(); }

  void observe() {
    reference::normalize(case_.program);
    CaseRunner runner(LaneKind::kSim, Subject{});
    const Verdict found = runner.run(case_);
    ASSERT_TRUE(found.ok()) << found.message;
    observation_ = runner.observation();
    expectation_ = Expected(reference::run(case_.program, reference::Contract::lockstep(),
                                           observation_.recoveries, observation_.ready_orders()));
  }

  Case case_;
  Observation observation_;
  Expected expectation_;
};

}  // namespace lockstep::properties
