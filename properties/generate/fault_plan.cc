#include "properties/generate/fault_plan.h"

#include <algorithm>
#include <array>
#include <vector>

#include "properties/case/fields.h"
#include "properties/generate/change.h"
#include "properties/generate/fault_amounts.h"
#include "properties/generate/fault_kinds.h"
#include "reference/buckets.h"

namespace lockstep::properties {
namespace {

using faults::Fault;
using faults::Kind;

constexpr std::uint32_t kFaultPercent = 48;  // of cases; in real time faults are expensive
constexpr std::uint32_t kGlooFaultPercent = 25;
// Of the cases that can have one. Each costs a further reset, so that more would cost cases a
// second.
constexpr std::uint32_t kResetFaultPercent = 15;
constexpr std::uint32_t kConnectFaultPercent = 75;       // of the cases over NCCL that can have one
constexpr std::uint32_t kConstructionFaultPercent = 25;  // of those: while the first group connects
constexpr std::uint32_t kStoreFaultPercent = 16;         // of the cases in which something may fail
constexpr std::uint32_t kNcclStoreFaultPercent = 40;     // of the cases over NCCL
constexpr std::uint32_t kMemoryFaultPercent = 3;
constexpr std::uint32_t kNcclMemoryFaultPercent = 6;  // while a group connects, too
constexpr std::uint32_t kStepMemoryFaultPercent = 4;
constexpr std::uint32_t kGlooMaxDurationUs = 20'000;
constexpr std::uint32_t kSimMaxDurationUs = 400'000;  // of all but long pauses
constexpr std::uint32_t kLongPauseUs = 1'000'000;     // at least, where waits never time out
constexpr std::uint32_t kMinTimeoutMs = 1'000;
constexpr std::uint32_t kTimeoutSpreadMs = 800;
constexpr std::uint32_t kNcclTimes = 4;  // collectives on a shared GPU take this many times longer

bool at_message(Kind kind) {
  return kind == Kind::kMessageDelay || kind == Kind::kMessageStall || kind == Kind::kLinkReset;
}
bool at_node(Kind kind) { return kind == Kind::kNodeThrows || kind == Kind::kSlowThread; }

// Whether the case has verified payloads, in which a change must not pass unnoticed (F3).
bool changes_payload(const GenerateOptions& options, const Case& value) {
  return value.program.options.verify && value.program.world > 1 &&
         options.capabilities.has(Capability::kRecovery);
}

// Whether the peers of a rank wait for less long than the fault lasts.
bool outlasts_timeout(Kind kind) { return kind == Kind::kNodeStop || kind == Kind::kRankLeftOut; }

// Returns the first synced step from `start` on, around the end; without one, `start`.
std::uint32_t synced_step_from(std::uint32_t start, const reference::Program& program) {
  const auto count = static_cast<std::uint32_t>(program.steps.size());
  for (std::uint32_t i = 0; i < count; ++i)
    if (program.steps[(start + i) % count].kind == reference::PassKind::kSynced)
      return (start + i) % count;
  return start;
}

// Returns whether the simulator can add a fault after which the ranks recover.
bool is_able(const GenerateOptions& options, const Case& value) {
  return options.lane == GenerateOptions::Lane::kSim &&
         options.capabilities.has(Capability::kRecovery) && !value.program.steps.empty();
}

bool is_over(reference::Transport transport, const Case& value) {
  return value.program.options.transport == transport;
}

bool is_call_error_drawn(Random& random, std::uint32_t percent, const GenerateOptions& options) {
  using Faults = GenerateOptions::Faults;
  if (options.faults == Faults::kList) return options.kinds.has(Kind::kCallError);
  return options.faults == Faults::kSwarm && random.percent(percent);
}

class PlanDrawer {
 public:
  PlanDrawer(Random& random, const GenerateOptions& options, Case& value)
      : random_(random), options_(options), case_(value), program_(value.program) {}

  void draw();
  void draw_payload_plan();
  void draw_call_plan();
  Fault& add_call_error();
  Fault on_any_rank(Kind kind);
  void draw_device_plan();
  void draw_reset_fault();
  void draw_connect_fault();
  void draw_store_plan();
  std::uint32_t group_requests() const;
  void draw_memory_fault();
  void draw_memory_fault_in_step();

