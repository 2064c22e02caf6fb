// The sim lane: every rank is a fiber; one OS thread, virtual time, simulated links. Compiled once
// per build of the reducer.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>

#include "faults/injector.h"
#include "faults/sim/device/sim_device.h"
#include "faults/sim/nccl/nccl_profile.h"
#include "faults/sim/nccl/sim_nccl.h"
#include "faults/sim/network.h"
#include "faults/sim/process_group.h"
#include "faults/sim/scheduler/scheduler.h"
#include "properties/case/hook_error.h"
#include "properties/lane/host_side_check.h"
#include "properties/lane/lane.h"
#include "properties/lane/late_ends.h"
#include "properties/lane/nccl_groups.h"
#include "properties/lane/rank_stores.h"
#include "properties/lane/refusal_check.h"
#include "properties/lane/report_check.h"
#include "properties/lane/roster_check.h"
#include "properties/observe/coordinator.h"
#include "properties/observe/training.h"
#include "properties/subject/subject_factory.h"
#include "reducer/base/check.h"
#include "reducer/comm/staged_group.h"
#include "reducer/comm/store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using properties::Case;
using properties::Environment;
using properties::Observation;
using properties::Subject;

// NCCL has a watchdog, which needs a limit even for cases that otherwise never time out.
constexpr platform::Duration kLongest = std::chrono::minutes(1);
constexpr platform::Duration kWatch = std::chrono::milliseconds(20);
constexpr std::int64_t kGenerations = 4096;  // for each of the groups of a rank
constexpr std::uint64_t kStepLimit = 3'000'000;

simulation::Schedule to_simulation(const properties::Schedule& schedule) {
  // Both list the policies in one order; no case has the last one, which counts events.
  static_assert(static_cast<std::size_t>(properties::Schedule::Policy::kSurw) ==
                static_cast<std::size_t>(simulation::Policy::kSurw));
  static_assert(static_cast<std::size_t>(simulation::Policy::kSurw) + 2 == simulation::kPolicies);
  simulation::Schedule out;
  out.policy = static_cast<simulation::Policy>(schedule.policy);
  out.seed = schedule.seed;
  for (const auto& deviation : schedule.deviations)
    out.deviations.push_back({deviation.choice, deviation.fiber});
  return out;
}

simulated::Latency latency_of(Environment::Latency latency) {
  using std::chrono::microseconds;
  switch (latency) {
    case Environment::Latency::kShort:
      return {microseconds(0), microseconds(20)};
    case Environment::Latency::kLong:
      return {microseconds(50), microseconds(200)};
    case Environment::Latency::kNone:
      break;
  }
  return {};
}

// Where a group cannot be shrunk on one of the ranks that remain, all of them must give up, and the
// next group is made anew.
bool is_shrink_faulty(const Case& c) { return c.environment.shrink_fails_on != 0; }

// Where a communicator cannot be revoked on one rank, or not to the end, the rank must abort it,
// and the next group is made anew.
std::optional<simulated::SimNcclFault> fault_of_revoke(const Case& c) {
  using Kind = simulated::SimNcclFault::Kind;
  if (c.environment.revoke_fails_on == 0) return std::nullopt;
  simulated::SimNcclFault fault;
  fault.kind = c.environment.revoke_fails_late ? Kind::kAsyncError : Kind::kResult;
  fault.process = static_cast<int>(c.environment.revoke_fails_on - 1);
  fault.function = "ncclCommRevoke";
  return fault;
}

// The state that the ranks of one run share. After a deadlock its fibers are abandoned with
// pointers to it, so this state is abandoned, too.
struct World {
  faults::Injector injector;
  simulated::SimNetwork network;
  std::optional<Coordinator> coordinator;
  std::shared_ptr<Store> store;
  std::shared_ptr<Store> rosters;  // RosterCheck; no faults act on it
  std::vector<std::vector<std::unique_ptr<HostDevice>>> devices;  // by rank
  simulated::GroupOptions group;
  std::optional<simulated::SimNccl> nccl;  // for a case that uses NCCL
  bool aborts_may_hang = false;            // in that NCCL
  bool detailed = false;
  std::vector<std::function<void()>> notes;  // by rank: RankEnvironment::watch()
};

