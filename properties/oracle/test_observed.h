// ObservedCaseTest: a small case that two ranks have run in the simulator, for tests of oracles
// that change what was observed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "properties/run/case_runner.h"

namespace lockstep::properties {

// In the only step each rank uses every parameter.
class ObservedCaseTest : public ::testing::Test {
 protected:
  explicit ObservedCaseTest(std::uint32_t parameters) {
    reference::Program& program = case_.program;
    program.parameters.resize(parameters);
    reference::Forward forward;
    for (std::uint32_t p = 0; p < parameters; ++p) {
      program.parameters[p].sizes = {3};
      reference::Node node;
      node.parameter = p;
      node.inputs.resize(1);
      forward.nodes.push_back(node);
    }
    forward.outputs.resize(1);
    reference::RankPass pass;
    pass.forwards = {forward};
    reference::Step step;
    step.variants = {pass, pass};
    program.steps = {step};
  }

  void SetUp() override { observe(); }

  void observe() {
    reference::normalize(case_.program);
    CaseRunner runner(LaneKind::kSim, Subject{});
    const Verdict found = runner.run(case_);
    ASSERT_TRUE(found.ok()) << found.message;
    observation_ = runner.observation();
    expectation_ = reference::run(case_.program, reference::Contract::lockstep(),
                                  observation_.recoveries, observation_.ready_orders());
  }

  Case case_;
  Observation observation_;
  reference::Expectation expectation_;
};

}  // namespace lockstep::properties
