#include "properties/lane/observation.h"

namespace lockstep::properties {

void Observation::clear() {
  for (RankObservation& rank : ranks) {
    std::vector<ObservedStep> steps = std::move(rank.steps);
    std::vector<std::uint64_t> bits = std::move(rank.bits);
    steps.clear();
    bits.clear();
    rank = RankObservation();
    rank.steps = std::move(steps);
    rank.bits = std::move(bits);
  }
  std::vector<RankObservation> kept = std::move(ranks);
  *this = Observation();
  ranks = std::move(kept);
}

}  // namespace lockstep::properties
