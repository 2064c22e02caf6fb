#include "properties/lane/time_limit.h"

#include <algorithm>

namespace lockstep::properties {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kSimLimit = seconds(20);  // for computation alone
constexpr milliseconds kNcclLimit = seconds(150);
constexpr milliseconds kTorchLimit = seconds(60);
constexpr milliseconds kBusyMachine = seconds(10);
constexpr milliseconds kLongestGloo = seconds(60);

milliseconds gloo_limit(const Case& c) {
  const milliseconds timeout(c.timeout_ms == 0 ? kDefaultTimeoutMs : c.timeout_ms);
  const auto& faults = c.faults.faults;
  const auto harmful = std::count_if(faults.begin(), faults.end(), [](const faults::Fault& each) {
    return !faults::is_benign(each.kind);
  });
  const milliseconds most = std::max(kLongestGloo, kBusyMachine + 4 * timeout);
  return std::min(kBusyMachine + (harmful + 1) * 2 * timeout, most);
}

// The time for what the process does besides the run of the ranks.
milliseconds allowance(LaneKind lane, const Subject& subject) {
  if (lane == LaneKind::kSim) return milliseconds(0);
  if (lane == LaneKind::kNccl) return seconds(50);
  return subject.kind == Subject::Kind::kTorch ? seconds(30) : seconds(5);
}

}  // namespace

milliseconds run_limit(LaneKind lane, const Subject& subject, const Case& c) {
  if (lane == LaneKind::kSim) return kSimLimit;
  if (lane == LaneKind::kNccl) return kNcclLimit;
  return subject.kind == Subject::Kind::kTorch ? kTorchLimit : gloo_limit(c);
}

milliseconds answer_limit(LaneKind lane, const Subject& subject, const Case& c) {
  milliseconds limit = run_limit(lane, subject, c) + allowance(lane, subject);
  if (subject.against) limit += answer_limit(lane, *subject.against, c);
  return limit;
}

}  // namespace lockstep::properties
