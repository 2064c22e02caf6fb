#include "properties/observe/training.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>

#include "properties/case/calls.h"
#include "properties/observe/early_wait.h"
#include "properties/observe/gradient_bits.h"
#include "properties/observe/graph_builder.h"
#include "properties/observe/module_state.h"
#include "properties/observe/outputs.h"
#include "properties/observe/pass_recorder.h"
#include "properties/observe/recompute_node.h"
#include "properties/observe/state_watch.h"
#include "properties/observe/taken_gradients.h"
#include "properties/observe/user_abort.h"
#include "properties/observe/watched_group.h"
#include "properties/observe/zero_gradients.h"
#include "reducer/base/check.h"
#include "reference/model.h"
#include "reference/model/engine.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using properties::Call;
using properties::Environment;
using properties::ObservedGradient;
using properties::ObservedStep;
using properties::RankObservation;
using reference::PassKind;
using reference::Program;

constexpr int kMaxJoinAttempts = 3;

// The host, whose memory the fault plan may refuse to this rank.
class RankDevice final : public HostDevice {
 public:
  RankDevice(int index, RankEnvironment& environment)
      : HostDevice(index, FreshMemory::kNaN), environment_(environment) {}
  Result<Ref<Storage>> allocate(std::size_t bytes) override {
    if (environment_.refuses_memory()) return failed(out_of_memory());
    return HostDevice::allocate(bytes);
  }

 private:
  RankEnvironment& environment_;
};

class Training {
 public:
  Training(const Program& program, properties::ExpectedErrors& expected_errors,
           RankEnvironment& environment, std::vector<std::unique_ptr<HostDevice>>& devices,
           RankObservation& observation)
      : program_(program),
        expected_errors_(expected_errors),
        step_errs_(expected_errors.after({})),
        environment_(environment),
        observation_(observation),
        engine_(used_workers(program, environment), tie_seed(environment)),
        watch_(environment),
        recorder_(program, watch_),
        taken_(program),
        devices_(devices),
        user_(environment) {
    environment.set_user_place([this] { user_.visit(); });
    for (std::uint32_t d = 0; d < reference::kMaxDevices; ++d)
      devices.push_back(std::make_unique<RankDevice>(static_cast<int>(d), environment));
    std::vector<Device*> places;  // by the program's numbers
    Device* const gpu = environment.gpu();
    for (const auto& device : devices)
      places.push_back(gpu == nullptr ? static_cast<Device*>(device.get()) : gpu);
    for (std::uint32_t i = 0; i < program.parameters.size(); ++i) {
      const std::uint32_t owner = reference::owner_of(program, i);
      if (owner != i) {
        parameters_.push_back(parameters_[owner]);
        continue;
      }
      const reference::Parameter& record = program.parameters[i];
      parameters_.push_back(make_ref<Parameter>(
          "p" + std::to_string(i), *places[record.device], dtype_of(record.dtype), shape_of(record),
          !record.frozen, engine_.next_sequence(),
          record.sparse ? Parameter::Gradients::kSparse : Parameter::Gradients::kDense));
    }
    state_.emplace(program, environment.rank(), parameters_, places);
    builder_.emplace(program_, environment_, engine_, *devices[0], parameters_);
    Result<Tensor> one = builder_->scalar(1.0);
    LOCKSTEP_CHECK(one.has_value());
    one_ = std::move(*one);
    own_bytes_ = tensor_bytes();
  }

  void run(const SubjectFactory& make_subject) {
    subject_ = make_subject();
    if (environment_.detailed()) environment_.watch([this] { note_end(); });
    Resume first = first_group();
    std::uint32_t step = first.step;
    observation_.construction = join(first.roster, step, [&](Memberships memberships) {
      environment_.begin_reset(step);
      Status status = subject_->construct(parameters_, state_->buffers(), engine_, program_,
                                          environment_, std::move(memberships));
      environment_.begin_step(static_cast<std::uint32_t>(program_.steps.size()));
      return status;
    });
    if (environment_.exited()) {
      observation_.construction = Status();  // it has no result any more
    } else if (observation_.construction.ok()) {
      if (subject_->names_buckets()) watch_.begin();
      record_hooks();
      train_all(step);
    }
    if (observation_.construction.ok()) observation_.layout = subject_->saved_layout();
    if (environment_.of_case().reads_layouts) note_wrong(subject_->wrong_layout());
    stop_recording();
    user_.take_groups({});  // so that the reducer is the last owner of its groups
    observation_.exited = environment_.exited();
    environment_.watch({});
    environment_.set_user_place({});
  }

