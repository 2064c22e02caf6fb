#include "properties/observe/observation.h"

#include <algorithm>

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
  const bool kept_detailed = detailed;
  auto kept_deviations = std::move(deviations);
  kept_deviations.clear();
  *this = Observation();
  ranks = std::move(kept);
  detailed = kept_detailed;
  deviations = std::move(kept_deviations);
}

std::vector<reference::ReadyOrder> Observation::ready_orders() const {
  std::vector<reference::ReadyOrder> orders;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const ObservedStep& step : ranks[rank].steps)
      if (!step.rebuilt_order.empty())
        orders.push_back({step.step, step.rebuilt_order, static_cast<std::uint32_t>(rank)});
  std::stable_sort(orders.begin(), orders.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return orders;
}

std::vector<FlightRecord> Observation::flight_records_of(std::uint32_t generation,
                                                         std::uint32_t group) const {
  std::vector<FlightRecord> records;
  for (const RankObservation& rank : ranks)
    for (const ObservedFlightRecord& each : rank.records)
      if (each.generation == generation && each.group == group) records.push_back(each.record);
  return records;
}

}  // namespace lockstep::properties
