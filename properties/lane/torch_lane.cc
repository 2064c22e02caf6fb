#include "properties/lane/torch_lane.h"

#include <algorithm>

#include "properties/lane/process_ranks.h"

namespace lockstep::properties {
namespace {

bool needs_processes(const Case& c) {
  using enum faults::Kind;
  const auto& faults = c.faults.faults;
  return c.environment.processes ||
         std::any_of(faults.begin(), faults.end(), [](const faults::Fault& fault) {
           return fault.kind == kRankExit || fault.kind == kRankPause ||
                  fault.kind == kOperationStall;
         });
}

class TorchLane final : public Lane {
 public:
  // A Python has one default group in a process, and one thread at a time.
  explicit TorchLane(const Subject& subject)
      : processes_(subject), has_threads_(subject.kind == Subject::Kind::kTorch) {}
  void run(const Case& c, const reference::Expectation&, Observation& observation) override {
    if (!has_threads_ || needs_processes(c))
      processes_.run(c, observation);
    else
      processes_.run_as_threads(c, observation);
  }

 private:
  ProcessRanks processes_;
  const bool has_threads_;
};

}  // namespace

std::unique_ptr<Lane> make_torch_lane(const Subject& subject) {
  return std::make_unique<TorchLane>(subject);
}

}  // namespace lockstep::properties
