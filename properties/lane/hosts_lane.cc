#include "properties/lane/hosts_lane.h"

#include "properties/lane/host_ranks.h"

namespace lockstep::properties {
namespace {

class HostsLane final : public Lane {
 public:
  explicit HostsLane(const Subject& subject) : ranks_(subject) {}
  void run(const Case& c, const reference::Expectation&, Observation& observation) override {
    ranks_.run(c, observation);
  }

 private:
  HostRanks ranks_;
};

}  // namespace

std::unique_ptr<Lane> make_hosts_lane(const Subject& subject) {
  return std::make_unique<HostsLane>(subject);
}

}  // namespace lockstep::properties