class SimEnvironment final : public RankEnvironment {
 public:
  SimEnvironment(World& world, const Case& c, std::uint32_t rank)
      : world_(world), case_(c), rank_(rank), rosters_(*world.rosters, c.program.world, rank) {
    if (c.program.options.transport != reference::Transport::kHost) {
      simulated::DeviceOptions options;
      options.refuses = [this] { return refuses_memory(); };
      if (c.program.options.transport == reference::Transport::kStaged)
        options.fails_call = [this] { return fails_call(); };
      gpu_ = std::make_unique<simulated::SimDevice>(std::move(options));
    }
    if (world_.nccl) nccl_.emplace(world_.nccl->api(), *gpu_, c.environment, rank);
  }

  std::uint32_t rank() const override { return rank_; }
  Device* gpu() override { return gpu_.get(); }

  const std::string& wrong_answer() const {
    return wrong_answer_.empty() ? rosters_.wrong() : wrong_answer_;
  }

  // Records what is left of the rank on the GPU after everything of the rank was destroyed, and
  // destroys the GPU. A GPU with leaked memory remains, because the leaked storages still point to
  // it.
  void close_gpu(Observation& observation) {
    if (nccl_) {
      observation.ranks[rank_].shrunk = nccl_->shrunk();
      observation.ranks[rank_].shrunk_by_nccl = nccl_->shrunk_by_nccl();
      observation.ranks[rank_].scaled_down = nccl_->scaled_down();
      nccl_.reset();
    }
    if (!gpu_) return;
    for (const simulated::Finding& finding : gpu_->findings())
      observation.races.push_back("rank " + std::to_string(rank_) + ", " + finding.to_string());
    // A group whose abort hangs keeps what it has until its process ends.
    const bool is_stuck = world_.nccl && world_.nccl->has_hung_abort(rank_);
    if (is_stuck && !gpu_->is_left() && wrong_answer_.empty())
      wrong_answer_ = "a group whose abort hangs does not leave the GPU to the process (F8)";
    if (!is_stuck) observation.leaked_bytes += gpu_->allocated_bytes();
    if (!is_stuck && !may_keep_stream() && gpu_->streams_in_use() > 0 && wrong_answer_.empty())
      wrong_answer_ =
          fmt::format("{} streams of the GPU were not given back", gpu_->streams_in_use());
    if (gpu_->allocated_bytes() == 0 && !is_stuck) return gpu_.reset();
    gpu_->stop();
    (void)gpu_.release();
  }

  Result<Memberships> connect(const Roster& roster) override {
    const reference::Program& program = case_.program;
    const reference::Replicated& options = program.options;
    const auto store = std::make_shared<RankStore>(world_.store, world_.network, rank_);
    const std::uint32_t group = reference::group_of(program, rank_);
    const std::vector<std::uint32_t> members = members_of(program, roster, rank_);
    Memberships memberships;
    if (gpu_ && !nccl_) staged_uses_.emplace(*gpu_);
    const auto check = report_check_ =
        std::make_shared<ReportCheck>(keeps_records(), gpu_ != nullptr);
    for (std::uint32_t r = 0; r < reference::reducer_count(program); ++r) {
      if (r > 0 && !options.group_each) {
        memberships.push_back(memberships.front());
        continue;
      }
      const auto join = [&](std::uint32_t which) {
        const std::int64_t number = (group * reference::kMaxReducers + r) * 2 + which;
        LOCKSTEP_CHECK_LT(static_cast<std::int64_t>(roster.generation), kGenerations);
        return make_group(members, number, roster.generation);
      };
      Membership membership;
      auto first = join(0);
      if (!first) return failed(first.error());
      membership.group = with_named_refusals(std::move(*first));
      if (reference::has_backward_group(options)) {
        auto second = join(1);
        if (!second) return failed(second.error());
        membership.backward_group = with_named_refusals(std::move(*second));
      }
      const auto own = std::find(members.begin(), members.end(), rank_) - members.begin();
      membership.store = std::make_shared<OwnKeysStore>(store, prefix_of(roster, group, r), own,
                                                        wrong_answer_, check);
      if (reference::reducer_count(program) == 1) {  // Two reducers report for themselves.
        membership.group = judged(std::move(membership.group), check);
        if (membership.backward_group)
          membership.backward_group = judged(std::move(membership.backward_group), check);
      }
      memberships.push_back(std::move(membership));
    }
    return memberships;
  }