 private:
  // That of all ranks, unless this rank joins later.
  Resume first_group() {
    if (auto joining = environment_.joining()) {
      recoveries_ = std::move(joining->recoveries);
      step_errs_ = expected_errors_.after(recoveries_);
      return std::move(joining->resume);
    }
    Resume first;
    for (std::uint32_t r = 0; r < program_.world; ++r) first.roster.members.push_back(r);
    return first;
  }

  static std::uint64_t now_us() {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(platform::now()).count());
  }

  static int used_workers(const Program& program, RankEnvironment& environment) {
    if (const Device* const gpu = environment.gpu()) return gpu->index();
    std::uint32_t last = 0;
    for (const reference::Parameter& parameter : program.parameters)
      last = std::max(last, parameter.device);
    return static_cast<int>(last);
  }

  // The ranks must not fire their hooks in one common order.
  static std::uint64_t tie_seed(const RankEnvironment& environment) {
    return (std::uint64_t{environment.of_case().hook_seed} << 8) + environment.rank() + 1;
  }

  // Hooks run in the order in which they were added, so the recorder's are added again whenever the
  // subject's hooks may be new.
  void record_hooks() {
    stop_recording();
    for (std::uint32_t i = 0; i < parameters_.size(); ++i)
      if (program_.parameters[i].shared_with == 0 && !program_.parameters[i].ignored)
        parameters_[i]->add_hook(&recorder_, i);
  }
  void stop_recording() {
    for (const Ref<Parameter>& parameter : parameters_) parameter->remove_hook(&recorder_);
  }

  // Wraps each group, so that the recorder sees its collectives. Reducers that share a group share
  // its wrapper.
  void watch_groups(Memberships& memberships) {
    const bool is_shared = memberships.size() > 1 && memberships[0].group == memberships[1].group;
    std::map<ProcessGroup*, std::shared_ptr<ProcessGroup>> watched;
    const auto watch = [&](std::uint32_t reducer, std::shared_ptr<ProcessGroup>& group) {
      if (group == nullptr) return;
      std::shared_ptr<ProcessGroup>& outer = watched[group.get()];
      const auto number = [this, is_shared, reducer](const Collective& collective) {
        return is_shared ? subject_->reducer_of(collective) : reducer;
      };
      const auto before = [this, number](const Collective& collective) {
        watch_.collective_begins(collective);
        user_.visit();
        if (collective.bucket != kNone) look_at(collective, number(collective));
      };
      const auto after = [this, number](const Collective& collective) {
        if (collective.bucket != kNone || collective.op == Op::kAllReduceSum)
          recorder_.note_start();
        if (watch_.is_on() && collective.bucket != kNone)
          watch_.bucket_launched(number(collective), collective.bucket);
        user_.visit();
      };
      if (outer == nullptr) outer = std::make_shared<WatchedGroup>(group, before, after);
      group = outer;
    };
    for (std::uint32_t r = 0; r < memberships.size(); ++r) {
      watch(r, memberships[r].group);
      watch(r, memberships[r].backward_group);
    }
  }

  // Looks at a collective of a bucket just before it starts. Several threads of a rank may call
  // this.
  void look_at(const Collective& collective, std::uint32_t reducer) {
    recorder_.note_launch(reducer, collective.bucket);
    std::string wrong = subject_->wrong_padding(collective, reducer);
    if (wrong.empty()) return;
    std::lock_guard lock(padding_mutex_);
    if (observation_.wrong_padding.empty()) observation_.wrong_padding = std::move(wrong);
  }

  // Joins a group of `roster` with `enter`. A peer may have continued, met a fault, and left this
  // rank in the middle of the join: then all ranks meet again, and continue from `step`.
  template <class Enter>
  Status join(Roster roster, std::uint32_t& step, Enter enter) {
    // A rank that continues has begun a step, so this cannot happen more often than there are
    // steps.
    const int attempts = kMaxJoinAttempts + static_cast<int>(program_.steps.size());
    for (int attempt = 0;; ++attempt) {
      generation_ = roster.generation;
      environment_.begin_connect(step);
      Result<Memberships> memberships = environment_.connect(roster);
      Status status = memberships ? Status() : memberships.error();
      if (memberships) {
        watch_groups(*memberships);
        memberships_ = *memberships;
        user_.take_groups(memberships_);
        state_->start();
        try_misfit(roster);
        status = enter(std::move(*memberships));
        user_.join();
      }
      if (status.ok() || environment_.exited() || attempt == attempts) return status;
      const bool has_reducer =
          memberships && subject_->names_buckets() && !subject_->has_failed_to_begin();
      if (has_reducer && !subject_->poisoned())
        note_wrong("a reducer whose reset has failed does not refuse work");
      observation_.failed_joins.push_back(
          {step, generation_, status.to_string(), status.failure()});
      for (const Membership& each : memberships_) each.group->abort(status);
      Resume resume = environment_.meet(false, step);
      expect_after(resume);
      step = resume.step;
      roster = std::move(resume.roster);
    }
  }

  // Before the construction or the reset that the program's misfit names, all ranks try one that
  // must be refused, and meet in a collective of their own on the same group.
  void try_misfit(const Roster& roster) {
    const reference::Misfit& misfit = program_.misfit;
    if (roster.generation != (misfit.at_reset ? 1u : 0u)) return;
    const std::vector<std::uint32_t> members = members_of(program_, roster, environment_.rank());
    const std::optional<reference::Refusal> refusal = reference::refusal_of(program_, members);
    if (!refusal) return;
    const bool does_not_fit =
        refusal->by == reference::Refusal::By::kEveryRank || refusal->rank == environment_.rank();
    std::vector<std::uint64_t> before;
    state_->record(before);
    properties::ObservedRefusal& seen = observation_.refusals.emplace_back();
    seen.status = subject_->attempt({parameters_, state_->buffers(), engine_, program_,
                                     environment_, memberships_, does_not_fit, misfit.at_reset});
    std::vector<std::uint64_t> after;
    state_->record(after);
    seen.keeps_state = before == after;
    seen.next_collective = gather_bytes(*memberships_.front().group, seen.next_sequence);
  }

  // Gathers a few bytes of each rank.
  Status gather_bytes(ProcessGroup& group, std::int64_t& sequence) {
    constexpr std::size_t kBytes = 5;
    std::array<std::byte, kBytes> mine{};
    std::vector<std::byte> all(kBytes * static_cast<std::size_t>(group.size()));
    Collective collective;
    collective.op = Op::kAllGather;
    collective.dtype = DType::kByte;
    collective.count = kBytes;
    collective.data = mine.data();
    collective.gathered = all.data();
    Work work;
    LOCKSTEP_RETURN_IF_ERROR(group.start(collective, work));
    sequence = work.sequence();
    note_wrong(flaw_of_early_wait(work));
    return wait_behind(work, {&group});
  }

  void train_all(std::uint32_t step) {
    while (true) {
      const bool recovering = train_on(step);
      if (environment_.exited()) break;
      if (recovering || writes(Environment::Records::kOfAll)) note_flight_record();
      if (!recovering) try_join_that_differs();
      if (!recovering && leaves_at_once()) {
        if (Status status = environment_.go_on_with_fewer(); !status.ok())
          observation_.recovery = std::move(status);
        observation_.finished = true;
        break;
      }
      // A rank whose own step succeeded keeps its group until all ranks have met, because peers may
      // still be in the middle of the step.
      Resume resume = environment_.meet(!recovering, step);
      observation_.finished = !resume.recover;
      if (observation_.finished) break;
      note_flight_record();  // for a healthy rank, which learns here that its peers failed
      if (!recover(resume)) break;
      step = resume.step;
    }
  }

  // Reducers that share a group may end in a mismatch on some ranks (F7), and then all recover.
  bool may_mismatch() const {
    return reference::reducer_count(program_) > 1 && !program_.options.group_each;
  }

  // Whether no other rank needs this rank any more (F5).
  bool leaves_at_once() const {
    if (may_mismatch()) return false;
    const bool may_fail = std::find(step_errs_.begin(), step_errs_.end(), true) != step_errs_.end();
    return !may_fail && !joins() && environment_.leaves_at_once();
  }

  // Trains up to the end of the program, or until all ranks recover; returns true if they recover.
  bool train_on(std::uint32_t& step) {
    const auto steps = static_cast<std::uint32_t>(program_.steps.size());
    do {
      if (joins()) LOCKSTEP_CHECK(subject_->begin_join(program_).ok());
      // The step after the last one of this join; without a join, the number of steps.
      const std::uint32_t end = step < program_.rejoin_step ? program_.rejoin_step : steps;
      while (step < end && reference::has_input(program_, environment_.rank(), step)) {
        if (step > 0 && step == program_.recreate_before_step && !renew()) return true;
        if (train_step(step++)) return true;
      }
      if (joins() && !join_others(step, end == steps)) return true;
      // Steps without inputs for this rank may end in an error of the other group.
      while (step < end)
        if (step_errs_[step++]) return true;
    } while (step < steps);
    return false;
  }

  // Called when the rank is done. All ranks of a program come here, or none does.
  void try_join_that_differs() {
    const bool may_fail = std::find(step_errs_.begin(), step_errs_.end(), true) != step_errs_.end();
    const Environment& asked = environment_.of_case();
    if (asked.unlike_join == Environment::UnlikeJoin::kNone || may_fail || may_mismatch()) return;
    if (environment_.leaves_at_once() || !environment_.is_undisturbed()) return;
    environment_.begin_step(static_cast<std::uint32_t>(program_.steps.size()));
    std::string& wrong = observation_.wrong_answer;
    const std::string flaw = subject_->wrong_join(asked);
    if (wrong.empty()) wrong = flaw;
  }

  // Creates other reducers of the same parameters on the same groups.
  bool renew() {
    environment_.begin_step(static_cast<std::uint32_t>(program_.steps.size()));
    const Status status = subject_->construct(parameters_, state_->buffers(), engine_, program_,
                                              environment_, memberships_);
    if (environment_.exited()) return false;
    for (const auto& each : memberships_)
      if (!status.ok()) each.group->abort(status);
    record_hooks();
    return status.ok();
  }

  bool joins() const { return program_.options.join != reference::Join::kNone; }

  // Takes part until no rank has inputs any more (S2); `step` is the first one for which this rank
  // has none.
  bool join_others(std::uint32_t step, bool is_last) {
    const auto steps = static_cast<std::uint32_t>(program_.steps.size());
    const bool shadows = !reference::has_input(program_, environment_.rank(), step);
    environment_.begin_step(shadows ? step : steps);  // no fault is planned there
    watch_.enter(faults::ReducerState::kJoining);
    user_.visit(subject_.get());
    const Status status = subject_->end_join();
    user_.join();
    watch_.enter(faults::ReducerState::kIdle);
    if (environment_.exited()) return false;
    environment_.begin_step(steps);
    if (!status.ok()) {
      observation_.joining = status;
      observation_.failed_end_joins.push_back({step, generation_, status.to_string()});
      subject_->abort(status);
      return false;
    }
    if (!is_last) {  // the next step begins with a trace of its own
      std::vector<properties::ObservedCollective> of_others;
      subject_->take_trace(of_others);
      return true;
    }
    ObservedStep& ending = observation_.ending.emplace_back();
    ending.step = steps;
    snapshot(ending);
    return true;
  }

  // Returns true if all ranks recover after this step, as far as this rank knows.
  bool train_step(std::uint32_t step) {
    environment_.begin_step(step);
    observation_.steps.emplace_back().step = step;
    ObservedStep& observed = observation_.steps.back();
    observed.generation = generation_;
    observed.begin_us = now_us();
    const bool was_aborted = visit_between_calls(observed);
    if (observed.status.ok()) run_step(program_.steps[step], observed);
    user_.join();
    watch_.enter(faults::ReducerState::kIdle);
    observed.end_us = now_us();
    if (environment_.exited()) return true;
    ask_for_diagnosis();
    if (observed.status.ok() && was_aborted && !observed.collectives.empty())
      note_wrong("a step has started collectives of groups that its user had aborted before");
    if (!observed.status.ok()) {
      observed.launched = has_launched();
      observed.poisoned = subject_->poisoned();
      note_flight_record();
      if (environment_.detailed()) subject_->take_trace(observed.collectives);
      subject_->abort(observed.status);
      ask_for_more();
      try_ended_group();
    }
    const bool peers_fail = step_errs_[step];
    // Ranks without inputs wait for the next pass, which never comes.
    if (peers_fail && observed.status.ok() && joins())
      subject_->abort(Status(Code::kAborted, "a peer failed in this step"));
    return !observed.status.ok() || peers_fail;
  }

  void note_wrong(std::string answer) {
    if (observation_.wrong_answer.empty()) observation_.wrong_answer = std::move(answer);
  }

  // Called between two passes, in the middle of one, and after a failure.
  void ask_for_diagnosis() {
    std::string& wrong = observation_.wrong_answer;
    if (wrong.empty() && environment_.of_case().asks_diagnosis)
      wrong = subject_->wrong_diagnosis(environment_.keeps_records());
  }

  // Called after a failure, when the rank has ended its groups.
  void ask_for_more() {
    std::string& wrong = observation_.wrong_answer;
    if (wrong.empty() && environment_.of_case().asks_after_failure)
      wrong = subject_->wrong_refusal();
  }

  // Called after the rank has ended its group: the group starts no collective, and its first cause
  // stays (process_group.h).
  void try_ended_group() {
    std::string& wrong = observation_.wrong_answer;
    if (!wrong.empty() || !environment_.of_case().uses_ended_group) return;
    ProcessGroup& group = *memberships_.front().group;
    group.abort(Status(Code::kInternal, "a second cause"));
    std::int64_t sequence = kNone;
    const Status status = gather_bytes(group, sequence);
    if (sequence != kNone)
      wrong = "a group that has ended starts a collective, which ends so: " + status.to_string();
    else if (status.ok() || status.code() == Code::kInternal)
      wrong = "a group that has ended does not say why: " + status.to_string();
  }

  // Returns whether the rank has started a collective of its pass. With a join or two reducers
  // other collectives look the same, and the subject is asked.
  bool has_launched() const {
    const bool is_seen =
        subject_->names_buckets() && !joins() && reference::reducer_count(program_) == 1;
    return is_seen ? recorder_.has_started() : subject_->launched_in_pass();
  }

  // Returns whether the rank writes these records, or more. They cost time.
  bool writes(Environment::Records records) const {
    return environment_.detailed() || environment_.of_case().records >= records;
  }

  // Only the first flight record of a generation is stored.
  void note_flight_record() {
    if (!writes(Environment::Records::kOfFailures)) return;
    auto& records = observation_.records;
    if (!records.empty() && records.back().generation == generation_) return;
    const std::uint32_t group = reference::group_of(program_, environment_.rank());
    std::optional<FlightRecord> record = subject_->flight_record();
    if (!record) return;
    records.push_back({generation_, group, std::move(*record)});
    if (writes(Environment::Records::kWithTraces)) records.back().trace = subject_->trace_text();
  }

  // Called when nothing runs any more: records the state of this rank's current step.
  void note_end() {
    note_flight_record();
    if (observation_.steps.empty() || !subject_->flight_record()) return;
    ObservedStep& last = observation_.steps.back();
    if (last.collectives.empty()) subject_->take_trace(last.collectives);
  }

  void expect_after(const Resume& resume) {
    recoveries_.push_back({resume.step, resume.roster.members});
    step_errs_ = expected_errors_.after(recoveries_);
  }

  bool recover(Resume& resume) {
    expect_after(resume);
    // No fault is planned for the step behind the last one.
    const auto steps = static_cast<std::uint32_t>(program_.steps.size());
    environment_.begin_step(steps);
    watch_.enter(faults::ReducerState::kResetting);
    observation_.recovery =
        join(std::move(resume.roster), resume.step, [&](Memberships memberships) {
          environment_.begin_reset(resume.step);
          Status status = subject_->has_failed_to_begin()
                              ? subject_->construct(parameters_, state_->buffers(), engine_,
                                                    program_, environment_, std::move(memberships))
                              : subject_->reset(std::move(memberships));
          environment_.begin_step(steps);
          return status;
        });
    if (environment_.exited()) {
      observation_.recovery = Status();  // it has no result any more
      return false;
    }
    watch_.enter(faults::ReducerState::kIdle);
    for (const Ref<Parameter>& parameter : parameters_) parameter->undefine_grad();
    record_hooks();
    for (std::vector<Edge>& roots : held_roots_) roots.clear();
    observation_.ending.clear();
    return observation_.recovery.ok();
  }

  void run_step(const reference::Step& step, ObservedStep& observed) {
    const reference::RankPass& pass = reference::pass_of(step, environment_.rank());
    recorder_.begin(environment_.wants_times());
    taken_.begin();
    seen_times_ = {};
    if (step.kind == PassKind::kNoGrad && pass.skip) {
      remember_storages();
      snapshot(observed);
      return;
    }
    observed.failed_call = Call::kForwardCall;
    builder_->begin_step(step.key);
    Outputs outputs;
    if (pass.recompute != reference::Recompute::kNone) {
      observed.status = recompute(step, pass, observed);
    } else {
      run_calls(step, pass, outputs, observed);
    }
    hold(step.kind, pass, std::move(outputs));
    if (!observed.status.ok()) return;
    observed.failed_call = kNone;
    if (step.kind == PassKind::kSynced && keeps_outputs(pass)) state_->train(step.key);
    snapshot(observed);
    note_wrong(taken_.flaw(recorder_.hooks()));
    // Without outputs that live on, a pass leaves nothing but gradients.
    if (step.kind == PassKind::kSynced && keeps_outputs(pass) && !pass.hold_outputs)
      note_wrong(subject_->wrong_memory(parameters_, tensor_bytes() - own_bytes_));
  }

  // Of all tensors in the host memory of the rank.
  std::uint64_t tensor_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& device : devices_) bytes += device->allocated_bytes();
    return bytes;
  }

  void hold(PassKind kind, const reference::RankPass& pass, Outputs outputs) {
    let_go_of_held();
    if (!pass.hold_outputs) return;
    for (const bool is_synced : {false, true})
      for (const std::uint32_t output : reference::held_outputs(kind, pass, is_synced))
        if (output < outputs.kept.size())
          held_roots_[is_synced ? 1 : 0].push_back(outputs.kept[output]);
    held_ = std::move(outputs);
  }

  void let_go_of_held() {
    held_ = {};
    for (std::vector<Edge>& roots : held_roots_) roots.clear();
  }

  static bool keeps_outputs(const reference::RankPass& pass) {
    return std::any_of(pass.forwards.begin(), pass.forwards.end(),
                       [](const reference::Forward& forward) { return !forward.discard; });
  }

  void run_calls(const reference::Step& step, const reference::RankPass& pass, Outputs& outputs,
                 ObservedStep& observed) {
    remember_storages();
    bool has_asked = false;
    for (const Call& call : properties::calls_of(program_.options, step.kind, pass)) {
      observed.failed_call = call.place;
      const bool are_all_run = call.kind == Call::Kind::kBackward &&
                               reference::backward_of(pass, call.number).forwards == 0;
      if (are_all_run && !std::exchange(has_asked, true)) ask_for_diagnosis();
      visit_between_calls(observed);
      if (observed.is_destroyed) try_without_reducer(step, pass, outputs.kept);
      if (!observed.status.ok()) return;
      const bool is_refused = user_.has_aborted_reducers() && is_of_reducers(step, pass, call);
      observed.status = make_call(step, pass, call, outputs);
      if (!observed.status.ok()) return;
      if (is_refused) note_wrong("a reducer that its user has aborted does further work");
    }
  }

  // The outputs of a synced forward outlive its reducer, and their backward is refused (F5), unless
  // an earlier one has used up the graph.
  void try_without_reducer(const reference::Step& step, const reference::RankPass& pass,
                           const std::vector<Edge>& outputs) {
    const bool is_synced = step.kind == PassKind::kSynced && !program_.options.manual_sync &&
                           std::none_of(pass.forwards.begin(), pass.forwards.end(),
                                        [](const auto& each) { return each.local; });
    std::vector<Edge> roots;
    std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(roots),
                 [](const Edge& output) { return output.node; });
    if (!is_synced || roots.empty()) return;
    const std::vector<Tensor> gradients(roots.size(), one_);
    const Status status = engine_.backward(roots, gradients, true);
    if (status.code() != Code::kSecondBackward && status.code() != Code::kGraphFreed)
      note_wrong("a backward of a pass whose reducer was destroyed ends so: " + status.to_string());
  }

  // Returns whether the user has aborted the groups.
  bool visit_between_calls(ObservedStep& observed) {
    user_.visit(subject_.get());
    if (user_.is_to_destroy()) {
      environment_.begin_step(static_cast<std::uint32_t>(program_.steps.size()));
      observed.status = user_.destroy_reducers(*subject_, observation_.wrong_answer);
      observed.is_destroyed = true;
    }
    return user_.has_aborted();
  }

  // Whether a reducer that refuses work must refuse this call.
  static bool is_of_reducers(const reference::Step& step, const reference::RankPass& pass,
                             const Call& call) {
    if (call.kind == Call::Kind::kSyncGradients) return true;
    return call.kind == Call::Kind::kForward && step.kind != PassKind::kNoGrad &&
           !pass.forwards[call.number].nodes.empty();
  }

  Status make_call(const reference::Step& step, const reference::RankPass& pass, const Call& call,
                   Outputs& outputs) {
    switch (call.kind) {
      case Call::Kind::kZeroGrad:
        LOCKSTEP_RETURN_IF_ERROR(zero_gradients(program_, parameters_, step.zero_grad));
        remember_storages();
        return {};
      case Call::Kind::kForward:
        return run_forward(step, pass, call.number, outputs);
      case Call::Kind::kSyncGradients:
        return sync_gradients(outputs);
      case Call::Kind::kEvaluate:
        return evaluate(pass.forwards.front());
      case Call::Kind::kOptimizerStep:
        state_->train(step.key);
        return {};
      case Call::Kind::kDrop:
        drop(reference::dropped_outputs(pass, call.number), outputs.kept);
        return {};
      case Call::Kind::kBackward:
        return run_backward(pass, call.number, outputs);
      case Call::Kind::kCheckComplete:
        return subject_->check_complete();
    }
    return {};
  }

  Status evaluate(const reference::Forward& forward) {
    std::vector<Edge> made;
    const auto module = [&](std::vector<Edge>& out) {
      out = builder_->build(forward.nodes, forward.outputs);
      return Status();
    };
    return subject_->forward(PassKind::kNoGrad, module, made);
  }

  Status run_forward(const reference::Step& step, const reference::RankPass& pass, std::uint32_t f,
                     Outputs& outputs) {
    const reference::Forward& forward = pass.forwards[f];
    std::vector<Edge> made;
    std::int64_t built_ns = 0;
    const auto module = [&](std::vector<Edge>& out) {
      watch_.module_begins();
      if (step.kind != PassKind::kNoGrad) state_->run_forward(step.key, f);
      user_.visit(subject_.get());
      out = builder_->build(forward.nodes, forward.outputs);
      out.resize(out.size() + forward.constants);
      built_ns = now_ns();
      return Status();
    };
    const PassKind kind = forward.local ? PassKind::kNoSync : step.kind;
    LOCKSTEP_RETURN_IF_ERROR(subject_->forward(kind, module, made));
    note_forward(kind, made, built_ns);
    if (forward.discard || step.kind == PassKind::kNoGrad) return {};
    move_last(made, forward.constants, outputs.constants);
    std::move(made.begin(), made.end(), std::back_inserter(outputs.kept));
    return {};
  }

  Status sync_gradients(Outputs& outputs) {
    std::vector<Edge>& all = outputs.kept;
    const std::size_t count = outputs.constants.size();
    move_last(outputs.constants, count, all);
    const std::int64_t begun_ns = now_ns();
    Status status = subject_->sync_gradients(all);
    if (!all.empty()) note_armed(begun_ns);
    watch_.module_begins();
    if (status.ok() && !all.empty()) watch_.forward_returned(subject_->bucket_count());
    if (status.ok()) move_last(all, count, outputs.constants);
    return status;
  }

  // Manual sync begins its pass later.
  void note_forward(PassKind kind, const std::vector<Edge>& outputs, std::int64_t built_ns) {
    const bool is_synced = kind == PassKind::kSynced && !program_.options.manual_sync;
    if (!is_synced || outputs.empty()) return;
    note_armed(built_ns);
    if (watch_.is_on()) watch_.forward_returned(subject_->bucket_count());
  }

  // The pass was armed between then and now.
  void note_armed(std::int64_t from_ns) {
    seen_times_.armed_from_ns = from_ns;
    seen_times_.armed_to_ns = now_ns();
  }

  // Runs the step in a checkpoint around the whole model, or in two.
  Status recompute(const reference::Step& step, const reference::RankPass& pass,
                   ObservedStep& observed) {
    LOCKSTEP_RETURN_IF_ERROR(zero_gradients(program_, parameters_, step.zero_grad));
    remember_storages();
    const reference::Forward& forward = pass.forwards.front();
    std::vector<Edge> outputs;
    const auto build = [&](std::vector<Edge>& out) {
      out = builder_->build(forward.nodes, forward.outputs);
      out.resize(out.size() + forward.constants);
      return Status();
    };
    LOCKSTEP_RETURN_IF_ERROR(subject_->forward(PassKind::kNoGrad, build, outputs));
    observed.failed_call = 0;
    std::uint32_t forwards = 0;
    const auto run = [&](const BackwardContext& context) -> Status {
      std::vector<Edge> made;
      std::int64_t built_ns = 0;
      const auto module = [&](std::vector<Edge>& out) {
        watch_.module_begins();
        state_->run_forward(step.key, forwards);
        Status status = build(out);
        built_ns = now_ns();
        return status;
      };
      Status status = subject_->forward(step.kind, module, made);
      if (status.ok()) note_forward(step.kind, made, built_ns);
      const bool is_second = forwards++ > 0;
      const bool is_refused = status.code() == Code::kInvalidArgument;
      if (is_second && is_refused && pass.recompute == reference::Recompute::kTwice) return {};
      LOCKSTEP_RETURN_IF_ERROR(std::move(status));
      made.resize(made.size() - forward.constants);
      const std::vector<Edge> roots = choose_roots(pass, 0, made);
      made.clear();
      return context.engine.backward_nested(context, roots, std::vector<Tensor>(roots.size(), one_),
                                            false);
    };
    std::vector<Edge> next;
    if (pass.recompute != reference::Recompute::kOnce)
      next.push_back({Ref<Node>(new RecomputeNode(engine_, {}, run)), 0});
    const Edge root{Ref<Node>(new RecomputeNode(engine_, std::move(next), run)), 0};
    seen_times_.backward_begun_ns = now_ns();
    Status status = engine_.backward({&root, 1}, {&one_, 1}, false);
    seen_times_.backward_ended_ns = now_ns();
    return status;
  }

  Status run_backward(const reference::RankPass& pass, std::uint32_t call, Outputs& outputs) {
    const bool is_last = call + 1 == reference::call_count(pass);
    const reference::Backward& backward = reference::backward_of(pass, call);
    const std::vector<Edge>& held = held_roots_[backward.held_synced ? 1 : 0];
    const std::vector<Edge> roots = choose_roots(pass, call, backward.held ? held : outputs.kept);
    const std::vector<Tensor> gradients(roots.size(), one_);
    if (is_last && !pass.keep_outputs) outputs = {};
    const bool is_synced = reference::is_synced_call(pass, call);
    recorder_.pause(!is_synced);
    if (roots.empty()) return {};
    if (is_synced) seen_times_.backward_begun_ns = now_ns();
    Status status = engine_.backward(roots, gradients, !is_last);
    if (is_synced) seen_times_.backward_ended_ns = now_ns();
    if (status.ok()) watch_.backward_returned(is_last);
    if (status.ok() && is_synced && !is_last && !taken_.is_empty() && subject_->is_amid_pass())
      taken_.note(parameters_, recorder_.hooks());
    return status;
  }

  void remember_storages() {
    storages_.clear();
    for (const Ref<Parameter>& parameter : parameters_)
      storages_.push_back(parameter->grad().defined() ? parameter->grad().storage()
                                                      : Ref<Storage>());
  }

  void snapshot(ObservedStep& observed) {
    observed.gradients.resize(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      ObservedGradient& gradient = observed.gradients[i];
      const Tensor& tensor = parameters_[i]->grad();
      gradient.defined = tensor.defined();
      if (!tensor.defined()) continue;
      gradient.same_storage = i < storages_.size() && storages_[i] == tensor.storage();
      gradient.offset = observation_.bits.size();
      gradient.byte_in_storage =
          static_cast<std::uint64_t>(tensor.data() - tensor.storage()->data());
      if (program_.options.views) gradient.shares_with = first_in_storage(i);
      append_gradient(tensor, parameters_[i]->shape(), memory_, observation_.bits);
    }
    storages_.clear();
    state_->record(observed.state);
    const std::size_t before = observed.collectives.size();
    subject_->take_trace(observed.collectives);
    if (subject_->names_buckets()) observed.hooks = recorder_.hooks();
    if (environment_.wants_times()) {
      subject_->take_pass_times(observed.pass_times);
      observed.seen_times = seen_times_;
      observed.seen_times.hooks = recorder_.times();
    }
    if (!program_.options.rebuild) return;
    observed.hook_order = recorder_.order(program_);
    for (std::size_t i = before; i < observed.collectives.size(); ++i)
      if (observed.collectives[i].op == properties::ObservedCollective::Op::kBroadcastOrder)
        observed.rebuilt_order = subject_->rebuilt_order();
  }

  // Returns the first parameter whose gradient has the storage of parameter `i`'s gradient.
  std::uint32_t first_in_storage(std::size_t i) const {
    const Ref<Storage>& storage = parameters_[i]->grad().storage();
    std::uint32_t first = 0;
    while (!(parameters_[first]->grad().storage() == storage)) ++first;
    return first;
  }

  const Program& program_;
  properties::ExpectedErrors& expected_errors_;
  std::vector<bool> step_errs_;  // whether some rank must return an error in the step
  RankEnvironment& environment_;
  RankObservation& observation_;
  Engine engine_;
  std::vector<Ref<Parameter>> parameters_;
  std::optional<LaneState> state_;
  std::optional<GraphBuilder> builder_;
  TensorMemory memory_;
  Tensor one_;  // every root starts with this gradient
  StateWatch watch_;
  PassRecorder recorder_;  // outlives the subject's use of the parameters
  TakenGradients taken_;
  std::vector<std::unique_ptr<HostDevice>>& devices_;
  std::uint64_t own_bytes_ = 0;  // of the tensors that the rank has before it has gradients
  UserAbort user_;
  // Guards observation_.wrong_padding. It is not the platform's mutex, for the same reason as
  // PassRecorder::plain_mutex_.
  std::mutex padding_mutex_;
  // The rank holds these outputs of the step before, which may outlive the subject and a recovery.
  // A backward may still start from those in held_roots_ (Backward::held), but not after a
  // recovery.
  Outputs held_;
  std::array<std::vector<Edge>, 2> held_roots_;  // under no_sync, and synced
  std::unique_ptr<TrainingSubject> subject_;
  Memberships memberships_;
  std::uint32_t generation_ = 0;
  std::vector<Ref<Storage>> storages_;
  properties::SeenPassTimes seen_times_;  // of this step
  std::vector<reference::Recovery> recoveries_;
};

}  // namespace

void train(const Program& program, properties::ExpectedErrors& expected_errors,
           const SubjectFactory& make_subject, RankEnvironment& environment,
           std::vector<std::unique_ptr<HostDevice>>& devices, RankObservation& observation) {
  Training(program, expected_errors, environment, devices, observation).run(make_subject);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
