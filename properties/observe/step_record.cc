#include "properties/observe/step_record.h"

#include <map>
#include <optional>
#include <utility>

#include "properties/observe/gradient_bits.h"
#include "properties/observe/watched_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

namespace {

using properties::Environment;
using properties::ObservedGradient;
using properties::ObservedStep;
using reference::PassKind;

}  // namespace

void StepRecord::record_hooks() {
  stop_recording();
  for (std::uint32_t i = 0; i < rank_.parameters.size(); ++i)
    if (rank_.program.parameters[i].shared_with == 0 && !rank_.program.parameters[i].ignored)
      rank_.parameters[i]->add_hook(&recorder_, i);
}

void StepRecord::stop_recording() {
  for (const Ref<Parameter>& parameter : rank_.parameters) parameter->remove_hook(&recorder_);
}

void StepRecord::watch_groups(Memberships& memberships, const std::function<void()>& visit) {
  const bool is_shared = memberships.size() > 1 && memberships[0].group == memberships[1].group;
  std::map<ProcessGroup*, std::shared_ptr<ProcessGroup>> watched;
  const auto watch = [&](std::uint32_t reducer, std::shared_ptr<ProcessGroup>& group) {
    if (group == nullptr) return;
    std::shared_ptr<ProcessGroup>& outer = watched[group.get()];
    const auto number = [this, is_shared, reducer](const Collective& collective) {
      return is_shared ? rank_.subject->reducer_of(collective) : reducer;
    };
    const auto before = [this, visit, number](const Collective& collective) {
      watch_.collective_begins(collective);
      visit();
      if (collective.bucket != kNone) look_at(collective, number(collective));
    };
    const auto after = [this, visit, number](const Collective& collective) {
      if (collective.bucket != kNone || collective.op == Op::kAllReduceSum) recorder_.note_start();
      if (watch_.is_on() && collective.bucket != kNone)
        watch_.bucket_launched(number(collective), collective.bucket);
      visit();
    };
    if (outer == nullptr) outer = std::make_shared<WatchedGroup>(group, before, after);
    group = outer;
  };
  for (std::uint32_t r = 0; r < memberships.size(); ++r) {
    watch(r, memberships[r].group);
    watch(r, memberships[r].backward_group);
  }
}

// Looks at a collective of a bucket just before it starts. Several threads of a rank may call this.
void StepRecord::look_at(const Collective& collective, std::uint32_t reducer) {
  recorder_.note_launch(reducer, collective.bucket);
  SelfChecks* const checks = rank_.subject->self_checks();
  std::string flaw = checks == nullptr ? "" : checks->padding_flaw(collective, reducer);
  if (flaw.empty()) return;
  std::lock_guard lock(padding_mutex_);
  std::string& wrong = rank_.observation.wrong_padding;
  if (wrong.empty()) wrong = std::move(flaw);
}

void StepRecord::begin_step() {
  recorder_.begin(rank_.environment.wants_times());
  seen_times_ = {};
}

void StepRecord::remember_storages() {
  storages_.clear();
  for (const Ref<Parameter>& parameter : rank_.parameters)
    storages_.push_back(parameter->grad().defined() ? parameter->grad().storage() : Ref<Storage>());
}

void StepRecord::note_forward(PassKind kind, const std::vector<Edge>& outputs,
                              std::int64_t built_ns) {
  const bool is_synced = kind == PassKind::kSynced && !rank_.program.options.manual_sync;
  if (!is_synced || outputs.empty()) return;
  note_armed(built_ns);
  if (watch_.is_on()) watch_.forward_returned(rank_.subject->bucket_count());
}

void StepRecord::note_sync(std::int64_t begun_ns) { note_armed(begun_ns); }

// The pass was armed between then and now.
void StepRecord::note_armed(std::int64_t from_ns) {
  seen_times_.armed_from_ns = from_ns;
  seen_times_.armed_to_ns = now_ns();
}

void StepRecord::note_backward(std::int64_t begun_ns, std::int64_t ended_ns) {
  seen_times_.backward_begun_ns = begun_ns;
  seen_times_.backward_ended_ns = ended_ns;
}

bool StepRecord::has_launched() const {
  const bool is_seen = rank_.subject->names_buckets() &&
                       rank_.program.options.join == reference::Join::kNone &&
                       reference::reducer_count(rank_.program) == 1;
  return is_seen ? recorder_.has_started() : rank_.subject->launched_in_pass();
}

void StepRecord::snapshot(ObservedStep& observed, LaneState& state) {
  const std::vector<Ref<Parameter>>& parameters = rank_.parameters;
  observed.gradients.resize(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ObservedGradient& gradient = observed.gradients[i];
    const Tensor& tensor = parameters[i]->grad();
    gradient.defined = tensor.defined();
    if (!tensor.defined()) continue;
    gradient.same_storage = i < storages_.size() && storages_[i] == tensor.storage();
    gradient.offset = rank_.observation.bits.size();
    gradient.byte_in_storage = static_cast<std::uint64_t>(tensor.data() - tensor.storage()->data());
    if (rank_.program.options.views) gradient.shares_with = first_in_storage(i);
    append_gradient(tensor, parameters[i]->shape(), memory_, rank_.observation.bits);
  }
  storages_.clear();
  state.record(observed.state);
  const std::size_t before = observed.collectives.size();
  rank_.subject->take_trace(observed.collectives);
  if (rank_.subject->names_buckets()) observed.hooks = recorder_.hooks();
  if (rank_.environment.wants_times()) {
    rank_.subject->take_pass_times(observed.pass_times);
    observed.seen_times = seen_times_;
    observed.seen_times.hooks = recorder_.times();
  }
  if (!rank_.program.options.rebuild) return;
  observed.hook_order = recorder_.order(rank_.program);
  for (std::size_t i = before; i < observed.collectives.size(); ++i)
    if (observed.collectives[i].op == properties::ObservedCollective::Op::kBroadcastOrder)
      observed.rebuilt_order = rank_.subject->rebuilt_order();
}

// Returns the first parameter whose gradient has the storage of this parameter's gradient.
std::uint32_t StepRecord::first_in_storage(std::size_t parameter) const {
  const Ref<Storage>& storage = rank_.parameters[parameter]->grad().storage();
  std::uint32_t first = 0;
  while (!(rank_.parameters[first]->grad().storage() == storage)) ++first;
  return first;
}

bool StepRecord::writes(Environment::Records records) const {
  return rank_.environment.detailed() || rank_.environment.of_case().records >= records;
}

void StepRecord::note_flight_record() {
  if (!writes(Environment::Records::kOfFailures)) return;
  auto& records = rank_.observation.records;
  if (!records.empty() && records.back().generation == rank_.generation) return;
  const std::uint32_t group = reference::group_of(rank_.program, rank_.environment.rank());
  std::optional<FlightRecord> record = rank_.subject->flight_record();
  if (!record) return;
  records.push_back({rank_.generation, group, std::move(*record)});
  if (writes(Environment::Records::kWithTraces)) records.back().trace = rank_.subject->trace_text();
}

void StepRecord::note_end() {
  note_flight_record();
  if (rank_.observation.steps.empty() || !rank_.subject->flight_record()) return;
  ObservedStep& last = rank_.observation.steps.back();
  if (last.collectives.empty()) rank_.subject->take_trace(last.collectives);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
