// The gloo and nccl lanes of one build of the reducer. A program has the lanes that it links: the
// object library lockstep_real_lanes, or the one with planted bugs, lockstep_seeded_real_lanes. The
// library registers itself before main(). A program for quick work links neither, and only
// lockstep-seeded links the one with planted bugs.
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

bool add_real_lanes(const RealLanes& lanes, bool is_seeded);  // returns true, for an initializer

}  // namespace lockstep::properties
