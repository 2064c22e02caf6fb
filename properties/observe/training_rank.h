// TrainingRank: the rank of which the training loop (training.cc), what it records (step_record.h)
// and the checks beside it (training_checks.h) speak. Plain data; threads: the one that trains,
// unless it says otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "properties/observe/environment.h"
#include "properties/observe/observation.h"
#include "properties/observe/training_subject.h"
#include "reference/program.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct TrainingRank {
  const reference::Program& program;
  RankEnvironment& environment;
  properties::RankObservation& observation;
  Engine engine;
  std::vector<Ref<Parameter>> parameters = {};  // by the program's numbers
  TrainingSubject* subject = nullptr;           // of the training loop, which makes it
  std::uint32_t generation = 0;                 // of the rank's group

  // The first answer that is wrong stays.
  void note_wrong(std::string answer) {
    if (observation.wrong_answer.empty()) observation.wrong_answer = std::move(answer);
  }
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
