// This file is compiled once per build of the reducer: see real_lanes.h.
#include "properties/lane/real_lanes.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

std::unique_ptr<properties::Lane> make_gloo_lane(const properties::Subject&);
void run_rank_here(const properties::Subject&, const properties::RankJob&,
                   properties::RankObservation&, faults::Fired&);
void run_nccl_rank_here(const properties::Subject&, const properties::RankJob&,
                        properties::RankObservation&, faults::Fired&);
Status probe_nccl_here(std::string& found, bool& lacks_device);

namespace {

[[maybe_unused]] const bool kIsAdded = properties::add_real_lanes(
    {make_gloo_lane, run_rank_here, run_nccl_rank_here, probe_nccl_here}, LOCKSTEP_IS_SEEDED);

}  // namespace
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
