#include "properties/lane/time_limit.h"

#include <algorithm>

#include "reference/model.h"

namespace lockstep::properties {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kSimLimit = seconds(20);  // for computation alone
constexpr milliseconds kNcclLimit = seconds(150);
constexpr milliseconds kTorchLimit = seconds(60);
constexpr milliseconds kBusyMachine = seconds(10);
// Until a busy machine has loaded a Python's torch, once for all cases of a process.
constexpr milliseconds kPythonStart = seconds(125);
// Until the ranks of all hosts have connected: half a minute, or five where somebody starts them by
// hand (host_ranks.cc).
constexpr milliseconds kHostsStart = seconds(305);
constexpr milliseconds kLongestGloo = seconds(60);

// The steps in which ranks may wait until the timeout: for an absent rank (P8), or in the groups of
// several reducers, because ranks err in passes of different ones (F7).
std::int64_t count_steps_that_wait(const reference::Program& program) {
  if (reference::reducer_count(program) == 1 && !has_absent_rank(program)) return 0;
  const auto expected = reference::run(program, reference::Contract::lockstep());
  return std::count_if(expected.steps.begin(), expected.steps.end(),
                       [](const auto& step) { return step.any_error; });
}

milliseconds gloo_limit(const Case& c) {
  const milliseconds timeout(gloo_timeout_ms(c));
  const auto& faults = c.faults.faults;
  const auto harmful = std::count_if(faults.begin(), faults.end(), [](const faults::Fault& each) {
    return !faults::is_benign(each.kind);
  });
  const milliseconds most = std::max(kLongestGloo, kBusyMachine + 4 * timeout);
  return std::min(kBusyMachine + (harmful + 1) * 2 * timeout, most) +
         count_steps_that_wait(c.program) * timeout;
}

// The time for what the process does besides the run of the ranks.
milliseconds allowance(LaneKind lane, const Subject& subject) {
  if (lane == LaneKind::kSim) return milliseconds(0);
  if (lane == LaneKind::kNccl) return seconds(50);
  if (lane == LaneKind::kHosts) return kHostsStart;
  if (subject.kind == Subject::Kind::kPython) return kPythonStart;
  return subject.has_own_group() ? seconds(30) : seconds(5);  // to load libtorch
}

// Returns whether the case runs twice.
bool is_switched(const Case& c) { return c.switched.option != SwitchedOption::kNone; }

}  // namespace

milliseconds run_limit(LaneKind lane, const Subject& subject, const Case& c) {
  if (lane == LaneKind::kSim) return kSimLimit;
  if (lane == LaneKind::kNccl) return kNcclLimit;
  return subject.kind == Subject::Kind::kTorch ? kTorchLimit : gloo_limit(c);
}

milliseconds answer_limit(LaneKind lane, const Subject& subject, const Case& c) {
  milliseconds limit = run_limit(lane, subject, c) + allowance(lane, subject);
  if (subject.against) limit += answer_limit(lane, *subject.against, c);
  return is_switched(c) ? 2 * limit : limit;
}

milliseconds idle_limit(LaneKind lane) { return lane == LaneKind::kSim ? seconds(5) : seconds(0); }

milliseconds repeat_limit(LaneKind lane, const Subject& subject, const Case& c) {
  const int runs = subject.against || is_switched(c) ? 2 : 1;
  if (lane == LaneKind::kSim) return runs * seconds(3);
  seconds start = lane == LaneKind::kNccl ? seconds(60) : seconds(5);
  if (subject.kind == Subject::Kind::kPython) start = seconds(60);  // to load torch
  return runs * (start + 4 * milliseconds(c.timeout_ms));
}

}  // namespace lockstep::properties