  platform::Duration failure_grace() const override {
    const platform::Duration least = std::chrono::milliseconds(500);
    return world_.group.timeout == platform::Duration::max()
               ? least
               : std::max(least, world_.group.timeout);
  }

  void begin_step(std::uint32_t step) override {
    judge_pinned_memory();
    const bool is_step = step < case_.program.steps.size();
    if (report_check_ && is_step) report_check_->begin_step();
    if (report_check_ && !is_step) report_check_->end_step();
    if (is_step)
      world_.network.injector_of(rank_).begin_step(rank_, step);
    else
      world_.network.injector_of(rank_).end_step(rank_);
  }

  void begin_connect(std::uint32_t step) override {
    if (report_check_) report_check_->end_step();
    world_.network.injector_of(rank_).begin_connect(rank_, step);
  }
  void begin_reset(std::uint32_t step) override {
    world_.network.injector_of(rank_).begin_reset(rank_, step);
  }

  bool wants_states() const override { return !case_.faults.faults.empty(); }
  void set_state(faults::ReducerState state) override {
    world_.network.injector().set_state(rank_, state);
  }

  std::optional<faults::Fault> visit_user_place() override {
    return world_.network.injector_of(rank_).on_user_place(rank_);
  }

  void visit_node() override {
    reach_user_place();
    const faults::NodeFault fault = world_.network.injector_of(rank_).on_node(rank_);
    if (fault.slow_us != 0) {
      simulation::Scheduler* scheduler = simulation::Scheduler::running();
      scheduler->sleep_until(scheduler->now() + std::chrono::microseconds(fault.slow_us));
    }
    if (fault.throws) throw std::runtime_error("planned by the case");
  }

  Status visit_hook(faults::HookCall call) override {
    return properties::failure_of_hook(world_.network.injector_of(rank_).on_hook(rank_, call));
  }

  bool refuses_memory() override { return world_.network.injector_of(rank_).on_memory(rank_); }

  bool keeps_records() const override {
    const auto& faults = case_.faults.faults;
    return std::none_of(faults.begin(), faults.end(), [](const faults::Fault& fault) {
      return faults::is_of_store(fault.kind) || faults::is_store_call(fault.kind) ||
             fault.kind == faults::Kind::kMemoryRefused;
    });
  }

  bool is_undisturbed() const override { return case_.faults.faults.empty(); }

  bool exited() const override { return world_.network.exited(rank_); }

  Resume meet(bool finished, std::uint32_t next_step) override {
    Resume resume = world_.coordinator->meet(rank_, finished, next_step);
    if (resume.recover && case_.environment.rosters)
      rosters_.check(resume.roster.generation, resume.roster.members);
    return resume;
  }

  // NCCL's communicators end one by one without an error.
  bool leaves_at_once() const override {
    return case_.environment.leaves_at_once || (world_.nccl && case_.faults.faults.empty());
  }

  Status go_on_with_fewer() override {
    return nccl_ ? nccl_->scale_down(nccl_options()) : Status();
  }

  const Environment& of_case() const override { return case_.environment; }
  bool wants_times() const override { return case_.environment.times; }
  bool detailed() const override { return world_.detailed; }
  void watch(std::function<void()> note) override { world_.notes[rank_] = std::move(note); }

 private:
  // A group that goes through host memory waits for its GPU in threads of its own
  // (staged_group.cc).
  bool fails_call() {
    const simulation::Scheduler* const scheduler = simulation::Scheduler::running();
    const bool is_of_group =
        scheduler != nullptr && scheduler->current_name().find(" staged ") != std::string::npos;
    return is_of_group && world_.network.injector_of(rank_).on_call(rank_);
  }

