#include "properties/report/join_flight_records.h"

#include <fmt/format.h>

#include <algorithm>

#include "reducer/diagnosis/diagnosis.h"

namespace lockstep::properties {

namespace {

// Returns a heading that names the group, if there are several. Ranks are numbered anew in each.
std::string heading(const Observation& observation, std::uint32_t generation, std::uint32_t group,
                    std::uint32_t groups) {
  if (generation == 0 && groups == 1) return "";
  const auto& recoveries = observation.recoveries;
  std::vector<std::uint32_t> members;
  for (std::uint32_t rank = 0; rank < observation.ranks.size(); ++rank) members.push_back(rank);
  if (generation > 0 && generation <= recoveries.size())
    members = recoveries[generation - 1].survivors;
  std::erase_if(members, [&](std::uint32_t rank) { return rank % groups != group; });
  std::string out = "in the group";
  if (generation > 0) out += fmt::format(" after recovery {}", generation);
  return out + fmt::format(" of ranks {}, numbered anew:\n", fmt::join(members, " "));
}

}  // namespace

std::string join_flight_records(const Observation& observation) {
  std::uint32_t last = 0;
  std::uint32_t groups = 1;
  for (const RankObservation& rank : observation.ranks)
    for (const ObservedFlightRecord& each : rank.records) {
      last = std::max(last, each.generation);
      groups = std::max(groups, each.group + 1);
    }
  std::string out;
  for (std::uint32_t generation = 0; generation <= last; ++generation) {
    for (std::uint32_t group = 0; group < groups; ++group) {
      std::vector<FlightRecord> records = observation.flight_records_of(generation, group);
      if (records.empty()) continue;
      const Result<Diagnosis> diagnosis = diagnose(std::move(records));
      if (!diagnosis || diagnosis->clean()) continue;
      out += heading(observation, generation, group, groups) + diagnosis->to_string();
    }
  }
  return out;
}

}  // namespace lockstep::properties
