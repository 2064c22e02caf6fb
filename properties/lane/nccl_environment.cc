#include "properties/lane/nccl_environment.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "faults/sim/nccl/nccl_profile.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Processes take turns on the GPU in slices of some milliseconds, and the initialization of a
// communicator needs many slices.
constexpr platform::Duration kConnectTimeout = std::chrono::seconds(40);

NcclEnvironment::NcclEnvironment(Setup setup, const Nccl& nccl)
    : RealEnvironment(std::move(setup)),
      nccl_(nccl),
      groups_(*nccl.api, *nccl.gpu, the_case().environment, rank()) {
  if (nccl_.plan != nullptr) net_faults_ = properties::net_faults_of(the_case());
}

// A rank reports its failure when NCCL has ended the communicator. That takes half a second, as
// NCCL's threads look every 500 ms whether they are to end, and seconds on a busy machine.
platform::Duration NcclEnvironment::failure_grace() const {
  return std::min<platform::Duration>(timeout(), std::chrono::seconds(5));
}

void NcclEnvironment::begin_step(std::uint32_t step) {
  for (std::size_t i = 0; i < net_faults_.size(); ++i) {
    if (net_faults_[i].rank != rank()) continue;
    if (properties::loses_network_errors(nccl_.api->version) &&
        properties::is_network_error(net_faults_[i].kind))
      continue;
    if (net_faults_[i].step == step)
      nccl_.plan->arm(i);
    else
      nccl_.plan->disarm(i);
  }
  RealEnvironment::begin_step(step);
}

Result<std::shared_ptr<ProcessGroup>> NcclEnvironment::make_group(const Place& place) {
  NcclOptions options;
  options.name = std::string("nccl/") + place.name;
  options.timeout = timeout();
  options.connect_timeout = kConnectTimeout;
  // A rank whose abort hangs must report its failure before the others give up.
  if (faults::nccl_profile(nccl_.api->version).aborts_may_hang) {
    options.grace = std::min(options.grace, failure_grace() / 8);
    options.end_timeout = failure_grace() / 4;
  }
  const bool is_second = place.name == std::string_view("second");
  const std::int64_t series = 2 * std::int64_t{place.reducer} + (is_second ? 1 : 0);
  auto group =
      groups_.make({series, place.generation, place.members, place.rank, place.store}, options);
  if (!group) return failed(group.error());
  has_groups_ = true;
  has_led_ = has_led_ || (place.rank == 0 && place.size() > 1);
  return group;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