  std::shared_ptr<ProcessGroup> judged(std::shared_ptr<ProcessGroup> group,
                                       const std::shared_ptr<ReportCheck>& check) {
    return std::make_shared<ReportingGroup>(std::move(group), check, wrong_answer_);
  }
  // The simulator's own group is none of the reducer's.
  std::shared_ptr<ProcessGroup> with_named_refusals(std::shared_ptr<ProcessGroup> group) {
    if (!gpu_) return group;
    return std::make_shared<NamedRefusals>(std::move(group), wrong_answer_);
  }

  void judge_pinned_memory() {
    if (!staged_uses_ || !is_undisturbed()) return;
    staged_uses_->begin_step();
    if (wrong_answer_.empty()) wrong_answer_ = staged_uses_->flaw();
  }

  // A group that goes through host memory, and whose waits for the GPU fail twice, keeps its
  // stream.
  bool may_keep_stream() const {
    const auto& plan = case_.faults.faults;
    return case_.program.options.transport == reference::Transport::kStaged &&
           std::count_if(plan.begin(), plan.end(), [](const faults::Fault& fault) {
             return fault.kind == faults::Kind::kCallError;
           }) > 1;
  }

  Result<std::shared_ptr<ProcessGroup>> make_group(const std::vector<std::uint32_t>& members,
                                                   std::int64_t number, std::uint32_t generation) {
    if (nccl_) return make_nccl(members, number, generation);
    std::shared_ptr<ProcessGroup> host = simulated::SimProcessGroup::join(
        world_.network, number * kGenerations + generation, members, rank_, world_.group);
    if (!gpu_) return host;
    host = std::make_shared<HostSideCheck>(std::move(host), *staged_uses_, wrong_answer_);
    auto staged = StagedGroup::create(std::move(host), *gpu_);
    if (!staged) return failed(staged.error());
    return std::shared_ptr<ProcessGroup>(std::move(*staged));
  }

  NcclOptions nccl_options() const {
    NcclOptions options;
    options.timeout = std::min(world_.group.timeout, kLongest);
    options.connect_timeout = options.timeout;
    options.poll = kWatch;  // polling costs virtual time
    options.notice = kWatch;
    // A rank whose abort hangs must still come to the next group before the others give up.
    if (world_.aborts_may_hang) {
      options.grace = options.timeout / 32;
      options.end_timeout = options.timeout / 8;
    }
    return options;
  }
  Result<std::shared_ptr<ProcessGroup>> make_nccl(const std::vector<std::uint32_t>& members,
                                                  std::int64_t number, std::uint32_t generation) {
    const auto here = std::find(members.begin(), members.end(), rank_);
    NcclOptions options = nccl_options();
    options.name = "nccl" + std::to_string(number * kGenerations + generation);
    return nccl_->make({number, generation, members, static_cast<int>(here - members.begin()),
                        std::make_shared<RankStore>(world_.store, world_.network, rank_)},
                       options);
  }

  World& world_;
  const Case& case_;
  const std::uint32_t rank_;
  std::unique_ptr<simulated::SimDevice> gpu_;
  std::optional<NcclGroups> nccl_;
  RosterCheck rosters_;
  std::string wrong_answer_;
  std::optional<StagedUses> staged_uses_;      // where collectives go through host memory
  std::shared_ptr<ReportCheck> report_check_;  // of the present group
};

class SimLane final : public properties::Lane {
 public:
  explicit SimLane(const Subject& subject)
      : make_subject_(make_subject_factory(subject)),
        nccl_version_(faults::nccl_release(subject.profile.nccl)),
        world_(std::make_unique<World>()) {
    scheduler_.set_step_limit(kStepLimit);
  }

  void run(const Case& c, const reference::Expectation& expectation,
           Observation& observation) override {
    const simulation::Schedule schedule = to_simulation(c.schedule);
    if (simulation::needs_counts(schedule.policy)) {
      Observation counted;
      run(c, {simulation::Policy::kCounting, 0, {}}, expectation, counted);
    }
    run(c, schedule, expectation, observation);
  }

