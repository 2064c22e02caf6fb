// Expected: what a subject's profile expects of a case. The contract says of every step what comes
// out; the models of other reducers leave some of it open, which is said here beside it. Plain
// data; any thread; nothing here fails.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "reference/expectation.h"

namespace lockstep::properties {

// What the model of a reducer knows of a step.
struct StepKnowledge {
  // False: the model cannot tell what comes of this step and of those after it.
  bool is_modelled = true;
  // False: a part of the collectives was launched, by which ranks is not said.
  bool knows_collectives = true;
  // Some rank has begun a pass and not ended it, so that what its group is asked for next may meet
  // the collectives of that pass on a peer.
  bool leaves_pass_unfinished = false;
};

struct Expected : reference::Expectation {
  // By step. A step that is not listed is known in full, as the contract knows all of them.
  std::vector<StepKnowledge> knowledge;

  Expected() = default;
  explicit Expected(reference::Expectation known) : Expectation(std::move(known)) {}

  StepKnowledge knowledge_of(std::size_t step) const {
    return step < knowledge.size() ? knowledge[step] : StepKnowledge{};
  }
};

}  // namespace lockstep::properties
