// For tests of the judge: an observation that is right, of which a test corrupts one part.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "properties/oracle/judge.h"
#include "properties/oracle/test_observed.h"

namespace lockstep::properties {

// Two ranks, one parameter, one synced step. A correct observation comes from the simulator, and
// each test corrupts one part of it.
class JudgeTest : public ObservedCaseTest {
 protected:
  JudgeTest() : ObservedCaseTest(1) {}
  void SetUp() override {
    reference::Parameter parameter;
    parameter.sizes = {3};
    case_.program.parameters = {parameter};
    reference::Forward forward;
    forward.nodes.resize(1);
    forward.outputs.resize(1);
    reference::RankPass pass;
    pass.forwards = {forward};
    reference::Step step;
    step.variants = {pass};
    case_.program.steps = {step};
    observe();
  }

  // The same with parameters of these sizes, used one after the other, in two steps, with options.
  void use(const std::vector<std::uint32_t>& sizes,
           const std::function<void(reference::Replicated&)>& set) {
    reference::Program& program = case_.program;
    set(program.options);
    program.parameters.clear();
    std::vector<std::uint32_t> all;
    for (std::uint32_t p = 0; p < sizes.size(); ++p) {
      all.push_back(p);
      program.parameters.push_back({.sizes = {sizes[p]}});
    }
    program.steps[0].variants[0] = pass_of(all);
    program.steps.push_back(program.steps[0]);
    observe();
  }

  void observe() {
    ObservedCaseTest::observe();
    // The flight records do not contain what a test corrupts; diagnosis_test.cc tests them.
    for (RankObservation& rank : observation_.ranks) rank.records.clear();
  }

  Verdict verdict() const { return judge(case_, expectation_, observation_); }
  void expect(Failing failing, const std::string& oracle) const {
    EXPECT_EQ(verdict().failing, failing) << verdict().message;
    EXPECT_EQ(verdict().oracle, oracle);
  }
  ObservedStep& step(std::size_t rank, std::size_t index) {
    return observation_.ranks[rank].steps[index];
  }
  ObservedStep& step(std::size_t rank) {
    return step(rank, observation_.ranks[rank].steps.size() - 1);
  }
  void fail(std::size_t rank, Code code) {
    Failure failure;
    failure.code = code;
    failure.rank = failure.reported_by = static_cast<int>(rank);
    failure.pass = 0;
    failure.definite = code == Code::kMismatch;
    failure.detail = failure.definite ? "rank 0 entered one collective; rank 1 entered another one"
                                      : "what the test makes up";
    step(rank).status = failure;
    step(rank).poisoned = true;
    step(rank).gradients.clear();
  }
};

}  // namespace lockstep::properties