 private:
  void run(const Case& c, const simulation::Schedule& schedule,
           const reference::Expectation& expectation, Observation& observation) {
    prepare(c, schedule);
    observation.ranks.resize(c.program.world);
    world_->detailed = observation.detailed;
    observation.closes_silently = !world_->nccl;
    properties::ExpectedErrors errors(c.program, expectation);
    for (std::uint32_t rank = 0; rank < c.program.world; ++rank) {
      scheduler_.spawn("rank", rank, [this, &c, &errors, &observation, rank] {
        SimEnvironment environment(*world_, c, rank);
        train(c.program, errors, make_subject_, environment, world_->devices[rank],
              observation.ranks[rank]);
        environment.close_gpu(observation);
        std::string& wrong = observation.ranks[rank].wrong_answer;
        if (wrong.empty()) wrong = environment.wrong_answer();
        world_->coordinator->leave(rank);
      });
    }
    observe(scheduler_.run(), observation);
    if (ends_at_once(c)) note_late_ends(observation);
    if (c.program.options.transport == reference::Transport::kNccl &&
        !faults::nccl_profile(nccl_version(c)).aborts_may_hang)
      note_late_aborts(observation);
    note_late_wait(observation);
    note_lock_order(observation);
  }

  // Mutexes are locked in one order, whatever the schedule: two threads that lock two of them in
  // different orders can wait for each other, even if these did not (F1).
  void note_lock_order(Observation& observation) const {
    for (const std::string& cycle : scheduler_.lock_order_violations())
      observation.races.push_back("mutexes are locked in different orders: " + cycle);
  }

  // Nobody waits until a deadline for what has come before it (F1).
  void note_late_wait(Observation& observation) const {
    const std::optional<simulation::LateWait>& late = scheduler_.late_wait();
    if (!late || late->group >= observation.ranks.size()) return;
    std::string& wrong = observation.ranks[late->group].wrong_answer;
    if (wrong.empty())
      wrong = fmt::format(
          "it waited at {} until the deadline, although what it waited for had come before",
          late->at);
  }

  // Returns whether each fault of the case that ends a step acts without taking any time, and the
  // release of NCCL ends a communicator at once.
  bool ends_at_once(const Case& c) const {
    if (c.program.options.transport != reference::Transport::kNccl) return false;
    const faults::NcclProfile profile = faults::nccl_profile(nccl_version(c));
    if (profile.aborts_may_hang || !profile.ends_in_background) return false;
    return std::all_of(c.faults.faults.begin(), c.faults.faults.end(), [](const auto& fault) {
      if (properties::never_ends(fault)) return false;
      return fault.kind == faults::Kind::kNodeThrows || fault.kind == faults::Kind::kHookFails ||
             fault.kind == faults::Kind::kOperationError || fault.kind == faults::Kind::kCallError;
    });
  }

  // The release of NCCL that the subject names. Otherwise some cases have another one than the
  // simulator's own: of those that add in the same order.
  int nccl_version(const Case& c) const {
    if (nccl_version_) return *nccl_version_;
    const std::string_view release = properties::release_of(c.environment.nccl);
    return release.empty() ? simulated::SimNcclOptions().version : *faults::nccl_release(release);
  }

  // The faults that the run plans. Where NCCL loses the errors of a rank's own network, nobody can
  // learn why a collective does not end; the nccl lane plans no such fault either.
  faults::FaultPlan faults_of(const Case& c) const {
    faults::FaultPlan plan = c.faults;
    const bool is_nccl = c.program.options.transport == reference::Transport::kNccl;
    if (!is_nccl || faults::nccl_profile(nccl_version(c)).reports_network_errors) return plan;
    std::erase_if(plan.faults, [](const faults::Fault& fault) {
      return fault.kind == faults::Kind::kOperationError;
    });
    return plan;
  }

