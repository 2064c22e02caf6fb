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
  auto kept_deviations = std::move(deviations);
  kept_deviations.clear();
  *this = Observation();
  ranks = std::move(kept);
  deviations = std::move(kept_deviations);
}

}  // namespace lockstep::properties
