// Selects the build of the reducer on which a subject runs. Each build has its own copy of the
// lanes, in its own namespace. Every program has the simulator's lanes; the real ones exist where
// they are linked (real_lanes.h).
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "faults/seeded/seeded.h"
#include "properties/lane/hosts_lane.h"
#include "properties/lane/lane.h"
#include "properties/lane/nccl_lane.h"
#include "properties/lane/nccl_setup.h"
#include "properties/lane/process_ranks.h"
#include "properties/lane/real_lanes.h"
#include "properties/lane/scaling.h"
#include "properties/lane/torch_lane.h"
#include "properties/subject/subject.h"
#include "reducer/base/check.h"

#define LOCKSTEP_DECLARE_LANE(ns, make)                               \
  namespace lockstep::ns {                                            \
  std::unique_ptr<properties::Lane> make(const properties::Subject&); \
  }
LOCKSTEP_DECLARE_LANE(sim, make_sim_lane)
LOCKSTEP_DECLARE_LANE(sim_seeded, make_sim_lane)

namespace lockstep::sim {
scaling::Run measure_scaling(std::uint32_t ranks);
}

namespace lockstep::scaling {
Run measure(std::uint32_t ranks) { return sim::measure_scaling(ranks); }
}  // namespace lockstep::scaling

namespace lockstep::properties {
namespace {

bool is_seeded(const Subject& subject) { return subject.kind == Subject::Kind::kSeeded; }

// The real lanes of this program, by whether bugs are planted in their reducer.
std::array<std::optional<RealLanes>, 2>& real_lanes() {
  static std::array<std::optional<RealLanes>, 2> lanes;
  return lanes;
}

const RealLanes& real_lanes_of(const Subject& subject) {
  const std::optional<RealLanes>& lanes = real_lanes()[is_seeded(subject) ? 1 : 0];
  LOCKSTEP_CHECK(lanes.has_value());
  return *lanes;
}

}  // namespace

bool add_real_lanes(const RealLanes& lanes, bool is_seeded) {
  real_lanes()[is_seeded ? 1 : 0] = lanes;
  return true;
}

bool has_lane(LaneKind kind, const Subject& subject) {
  if (subject.against && !has_lane(kind, *subject.against)) return false;
  return kind == LaneKind::kSim || real_lanes()[is_seeded(subject) ? 1 : 0].has_value();
}

std::unique_ptr<Lane> make_lane(LaneKind kind, const Subject& subject) {
  if (subject.has_own_group()) {
    ::setenv("GLOG_minloglevel", "2", 0);  // for the ranks, which otherwise log every hook
    return kind == LaneKind::kHosts ? make_hosts_lane(subject) : make_torch_lane(subject);
  }
  if (kind == LaneKind::kSim)
    return is_seeded(subject) ? sim_seeded::make_sim_lane(subject) : sim::make_sim_lane(subject);
  if (kind == LaneKind::kNccl) return make_nccl_lane(subject);
  if (kind == LaneKind::kHosts) return make_hosts_lane(subject);
  return real_lanes_of(subject).make_gloo_lane(subject);
}

void run_rank(const Subject& subject, const RankJob& job, RankObservation& observation,
              faults::Fired& fired) {
  const RealLanes& lanes = real_lanes_of(subject);
  (job.is_nccl ? lanes.run_nccl_rank : lanes.run_rank)(subject, job, observation, fired);
}

namespace {

class OwnRanks final : public RankProgram {
 public:
  Status load(const std::string& text) override {
    Result<Subject> parsed = parse_subject(text);
    if (!parsed) return parsed.error();
    subject_ = std::move(*parsed);
    return {};
  }
  const Profile& profile() const override { return subject_.profile; }
  void run(const RankJob& job, RankObservation& observation, faults::Fired& fired) override {
    run_rank(subject_, job, observation, fired);
    observation.planted = {seeded::reached(), seeded::triggered()};  // since load()
  }

 private:
  Subject subject_;
};

}  // namespace

int serve_ranks(int fd) {
  OwnRanks program;
  return serve_ranks({fd}, program);
}

int probe_nccl() {
  std::string found;
  bool lacks_device = false;
  const Status status = real_lanes_of(Subject()).probe_nccl(found, lacks_device);
  std::printf("%s\n", status.ok() ? found.c_str() : status.failure().detail.c_str());
  if (status.ok()) return 0;
  return lacks_device ? kNoDevice : 1;
}

}  // namespace lockstep::properties
