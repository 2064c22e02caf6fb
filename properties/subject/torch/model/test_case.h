// A program with the options of PyTorch, and what its model expects of it, for the tests of this
// folder.
#pragma once

#include <utility>
#include <vector>

#include "properties/subject/torch/model/hook_model.h"
#include "reference/test_programs.h"

namespace lockstep::properties::torch_model {

class Case : public reference::testing::Case {
 public:
  using Base = reference::testing::Case;
  using Base::Base;
  Case(Base base) : Base(std::move(base)) {}  // NOLINT: the two are written down in one way

  Case& step(std::vector<reference::RankPass> variants,
             reference::PassKind kind = reference::PassKind::kSynced,
             reference::ZeroGrad zero_grad = reference::ZeroGrad::kKeep) {
    Base::step(std::move(variants), kind, zero_grad);
    return *this;
  }

  bool is_modelled(std::size_t step) const { return knowledge.at(step).is_modelled; }

  TorchOptions torch;
  std::vector<StepKnowledge> knowledge;  // by step
};

// Runs the model with these policies.
inline Case by(Case t, const Policies& policies = {}) {
  normalize(t.program);
  Expected expected = run(t.program, t.torch, policies);
  t.knowledge = std::move(expected.knowledge);
  t.expectation = std::move(expected);
  return t;
}

}  // namespace lockstep::properties::torch_model
