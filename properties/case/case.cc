#include "properties/case/case.h"

#include <algorithm>

#include "properties/case/fields.h"
#include "properties/case/hook_error.h"

namespace lockstep::properties {
namespace {

bool has_duration(const faults::Fault& fault, const reference::Program& program) {
  const faults::Kind kind = fault.kind;
  if (kind == faults::Kind::kUserAbort)  // between one group of the rank and the next
    return reference::has_several_groups(program.options) &&
           faults::abort_call(fault) == faults::AbortCall::kGroupsByThread;
  return kind == faults::Kind::kMessageDelay || kind == faults::Kind::kOperationDelay ||
         kind == faults::Kind::kRankPause || kind == faults::Kind::kSlowThread ||
         kind == faults::Kind::kStoreDelay || faults::is_of_hosts_lane(kind);
}

void normalize(faults::FaultPlan& plan, const reference::Program& program) {
  if (plan.faults.size() > fields::kMaxFaults) plan.faults.resize(fields::kMaxFaults);
  const auto steps = static_cast<std::uint32_t>(program.steps.size());
  // A rank that was refused, and resets then, would disturb those that are still being refused.
  const bool is_reset_refused = reference::is_reset_refused(program);
  for (faults::Fault& fault : plan.faults) {
    if (static_cast<int>(fault.kind) >= faults::kKinds) fault.kind = faults::Kind::kMessageDelay;
    // A rank that joins was not there for a refusal.
    if (fault.kind == faults::Kind::kRankReplaced && is_reset_refused)
      fault.kind = faults::Kind::kRankExit;
    fault.rank %= program.world;
    fault.step = steps == 0 ? 0 : fault.step % steps;
    fault.duration_us =
        has_duration(fault, program) ? std::min(fault.duration_us, faults::kMaxDurationUs) : 0;
    const bool is_payload = faults::is_payload(fault.kind);
    const bool has_peer = is_payload || faults::is_network(fault.kind);
    if (!has_peer) fault.peer = 0;
    const bool has_amount =
        fault.kind == faults::Kind::kHookFails || fault.kind == faults::Kind::kConnectError ||
        fault.kind == faults::Kind::kStoreTorn || fault.kind == faults::Kind::kUserAbort ||
        faults::is_of_node(fault.kind);
    if (!has_peer && !has_amount) fault.at = 0;
    if (!faults::has_site_in_reset(fault.kind) || is_reset_refused) fault.in_reset = false;
    if (fault.kind == faults::Kind::kConnectError) fault.in_reset = true;
    fault.peer %= program.world;
    if (is_payload && fault.peer == fault.rank) fault.peer = (fault.peer + 1) % program.world;
  }
}

void normalize(Schedule& schedule) {
  if (schedule.policy > Schedule::Policy::kSurw) schedule.policy = Schedule::Policy::kDefault;
  std::vector<Schedule::Deviation>& list = schedule.deviations;
  if (schedule.policy != Schedule::Policy::kDefault) list.clear();
  if (list.size() > fields::kMaxDeviations) list.resize(fields::kMaxDeviations);
  const auto before = [](const auto& a, const auto& b) { return a.choice < b.choice; };
  if (!std::is_sorted(list.begin(), list.end(), before))
    std::stable_sort(list.begin(), list.end(), before);
  const auto same = [](const auto& a, const auto& b) { return a.choice == b.choice; };
  list.erase(std::unique(list.begin(), list.end(), same), list.end());
}

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 29;
}

template <typename T>
void hash_values(std::uint64_t& hash, const T& value) {
  if constexpr (fields::IsVector<T>::value) {
    mix(hash, value.size());
    for (const auto& element : value) hash_values(hash, element);
  } else if constexpr (fields::IsRecord<T>) {
    fields::for_each<T>([&](const auto& field) { hash_values(hash, field.get(value)); });
  } else {
    mix(hash, static_cast<std::uint64_t>(value));
  }
}

}  // namespace

void normalize(Case& value) {
  reference::normalize(value.program);
  normalize(value.faults, value.program);
  normalize(value.schedule);
  value.timeout_ms = std::min(value.timeout_ms, kMaxTimeoutMs);
  if (static_cast<std::size_t>(value.switched.option) > fields::kSwitchable) value.switched = {};
  normalize_surroundings(value);
}

bool equal(const Case& a, const Case& b) { return fields::same(a, b); }

std::uint64_t hash_of(const Case& value) {
  std::uint64_t hash = 0x6c6f636b73746570u;
  hash_values(hash, value);
  return hash;
}

bool needs_process(faults::Kind kind) {
  using faults::Kind;
  return faults::ends_process(kind) || kind == Kind::kRankPause || kind == Kind::kNodeStop ||
         kind == Kind::kRankLeftOut;
}

bool can_silence(faults::Kind kind) {
  using faults::Kind;
  return kind == Kind::kMessageStall || kind == Kind::kOperationStall || kind == Kind::kRankExit ||
         (faults::is_of_hosts_lane(kind) && !faults::is_benign(kind));
}

bool has_absent_rank(const reference::Program& program) {
  return std::any_of(program.steps.begin(), program.steps.end(), [](const auto& step) {
    return std::any_of(step.variants.begin(), step.variants.end(),
                       [](const auto& pass) { return pass.absent; });
  });
}

bool never_times_out(const Case& value) {
  return value.timeout_ms == 0 && !has_absent_rank(value.program) &&
         std::none_of(value.faults.faults.begin(), value.faults.faults.end(),
                      [](const faults::Fault& fault) {
                        return can_silence(fault.kind) || never_ends(fault);
                      });
}

std::uint32_t gloo_timeout_ms(const Case& value) {
  if (value.timeout_ms != 0) return value.timeout_ms;
  const bool may_wait =
      reference::reducer_count(value.program) > 1 || has_absent_rank(value.program);
  return may_wait ? kShortTimeoutMs : kDefaultTimeoutMs;
}

std::vector<std::string> policy_names() {
  const auto& names = fields::Names<Schedule::Policy>::list;
  return {names.begin(), names.end()};
}

std::string name_of(Schedule::Policy policy) {
  return fields::Names<Schedule::Policy>::list[static_cast<std::size_t>(policy)];
}

std::optional<Schedule::Policy> policy_of(std::string_view name) {
  const auto& names = fields::Names<Schedule::Policy>::list;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Schedule::Policy>(found - names.begin());
}

}  // namespace lockstep::properties
