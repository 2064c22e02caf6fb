// The lanes gloo and nccl of one build of the reducer. A program has those that it links: the
// object library lockstep_real_lanes, or the one with planted bugs, lockstep_seeded_real_lanes,
// which adds itself before main(). A program for quick work has neither, and only
// lockstep-seeded has the one with planted bugs.
#pragma once

#include <memory>
#include <string>

#include "properties/lane/lane.h"
#include "properties/lane/process_ranks.h"

namespace lockstep::properties {

struct RealLanes {
  using RunRank = void (*)(const Subject&, const RankJob&, RankObservation&, faults::Fired&);
  std::unique_ptr<Lane> (*make_gloo_lane)(const Subject&);
  RunRank run_rank;
  RunRank run_nccl_rank;
  Status (*probe_nccl)(std::string& found, bool& lacks_device);
};

bool add_real_lanes(const RealLanes& lanes, bool is_seeded);  // true, for an initializer

}  // namespace lockstep::properties
