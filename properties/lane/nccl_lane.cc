#include "properties/lane/nccl_lane.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "properties/lane/nccl_plan.h"
#include "properties/lane/nccl_setup.h"
#include "properties/lane/process_ranks.h"

namespace lockstep::properties {
namespace {

using faults::net::NetFault;
using faults::net::NetPlan;

class NcclLane final : public Lane {
 public:
  explicit NcclLane(const Subject& subject) : processes_(subject, LaneKind::kNccl) {}

  void run(const Case& c, const reference::Expectation&, Observation& observation) override {
    const std::vector<PlannedNetFault> planned = net_faults_of(c);
    if (planned.empty()) return processes_.run(c, observation);
    const Result<NcclSetup> setup = nccl_setup();
    if (setup && !setup->uses_plugin) {
      processes_.run(c, observation);
      observation.unfired.push_back(
          fmt::format("{} faults of NCCL's network never fired: it is not our plug-in "
                      "(LOCKSTEP_NCCL_NET)",
                      planned.size()));
      return;
    }
    run_with_plan(c, planned, observation);
  }

  bool was_starved() const override { return processes_.was_starved(); }

 private:
  // A plug-in before version 11 reads its plan once, when its process first uses it. The effects of
  // a fault in NCCL also end with the processes.
  void run_with_plan(const Case& c, const std::vector<PlannedNetFault>& planned,
                     Observation& observation) {
    std::vector<NetFault> faults;
    for (const PlannedNetFault& each : planned) faults.push_back(each.fault);
    remove_net_plan_of(::getpid());  // of a killed process that had the same number
    Result<NetPlan> plan = NetPlan::create(net_plan_of(::getpid()), faults);
    if (!plan) {
      observation.end = Observation::End::kNotRun;
      observation.wait_graph =
          plan.error().failure().detail + "; the nccl lane needs room in /dev/shm";
      return;
    }
    processes_.end_all();
    processes_.run(c, observation, plan->name());
    processes_.end_all();
    for (std::size_t i = 0; i < planned.size(); ++i)
      if (plan->fired(i) > 0) ++observation.fired.counts[static_cast<std::size_t>(planned[i].kind)];
    observation.unfired = plan->unfired();
  }

  ProcessRanks processes_;
};

}  // namespace

std::string net_plan_of(pid_t process) { return fmt::format("/lockstep-{}", process); }

void remove_net_plan_of(pid_t process) { NetPlan::remove(net_plan_of(process)); }

std::unique_ptr<Lane> make_nccl_lane(const Subject& subject) {
  return std::make_unique<NcclLane>(subject);
}

}  // namespace lockstep::properties
