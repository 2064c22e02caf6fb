// NcclEnvironment: the environment of one rank on the nccl lane, in a process of its own. Its
// tensors are on the GPU, NCCL reduces their gradients, and the net plug-in's faults are in force
// in the steps for which they are planned.
//
// Threads: as RankEnvironment says. One object per rank and case. Ownership: the GPU, the table and
// the plan outlive it.
#pragma once

#include <vector>

#include "properties/lane/nccl_groups.h"
#include "properties/lane/nccl_plan.h"
#include "properties/lane/real_environment.h"
#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclEnvironment final : public RealEnvironment {
 public:
  struct Nccl {
    Device* gpu = nullptr;
    const NcclApi* api = nullptr;
    faults::net::NetPlan* plan = nullptr;  // the plan of net_faults_of(the case), or null
  };
  NcclEnvironment(Setup setup, const Nccl& nccl);

  Device* gpu() override { return nccl_.gpu; }
  platform::Duration failure_grace() const override;
  void begin_step(std::uint32_t step) override;
  bool has_groups() const { return has_groups_; }  // some were created
  bool has_led() const { return has_led_; }  // in a group of several ranks, this rank was the first
  const NcclGroups& groups() const { return groups_; }

 private:
  Result<std::shared_ptr<ProcessGroup>> make_group(const Place& place) override;

  const Nccl nccl_;
  NcclGroups groups_;
  std::vector<properties::PlannedNetFault> net_faults_;
  bool has_groups_ = false;
  bool has_led_ = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