  void prepare(const Case& c, const simulation::Schedule& schedule) {
    const auto steps = static_cast<std::uint32_t>(c.program.steps.size());
    scheduler_.reset(schedule);
    world_->injector.reset(faults_of(c), c.program.world, std::max(steps, 1u));
    world_->network.reset(scheduler_, world_->injector, latency_of(c.environment.latency),
                          c.environment.latency_seed);
    if (c.program.options.transport == reference::Transport::kNccl) {
      simulated::SimNcclOptions options;
      options.version = nccl_version(c);
      options.disturbs_frames = c.program.options.verify;
      // If ranks give up, others may still be in the step before.
      options.aborts_lose =
          c.faults.faults.empty() && c.program.options.join == reference::Join::kNone;
      if (is_shrink_faulty(c)) {
        simulated::SimNcclFault fault;
        fault.process = static_cast<int>(c.environment.shrink_fails_on - 1);
        fault.function = "ncclCommShrink";
        options.faults.push_back(fault);
      }
      if (const auto fault = fault_of_revoke(c)) options.faults.push_back(*fault);
      const faults::NcclProfile profile = faults::nccl_profile(options.version);
      world_->aborts_may_hang = profile.aborts_may_hang;
      world_->nccl.emplace(world_->network, options);
    }
    world_->coordinator.emplace(c.program.world);
    world_->store = std::make_shared<HashStore>();
    world_->rosters = std::make_shared<HashStore>();
    world_->devices.clear();
    world_->devices.resize(c.program.world);
    world_->notes.assign(c.program.world, nullptr);
    world_->group.algorithm = c.program.options.order == reference::Order::kBcube
                                  ? simulated::Algorithm::kBcube
                                  : simulated::Algorithm::kRing;
    // If two ranks have one error each, in passes of different reducers, both may wait (F7).
    const bool never = properties::never_times_out(c) && reference::reducer_count(c.program) == 1;
    const auto limit =
        std::chrono::milliseconds(c.timeout_ms == 0 ? properties::kDefaultTimeoutMs : c.timeout_ms);
    world_->group.timeout = never ? platform::Duration::max() : limit;
  }

  void observe(const simulation::Outcome& outcome, Observation& observation) {
    switch (outcome.end) {
      case simulation::End::kFinished:
        observation.end = Observation::End::kFinished;
        break;
      case simulation::End::kDeadlock:
        observation.end = Observation::End::kDeadlock;
        break;
      case simulation::End::kLivelock:
        observation.end = Observation::End::kLivelock;
        break;
    }
    observation.wait_graph = outcome.wait_graph;
    observation.trace_hash = scheduler_.trace_hash();
    observation.choices = scheduler_.choices();
    observation.preemptions = scheduler_.preemptions();
    observation.deviations.reserve(scheduler_.deviations().size());
    for (const simulation::Deviation& deviation : scheduler_.deviations())
      observation.deviations.emplace_back(deviation.choice, deviation.fiber);
    observation.elapsed_us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(scheduler_.now()).count());
    observation.fired = world_->injector.fired();
    observation.recoveries = world_->coordinator->recoveries();
    for (std::uint32_t rank = 0; rank < observation.ranks.size(); ++rank)
      observation.ranks[rank].silenced = world_->injector.silenced(rank);
    if (observation.end != Observation::End::kFinished) {
      for (const auto& note : world_->notes)
        if (note) note();
      (void)world_.release();
      simulated::SimNccl::abandon();
      world_ = std::make_unique<World>();
      return;
    }
    if (world_->nccl) {
      for (const std::string& misuse : world_->nccl->misuses())
        observation.races.push_back("NCCL: " + misuse);
      observation.leaked_communicators = world_->nccl->open_communicators();
      observation.refused_shrinks = world_->nccl->refused_shrinks();
    }
    world_->nccl.reset();
    for (auto& devices : world_->devices) {
      for (auto& device : devices) {
        if (device->allocated_bytes() == 0) continue;
        observation.leaked_bytes += device->allocated_bytes();
        (void)device.release();  // leaked storages still point to it
      }
    }
  }

  SubjectFactory make_subject_;
  const std::optional<int> nccl_version_;  // if the subject names one
  simulation::Scheduler scheduler_;
  std::unique_ptr<World> world_;
};

}  // namespace

std::unique_ptr<properties::Lane> make_sim_lane(const Subject& subject) {
  return std::make_unique<SimLane>(subject);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
