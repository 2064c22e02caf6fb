#include "properties/observe/training.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "properties/observe/module_state.h"
#include "properties/observe/step_calls.h"
#include "properties/observe/step_record.h"
#include "properties/observe/training_checks.h"
#include "properties/observe/user_abort.h"
#include "reducer/base/check.h"
#include "reference/model.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using properties::Environment;
using properties::ObservedStep;
using properties::RankObservation;
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
      : rank_{program, environment, observation,
              Engine(used_workers(program, environment), tie_seed(environment))},
        expected_errors_(expected_errors),
        step_errs_(expected_errors.after({})),
        record_(rank_),
        checks_(rank_, devices),
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
        rank_.parameters.push_back(rank_.parameters[owner]);
        continue;
      }
      const reference::Parameter& record = program.parameters[i];
      rank_.parameters.push_back(make_ref<Parameter>(
          "p" + std::to_string(i), *places[record.device], dtype_of(record.dtype), shape_of(record),
          !record.frozen, rank_.engine.next_sequence(),
          record.sparse ? Parameter::Gradients::kSparse : Parameter::Gradients::kDense));
    }
    state_.emplace(program, environment.rank(), rank_.parameters, places);
    calls_.emplace(rank_, *devices[0], *state_, record_, checks_, user_);
    checks_.begin();
  }

  void run(const SubjectFactory& make_subject) {
    subject_ = make_subject();
    rank_.subject = subject_.get();
    if (rank_.environment.detailed()) rank_.environment.watch([this] { record_.note_end(); });
    Resume first = first_group();
    std::uint32_t step = first.step;
    rank_.observation.construction = join(first.roster, step, [&](Memberships memberships) {
      rank_.environment.begin_reset(step);
      Status status = subject_->construct(rank_.parameters, state_->buffers(), rank_.engine,
                                          rank_.program, rank_.environment, std::move(memberships));
      rank_.environment.begin_step(static_cast<std::uint32_t>(rank_.program.steps.size()));
      return status;
    });
    if (rank_.environment.exited()) {
      rank_.observation.construction = Status();  // it has no result any more
    } else if (rank_.observation.construction.ok()) {
      if (subject_->names_buckets()) record_.watch().begin();
      record_.record_hooks();
      train_all(step);
    }
    if (rank_.observation.construction.ok()) rank_.observation.layout = subject_->saved_layout();
    checks_.look_at_layouts();
    record_.stop_recording();
    user_.take_groups({});  // so that the reducer is the last owner of its groups
    rank_.observation.exited = rank_.environment.exited();
    rank_.environment.watch({});
    rank_.environment.set_user_place({});
  }

 private:
  // That of all ranks, unless this rank joins later.
  Resume first_group() {
    if (auto joining = rank_.environment.joining()) {
      recoveries_ = std::move(joining->recoveries);
      step_errs_ = expected_errors_.after(recoveries_);
      return std::move(joining->resume);
    }
    Resume first;
    for (std::uint32_t r = 0; r < rank_.program.world; ++r) first.roster.members.push_back(r);
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

  // Joins a group of `roster` with `enter`. A peer may have continued, met a fault, and left this
  // rank in the middle of the join: then all ranks meet again, and continue from `step`.
  template <class Enter>
  Status join(Roster roster, std::uint32_t& step, Enter enter) {
    // A rank that continues has begun a step, so this cannot happen more often than there are
    // steps.
    const int attempts = kMaxJoinAttempts + static_cast<int>(rank_.program.steps.size());
    for (int attempt = 0;; ++attempt) {
      rank_.generation = roster.generation;
      rank_.environment.begin_connect(step);
      Result<Memberships> memberships = rank_.environment.connect(roster);
      Status status = memberships ? Status() : memberships.error();
      if (memberships) {
        record_.watch_groups(*memberships, [this] { user_.visit(); });
        memberships_ = *memberships;
        user_.take_groups(memberships_);
        state_->start();
        checks_.try_disagreement(roster, memberships_, *state_);
        status = enter(std::move(*memberships));
        user_.join();
      }
      if (status.ok() || rank_.environment.exited() || attempt == attempts) return status;
      if (memberships) checks_.look_at_failed_reset();
      rank_.observation.failed_joins.push_back(
          {step, rank_.generation, status.to_string(), status.failure()});
      for (const Membership& each : memberships_) each.group->abort(status);
      Resume resume = rank_.environment.meet(false, step);
      expect_after(resume);
      step = resume.step;
      roster = std::move(resume.roster);
    }
  }

  void train_all(std::uint32_t step) {
    while (true) {
      const bool recovering = train_on(step);
      if (rank_.environment.exited()) break;
      if (recovering || record_.writes(Environment::Records::kOfAll)) record_.note_flight_record();
      if (!recovering && !may_fail() && !may_mismatch()) checks_.try_join_that_differs();
      if (!recovering && leaves_at_once()) {
        if (Status status = rank_.environment.go_on_with_fewer(); !status.ok())
          rank_.observation.recovery = std::move(status);
        rank_.observation.finished = true;
        break;
      }
      // A rank whose own step succeeded keeps its group until all ranks have met, because peers may
      // still be in the middle of the step.
      Resume resume = rank_.environment.meet(!recovering, step);
      rank_.observation.finished = !resume.recover;
      if (rank_.observation.finished) break;
      record_.note_flight_record();  // for a healthy rank, which learns here that its peers failed
      if (!recover(resume)) break;
      step = resume.step;
    }
  }

  // Reducers that share a group may end in a mismatch on some ranks (F7), and then all recover.
  bool may_mismatch() const {
    return reference::reducer_count(rank_.program) > 1 && !rank_.program.options.group_each;
  }

  // Whether some rank must return an error in some step.
  bool may_fail() const {
    return std::find(step_errs_.begin(), step_errs_.end(), true) != step_errs_.end();
  }

  // Whether no other rank needs this rank any more (F5).
  bool leaves_at_once() const {
    if (may_mismatch()) return false;
    return !may_fail() && !joins() && rank_.environment.leaves_at_once();
  }

  // Trains up to the end of the program, or until all ranks recover; returns true if they recover.
  bool train_on(std::uint32_t& step) {
    const auto steps = static_cast<std::uint32_t>(rank_.program.steps.size());
    do {
      if (joins()) LOCKSTEP_CHECK(subject_->begin_join(rank_.program).ok());
      // The step after the last one of this join; without a join, the number of steps.
      const std::uint32_t end =
          step < rank_.program.rejoin_step ? rank_.program.rejoin_step : steps;
      while (step < end && reference::has_input(rank_.program, rank_.environment.rank(), step)) {
        if (step > 0 && step == rank_.program.recreate_before_step && !renew()) return true;
        if (train_step(step++)) return true;
      }
      if (joins() && !join_others(step, end == steps)) return true;
      // Steps without inputs for this rank may end in an error of the other group.
      while (step < end)
        if (step_errs_[step++]) return true;
    } while (step < steps);
    return false;
  }

  // Creates other reducers of the same parameters on the same groups.
  bool renew() {
    rank_.environment.begin_step(static_cast<std::uint32_t>(rank_.program.steps.size()));
    const Status status = subject_->construct(rank_.parameters, state_->buffers(), rank_.engine,
                                              rank_.program, rank_.environment, memberships_);
    if (rank_.environment.exited()) return false;
    for (const auto& each : memberships_)
      if (!status.ok()) each.group->abort(status);
    record_.record_hooks();
    return status.ok();
  }

  bool joins() const { return rank_.program.options.join != reference::Join::kNone; }

  // Takes part until no rank has inputs any more (S2); `step` is the first one for which this rank
  // has none.
  bool join_others(std::uint32_t step, bool is_last) {
    const auto steps = static_cast<std::uint32_t>(rank_.program.steps.size());
    const bool shadows = !reference::has_input(rank_.program, rank_.environment.rank(), step);
    rank_.environment.begin_step(shadows ? step : steps);  // no fault is planned there
    record_.watch().enter(faults::ReducerState::kJoining);
    user_.visit(subject_.get());
    const Status status = subject_->end_join();
    user_.join();
    record_.watch().enter(faults::ReducerState::kIdle);
    if (rank_.environment.exited()) return false;
    rank_.environment.begin_step(steps);
    if (!status.ok()) {
      rank_.observation.joining = status;
      rank_.observation.failed_end_joins.push_back({step, rank_.generation, status.to_string()});
      subject_->abort(status);
      return false;
    }
    if (!is_last) {  // the next step begins with a trace of its own
      std::vector<properties::ObservedCollective> of_others;
      subject_->take_trace(of_others);
      return true;
    }
    ObservedStep& ending = rank_.observation.ending.emplace_back();
    ending.step = steps;
    record_.snapshot(ending, *state_);
    return true;
  }

  // Returns true if all ranks recover after this step, as far as this rank knows.
  bool train_step(std::uint32_t step) {
    rank_.environment.begin_step(step);
    rank_.observation.steps.emplace_back().step = step;
    ObservedStep& observed = rank_.observation.steps.back();
    observed.generation = rank_.generation;
    observed.begin_us = now_us();
    const bool was_aborted = calls_->visit_between(observed);
    if (observed.status.ok()) calls_->run(rank_.program.steps[step], observed);
    user_.join();
    record_.watch().enter(faults::ReducerState::kIdle);
    observed.end_us = now_us();
    if (rank_.environment.exited()) return true;
    checks_.ask_for_diagnosis();
    if (observed.status.ok() && was_aborted && !observed.collectives.empty())
      rank_.note_wrong("a step has started collectives of groups that its user had aborted before");
    if (!observed.status.ok()) {
      observed.launched = record_.has_launched();
      observed.poisoned = subject_->poisoned();
      record_.note_flight_record();
      if (rank_.environment.detailed()) subject_->take_trace(observed.collectives);
      subject_->abort(observed.status);
      checks_.ask_for_more();
      checks_.try_ended_group(*memberships_.front().group);
    }
    const bool peers_fail = step_errs_[step];
    // Ranks without inputs wait for the next pass, which never comes.
    if (peers_fail && observed.status.ok() && joins())
      subject_->abort(Status(Code::kAborted, "a peer failed in this step"));
    return !observed.status.ok() || peers_fail;
  }

  void expect_after(const Resume& resume) {
    recoveries_.push_back({resume.step, resume.roster.members});
    step_errs_ = expected_errors_.after(recoveries_);
  }

  bool recover(Resume& resume) {
    expect_after(resume);
    // No fault is planned for the step behind the last one.
    const auto steps = static_cast<std::uint32_t>(rank_.program.steps.size());
    rank_.environment.begin_step(steps);
    record_.watch().enter(faults::ReducerState::kResetting);
    rank_.observation.recovery =
        join(std::move(resume.roster), resume.step, [&](Memberships memberships) {
          rank_.environment.begin_reset(resume.step);
          Status status =
              subject_->has_failed_to_begin()
                  ? subject_->construct(rank_.parameters, state_->buffers(), rank_.engine,
                                        rank_.program, rank_.environment, std::move(memberships))
                  : subject_->reset(std::move(memberships));
          rank_.environment.begin_step(steps);
          return status;
        });
    if (rank_.environment.exited()) {
      rank_.observation.recovery = Status();  // it has no result any more
      return false;
    }
    record_.watch().enter(faults::ReducerState::kIdle);
    for (const Ref<Parameter>& parameter : rank_.parameters) parameter->undefine_grad();
    record_.record_hooks();
    calls_->let_go_of_roots();
    rank_.observation.ending.clear();
    return rank_.observation.recovery.ok();
  }

  TrainingRank rank_;
  properties::ExpectedErrors& expected_errors_;
  std::vector<bool> step_errs_;  // whether some rank must return an error in the step
  std::vector<reference::Recovery> recoveries_;
  std::optional<LaneState> state_;
  StepRecord record_;  // outlives the subject's use of the parameters
  TrainingChecks checks_;
  UserAbort user_;
  std::optional<StepCalls> calls_;  // what it holds may outlive the subject
  std::unique_ptr<TrainingSubject> subject_;
  Memberships memberships_;
};

}  // namespace

void train(const Program& program, properties::ExpectedErrors& expected_errors,
           const SubjectFactory& make_subject, RankEnvironment& environment,
           std::vector<std::unique_ptr<HostDevice>>& devices, RankObservation& observation) {
  Training(program, expected_errors, environment, devices, observation).run(make_subject);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