 private:
  const Fault* first_that_resets() const;
  const Fault* any_harmful();
  Fault long_delay();
  void collect_kinds();
  bool usable(Kind kind) const;
  bool can_disturb_network(Kind kind) const;
  bool usable_in_reset(Kind kind) const;
  Kind draw_kind();
  std::uint32_t draw_step();
  std::uint32_t draw_site(const Fault& fault);
  std::uint32_t draw_duration();
  void draw_timeout();

  Random& random_;
  const GenerateOptions& options_;
  Case& case_;
  const reference::Program& program_;
  std::array<Kind, faults::kKinds> kinds_{};
  std::uint32_t kind_count_ = 0;
  std::uint32_t buckets_ = 0;
};

bool PlanDrawer::can_disturb_network(Kind kind) const {
  if (!options_.has_network || program_.world < 2) return false;
  if (faults::is_of_node(kind) && options_.faults != GenerateOptions::Faults::kList) return false;
  if (options_.faults == GenerateOptions::Faults::kList && !options_.kinds.has(kind)) return false;
  return faults::is_benign(kind) || options_.capabilities.has(Capability::kRecovery);
}

bool PlanDrawer::usable(Kind kind) const {
  if (faults::is_of_hosts_lane(kind)) return can_disturb_network(kind);
  if (!drawable_kinds(options_).has(kind)) return false;
  // Without verification nobody can notice a change. Swarms draw payload faults separately.
  if (faults::is_payload(kind) && !changes_payload(options_, case_)) return false;
  if (faults::is_payload(kind) && options_.faults == GenerateOptions::Faults::kSwarm) return false;
  const bool is_separate = kind == Kind::kCallError || kind == Kind::kConnectError ||
                           kind == Kind::kHookFails || kind == Kind::kMemoryRefused ||
                           kind == Kind::kUserAbort || faults::is_store_call(kind);
  if (is_separate) return false;
  // With one rank there are no messages, and nobody could continue after an exit.
  return program_.world > 1 || !(at_message(kind) || kind == Kind::kRankExit);
}

void PlanDrawer::collect_kinds() {
  const bool swarm = options_.faults == GenerateOptions::Faults::kSwarm;
  for (int i = 0; i < faults::kKinds; ++i) {
    const auto kind = static_cast<Kind>(i);
    if (usable(kind) && (!swarm || random_.percent(40))) kinds_[kind_count_++] = kind;
  }
}

Kind PlanDrawer::draw_kind() {
  Kind kind = kinds_[random_.below(kind_count_)];
  // A silent rank costs a timeout in real time, so these faults are rare there unless the options
  // request them.
  const bool real = options_.lane != GenerateOptions::Lane::kSim;
  if (real && options_.faults == GenerateOptions::Faults::kSwarm && can_silence(kind) &&
      !random_.percent(15))
    kind = Kind::kOperationDelay;
  return kind;
}

// Draws a synced step most of the time, because the others have no collectives.
std::uint32_t PlanDrawer::draw_step() {
  const std::uint32_t start = random_.below(static_cast<std::uint32_t>(program_.steps.size()));
  return random_.percent(10) ? start : synced_step_from(start, program_);
}

std::uint32_t PlanDrawer::draw_site(const Fault& fault) {
  if (at_node(fault.kind)) {
    const auto& variants = program_.steps[fault.step].variants;
    const reference::RankPass& pass = variants[fault.rank % variants.size()];
    const std::size_t nodes = pass.forwards.empty() ? 1 : pass.forwards.back().nodes.size();
    return random_.below(static_cast<std::uint32_t>(nodes) + 2);
  }
  const bool dynamic = program_.options.mode == reference::Mode::kDynamic;
  if (at_message(fault.kind)) {
    const std::uint32_t per_collective = 4 * (program_.world - 1);
    return random_.below(per_collective * (buckets_ + (dynamic ? 1 : 0)) + 1);
  }
  switch (random_.below(4)) {
    case 0:
      return 0;  // the first bucket
    case 1:
      return buckets_ == 0 ? 0 : buckets_ - 1;  // the last
    case 2:
      return dynamic ? buckets_ : 0;  // the usage map
    default:
      return random_.below(buckets_ + 1);
  }
}

// Small and large values are equally likely: it draws the number of binary digits, then the number.
std::uint32_t PlanDrawer::draw_duration() {
  const bool real = options_.lane != GenerateOptions::Lane::kSim;
  const std::uint32_t most = real ? kGlooMaxDurationUs : kSimMaxDurationUs;
  const std::uint32_t digits = random_.between(4, 19);
  return std::min(most, (1u << (digits - 1)) + random_.below(1u << (digits - 1)));
}

// Draws a time that no benign fault can use up: twice the sum of all durations of the plan, and a
// second. A node stops for longer than that.
void PlanDrawer::draw_timeout() {
  std::uint32_t durations_us = 0;
  bool silent = false;
  for (const Fault& fault : case_.faults.faults) {
    if (!outlasts_timeout(fault.kind)) durations_us += fault.duration_us;
    silent = silent || can_silence(fault.kind);
  }
  if (silent)
    case_.timeout_ms = kMinTimeoutMs + 2 * (durations_us / 1000) + random_.below(kTimeoutSpreadMs);
  if (options_.lane == GenerateOptions::Lane::kNccl) case_.timeout_ms *= kNcclTimes;
  for (Fault& fault : case_.faults.faults)
    if (fault.kind == Kind::kNodeStop) fault.duration_us = faults::kMaxDurationUs;
}

void PlanDrawer::draw() {
  if (options_.faults == GenerateOptions::Faults::kNone) return;
  const bool real = options_.lane != GenerateOptions::Lane::kSim;
  const std::uint32_t share = real ? kGlooFaultPercent : kFaultPercent;
  if (options_.faults == GenerateOptions::Faults::kSwarm && !random_.percent(share)) return;
  collect_kinds();
  if (kind_count_ == 0) return;
  buckets_ = bucket_count(program_);
  const std::uint32_t count = 1 + random_.weighted(std::array<std::uint16_t, 4>{64, 20, 12, 4});
  case_.faults.faults.reserve(count);
  bool exited = false;
  for (std::uint32_t i = 0; i < count; ++i) {
    Fault fault;
    fault.kind = draw_kind();
    const bool leaves = faults::may_end_process(fault.kind) || fault.kind == Kind::kRankLeftOut;
    if (leaves && exited) continue;  // somebody must survive
    exited = exited || leaves;
    fault.rank = random_.below(program_.world);
    fault.step = draw_step();
    fault.site = draw_site(fault);
    if (faults::is_payload(fault.kind)) draw_payload(random_, case_, buckets_ + 1, fault);
    if (faults::is_network(fault.kind)) draw_network(random_, program_.world, fault);
    if (faults::is_of_node(fault.kind)) draw_node(random_, fault);
    const bool lasts = faults::is_benign(fault.kind) && !faults::is_network(fault.kind) &&
                       !faults::is_of_node(fault.kind);
    if (lasts) fault.duration_us = draw_duration();
    case_.faults.faults.push_back(fault);
  }
  draw_timeout();
}

// Most of these cases have no other fault, so that the expected result is known.
void PlanDrawer::draw_payload_plan() {
  if (random_.percent(75)) case_.faults.faults.clear();
  if (case_.faults.faults.empty()) case_.timeout_ms = 0;
  buckets_ = bucket_count(program_);
  constexpr std::uint32_t kPayloadKinds = 5;
  const std::uint32_t count = random_.percent(75) ? 1 : 2;
  for (std::uint32_t i = 0; i < count; ++i) {
    Fault fault;
    fault.kind = static_cast<Kind>(static_cast<std::uint32_t>(Kind::kPayloadFlip) +
                                   random_.below(kPayloadKinds));
    if (options_.lane == GenerateOptions::Lane::kNccl) fault.kind = Kind::kPayloadFlip;
    fault.rank = random_.below(program_.world);
    fault.step = draw_step();
    draw_payload(random_, case_, buckets_ + 1, fault);
    case_.faults.faults.push_back(fault);
  }
}

// A collective takes from 3 to some 30 calls, including those for the headers of all ranks. In some
// cases one of several ranks exits instead, and nothing else fails: NCCL does not say which one it
// has lost, and its peers learn it from its silence alone (F2).
void PlanDrawer::draw_call_plan() {
  constexpr std::uint32_t kExitPercent = 25;
  if (program_.world > 2 && usable(Kind::kRankExit) &&
      options_.faults == GenerateOptions::Faults::kSwarm && random_.percent(kExitPercent)) {
    Fault fault = on_any_rank(Kind::kRankExit);
    fault.step = draw_step();
    buckets_ = bucket_count(program_);
    fault.site = draw_site(fault);
    case_.faults.faults = {fault};
    draw_timeout();
    return;
  }
  Fault& fault = add_call_error();
  const std::uint32_t calls = random_.percent(50) ? 6 : 24;
  fault.site = random_.below(calls * (bucket_count(program_) + 1));
  // Where NCCL adds, a collective has one call for the headers, and one for the elements. The
  // collective after those of the buckets is often a usage map, whose elements lie in host memory.
  const reference::Replicated& sums = program_.options;
  const bool is_native = sums.order != reference::Order::kRankOrder && !sums.verify;
  if (!is_native || random_.percent(40)) return;
  const std::uint32_t buckets = bucket_count(program_);
  const std::uint32_t collective = random_.percent(50) ? buckets : random_.below(buckets + 2);
  fault.site = 2 * collective + 1;
}

Fault PlanDrawer::on_any_rank(Kind kind) {
  Fault fault;
  fault.kind = kind;
  fault.rank = random_.below(program_.world);
  return fault;
}

// Adds a failing call, mostly in the place of all that was planned. Its site is left to the caller.
Fault& PlanDrawer::add_call_error() {
  if (random_.percent(75)) case_.faults.faults.clear();
  if (case_.faults.faults.empty()) case_.timeout_ms = 0;
  Fault fault = on_any_rank(Kind::kCallError);
  fault.step = draw_step();
  return case_.faults.faults.emplace_back(fault);
}

// A group that goes through host memory waits twice for its GPU in each collective, and once more
// after an error.
void PlanDrawer::draw_device_plan() {
  Fault& fault = add_call_error();
  fault.site = random_.below(2 * (bucket_count(program_) + 2));
}

bool PlanDrawer::usable_in_reset(Kind kind) const {
  const bool is_separate = faults::is_store_call(kind) || kind == Kind::kConnectError ||
                           kind == Kind::kMemoryRefused || kind == Kind::kUserAbort;
  if (is_separate) return false;
  if (!faults::has_site_in_reset(kind) || !drawable_kinds(options_).has(kind)) return false;
  if (faults::is_payload(kind) && !changes_payload(options_, case_)) return false;
  if (kind == Kind::kCallError && program_.options.transport != reference::Transport::kNccl)
    return false;
  const std::vector<Fault>& plan = case_.faults.faults;
  const bool somebody_exits = std::any_of(
      plan.begin(), plan.end(), [](const Fault& fault) { return fault.kind == Kind::kRankExit; });
  return kind != Kind::kRankExit || !somebody_exits;
}

// Returns the first fault of the plan after which the ranks reset, and go on with a further step.
const Fault* PlanDrawer::first_that_resets() const {
  const std::vector<Fault>& plan = case_.faults.faults;
  const auto found = std::find_if(plan.begin(), plan.end(), [&](const Fault& fault) {
    return !faults::is_benign(fault.kind) && fault.step + 1 < program_.steps.size();
  });
  return found == plan.end() ? nullptr : &*found;
}

// A reset has a few collectives for the agreement of the ranks and for their state. The rank with
// the state that all others take does not exit there, because nobody could tell who has it by then.
void PlanDrawer::draw_reset_fault() {
  std::vector<Fault>& plan = case_.faults.faults;
  const Fault* const first = first_that_resets();
  if (first == nullptr || program_.world == 1 || reference::is_reset_refused(program_) ||
      !random_.percent(kResetFaultPercent))
    return;
  for (int i = 0; i < faults::kKinds; ++i)
    if (usable_in_reset(static_cast<Kind>(i))) kinds_[kind_count_++] = static_cast<Kind>(i);
  if (kind_count_ == 0) return;
  Fault fault = on_any_rank(kinds_[random_.below(kind_count_)]);
  if (fault.kind == Kind::kRankExit) fault.rank = program_.world - 1;
  fault.step = first->step + 1;
  fault.in_reset = true;
  constexpr std::uint32_t kCollectives = 4;
  const bool is_call = fault.kind == Kind::kCallError;
  fault.site = random_.below(at_message(fault.kind) ? 4 * kCollectives
                             : is_call              ? 6 * kCollectives
                                                    : kCollectives);
  if (faults::is_payload(fault.kind)) draw_payload(random_, case_, kCollectives, fault);
  if (faults::is_benign(fault.kind)) fault.duration_us = draw_duration();
  plan.push_back(fault);
  if (can_silence(fault.kind) && case_.timeout_ms == 0) draw_timeout();
  if (case_.timeout_ms != 0) case_.timeout_ms += 2 * (fault.duration_us / 1000);
}

const Fault* PlanDrawer::any_harmful() {
  const Fault* found = nullptr;
  std::uint32_t count = 0;
  for (const Fault& fault : case_.faults.faults)
    if (!faults::is_benign(fault.kind) && random_.below(++count) == 0) found = &fault;
  return found;
}

// Rank 0 makes the id, and each rank a communicator, which it asks about until it is there.
void PlanDrawer::draw_connect_fault() {
  const Fault* const first = first_that_resets();
  const bool is_construction = random_.percent(kConstructionFaultPercent) &&
                               program_.disagreement.kind == reference::DisagreementKind::kNone;
  if (first == nullptr && !is_construction) return;
  if (program_.world == 1 || !drawable_kinds(options_).has(Kind::kConnectError)) return;
  Fault fault;
  fault.kind = Kind::kConnectError;
  fault.step = is_construction ? 0 : first->step + 1;
  fault.in_reset = true;
  fault.at = random_.below(faults::kConnectCalls);
  // There is nothing to shrink yet.
  if (is_construction && connect_call(fault) == faults::ConnectCall::kShrink)
    fault.at = static_cast<std::uint32_t>(faults::ConnectCall::kInit);
  const bool is_of_first = connect_call(fault) == faults::ConnectCall::kUniqueId;
  fault.rank = is_of_first ? 0 : random_.below(program_.world);
  const bool is_repeated = connect_call(fault) == faults::ConnectCall::kAsyncError;
  fault.site = is_repeated ? random_.below(6) : random_.percent(75) ? 0 : 1;
  case_.faults.faults.push_back(fault);
}

// Returns about how many requests for memory the groups of a rank make while they connect: three
// for each group over NCCL, for headers, and some reducers have two groups.
std::uint32_t PlanDrawer::group_requests() const {
  return program_.options.transport == reference::Transport::kNccl ? 5 : 0;
}

// A reducer asks for the memory of its buckets and of what it sends, some of it before the ranks
// agree, and some of it after. Before that its group asks for what it needs to connect.
void PlanDrawer::draw_memory_fault() {
  const Fault* const first = first_that_resets();
  const bool is_construction = first == nullptr || random_.percent(25);
  if (!drawable_kinds(options_).has(Kind::kMemoryRefused)) return;
  if (is_construction && program_.disagreement.kind != reference::DisagreementKind::kNone) return;
  if (case_.faults.faults.size() >= fields::kMaxFaults) return;
  Fault fault = on_any_rank(Kind::kMemoryRefused);
  fault.step = is_construction ? 0 : first->step + 1;
  fault.in_reset = true;
  const std::uint32_t of_group = group_requests();
  fault.site = random_.percent(50) ? random_.below(of_group + 3)
                                   : random_.below(of_group + bucket_count(program_) + 6);
  case_.faults.faults.push_back(fault);
}

// A step has from a few to some 60 requests. Small and large numbers are equally likely: the number
// of binary digits is drawn first.
void PlanDrawer::draw_memory_fault_in_step() {
  if (!drawable_kinds(options_).has(Kind::kMemoryRefused)) return;
  if (random_.percent(75)) case_.faults.faults.clear();
  if (case_.faults.faults.empty()) case_.timeout_ms = 0;
  if (case_.faults.faults.size() >= fields::kMaxFaults) return;
  Fault fault = on_any_rank(Kind::kMemoryRefused);
  fault.step = draw_step();
  constexpr std::uint32_t kDigits = 6;
  fault.site = random_.below(1u << random_.below(kDigits + 1));
  case_.faults.faults.push_back(fault);
}

// Returns the fault of the plan that delays something for longer than a group over NCCL waits
// before it looks into the store; adds one if there is none.
Fault PlanDrawer::long_delay() {
  constexpr std::uint32_t kLongUs = 25'000;
  std::vector<Fault>& plan = case_.faults.faults;
  const auto found = std::find_if(plan.begin(), plan.end(), [](const Fault& fault) {
    return fault.kind == Kind::kOperationDelay && fault.duration_us >= kLongUs;
  });
  if (found != plan.end()) return *found;
  Fault fault = on_any_rank(Kind::kOperationDelay);
  fault.step = draw_step();
  fault.duration_us = random_.between(kLongUs, kSimMaxDurationUs);
  plan.push_back(fault);
  if (case_.timeout_ms != 0) case_.timeout_ms += 2 * (fault.duration_us / 1000);
  return fault;
}

// A rank that fails writes its report and its flight record, and reads the reports of the others.
// Half of the faults are those of the first values and calls, and most act where another fault
// does. Over NCCL a group looks into the store also while something is late.
void PlanDrawer::draw_store_plan() {
  for (int i = 0; i < faults::kKinds; ++i)
    if (faults::is_store_call(static_cast<Kind>(i)) &&
        drawable_kinds(options_).has(static_cast<Kind>(i)))
      kinds_[kind_count_++] = static_cast<Kind>(i);
  if (kind_count_ == 0) return;
  std::vector<Fault>& plan = case_.faults.faults;
  const Fault* const harmful = any_harmful();
  const bool is_late = harmful == nullptr && program_.world > 1 &&
                       program_.options.transport == reference::Transport::kNccl &&
                       drawable_kinds(options_).has(Kind::kOperationDelay) &&
                       plan.size() + 1 < fields::kMaxFaults;
  const bool is_beside = (harmful != nullptr || is_late) && !random_.percent(10);
  const Fault beside = !is_beside ? Fault{} : harmful != nullptr ? *harmful : long_delay();
  const std::uint32_t count = random_.percent(80) ? 1 : 2;
  for (std::uint32_t i = 0; i < count && plan.size() < fields::kMaxFaults; ++i) {
    Fault fault = on_any_rank(kinds_[random_.below(kind_count_)]);
    fault.step = is_beside ? beside.step : draw_step();
    fault.in_reset = is_beside && beside.in_reset;
    fault.site = random_.percent(50) ? 0 : random_.below(program_.world + 3);
    constexpr std::uint32_t kBytes = 200;  // about as long as a report
    if (fault.kind == Kind::kStoreTorn) fault.at = random_.percent(10) ? 0 : random_.below(kBytes);
    if (fault.kind == Kind::kStoreDelay) fault.duration_us = draw_duration();
    plan.push_back(fault);
    if (case_.timeout_ms != 0) case_.timeout_ms += 2 * (fault.duration_us / 1000);
  }
}

}  // namespace

void draw_faults(Random& random, const GenerateOptions& options, Case& value) {
  if (value.program.steps.empty()) return;
  PlanDrawer(random, options, value).draw();
}

void draw_payload_faults(Random random, const GenerateOptions& options, Case& value) {
  const bool is_swarm = options.faults == GenerateOptions::Faults::kSwarm;
  if (!is_swarm || value.program.steps.empty() || !changes_payload(options, value)) return;
  if (random.percent(63)) PlanDrawer(random, options, value).draw_payload_plan();
}

void draw_call_faults(Random random, const GenerateOptions& options, Case& value) {
  if (!is_able(options, value) || !is_over(reference::Transport::kNccl, value)) return;
  if (is_call_error_drawn(random, 40, options)) PlanDrawer(random, options, value).draw_call_plan();
}

void draw_device_faults(Random random, const GenerateOptions& options, Case& value) {
  if (!is_able(options, value) || !is_over(reference::Transport::kStaged, value)) return;
  if (!has_payload_fault(value) && is_call_error_drawn(random, 30, options))
    PlanDrawer(random, options, value).draw_device_plan();
}

void draw_reset_fault(Random random, const GenerateOptions& options, Case& value) {
  if (is_able(options, value)) PlanDrawer(random, options, value).draw_reset_fault();
}

void draw_connect_fault(Random random, const GenerateOptions& options, Case& value) {
  if (!is_able(options, value) || !is_over(reference::Transport::kNccl, value) ||
      reference::is_reset_refused(value.program))
    return;
  if (options.faults == GenerateOptions::Faults::kList || random.percent(kConnectFaultPercent))
    PlanDrawer(random, options, value).draw_connect_fault();
}

void draw_memory_faults(Random in_reset, Random in_step, const GenerateOptions& options,
                        Case& value) {
  if (!is_able(options, value) || !options.capabilities.has(Capability::kDisagreements) ||
      options.faults == GenerateOptions::Faults::kNone)
    return;
  const bool is_listed = options.faults == GenerateOptions::Faults::kList;
  const bool is_refused = reference::is_reset_refused(value.program);
  const bool is_nccl = is_over(reference::Transport::kNccl, value);
  const std::uint32_t percent = is_nccl ? kNcclMemoryFaultPercent : kMemoryFaultPercent;
  if (!is_refused && (is_listed || in_reset.percent(percent)))
    PlanDrawer(in_reset, options, value).draw_memory_fault();
  if (!has_payload_fault(value) && in_step.percent(is_listed ? 50 : kStepMemoryFaultPercent))
    PlanDrawer(in_step, options, value).draw_memory_fault_in_step();
}

void draw_store_faults(Random random, const GenerateOptions& options, Case& value) {
  using Faults = GenerateOptions::Faults;
  if (!is_able(options, value) || options.faults == Faults::kNone) return;
  if (options.faults == Faults::kSwarm) {
    const bool is_nccl = is_over(reference::Transport::kNccl, value);
    if (!random.percent(is_nccl ? kNcclStoreFaultPercent : kStoreFaultPercent)) return;
    const auto& plan = value.faults.faults;
    const bool is_faulty = std::any_of(plan.begin(), plan.end(), [](const Fault& fault) {
      return !faults::is_benign(fault.kind);
    });
    // A program that is wrong fails, too; and over NCCL a group looks into the store all the time.
    if (!is_faulty && !is_nccl && !(random.percent(30) && fails(value.program))) return;
  }
  PlanDrawer(random, options, value).draw_store_plan();
}

void draw_long_pause(Random random, const GenerateOptions& options, Case& value) {
  if (options.lane != GenerateOptions::Lane::kSim || !random.percent(12)) return;
  if (!never_times_out(value) || reference::reducer_count(value.program) > 1) return;
  std::vector<Fault>& plan = value.faults.faults;
  const auto fault = std::find_if(plan.begin(), plan.end(),
                                  [](const Fault& each) { return each.duration_us > 0; });
  if (fault != plan.end())
    fault->duration_us = random.between(kLongPauseUs, faults::kMaxDurationUs);
}

bool has_long_pause(const Case& value) {
  return std::any_of(value.faults.faults.begin(), value.faults.faults.end(),
                     [](const Fault& fault) { return fault.duration_us >= kLongPauseUs; });
}

std::uint32_t draw_synced_step(Random& random, const reference::Program& program) {
  const auto count = static_cast<std::uint32_t>(program.steps.size());
  return synced_step_from(random.below(count), program);
}

bool has_payload_fault(const Case& value) {
  return std::any_of(value.faults.faults.begin(), value.faults.faults.end(),
                     [](const Fault& fault) { return faults::is_payload(fault.kind); });
}

std::uint32_t bucket_count(const reference::Program& program) {
  std::array<std::vector<std::uint32_t>, reference::kMaxReducers> orders;
  for (const std::uint32_t index : reference::construction_order(program))
    orders[program.parameters[index].reducer].push_back(index);
  std::size_t buckets = 0;
  for (const std::vector<std::uint32_t>& order : orders)
    buckets += reference::assign_buckets(program, reference::Contract::lockstep(), &order).size();
  return static_cast<std::uint32_t>(buckets);
}

}  // namespace lockstep::properties
