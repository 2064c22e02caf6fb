#include "properties/lane/real_environment.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "faults/gloo/faulty_group.h"
#include "properties/case/hook_error.h"
#include "properties/lane/needs.h"
#include "properties/lane/network_store.h"
#include "properties/lane/rank_server.h"
#include "reducer/comm/gloo/file_store.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

namespace {

// The store of the lane. Its files are not the business of the reducer under test: if the store
// fails, it checks at once whether the system accepts files at all.
class WatchedStore final : public Store {
 public:
  explicit WatchedStore(const std::string& directory) : directory_(directory), files_(directory) {}

  Result<bool> set(std::string_view key, std::string_view value) override {
    return watched(files_.set(key, value));
  }
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    return watched(files_.get(key, deadline));
  }
  Result<bool> contains(std::string_view key) override { return watched(files_.contains(key)); }

  std::string lacking() const {
    const std::scoped_lock lock(mutex_);
    return lacking_;
  }

 private:
  template <class T>
  Result<T> watched(Result<T> result) {
    if (result || result.error().code() == Code::kTimeout) return result;
    const int error = properties::try_file_in(directory_, kTrialBytes);
    if (error == 0) return result;
    const std::scoped_lock lock(mutex_);
    lacking_ =
        properties::refused_by_system("no file can be written for the store of the ranks", error)
            .failure()
            .detail;
    return result;
  }

  static constexpr std::uint64_t kTrialBytes = 8192;
  const std::string directory_;
  FileStore files_;
  mutable std::mutex mutex_;
  std::string lacking_;  // guarded by mutex_
};

// Whether the store may fail because of the plan. Otherwise a failure is the lane's.
bool disturbs_store(const faults::FaultPlan& plan) {
  return std::any_of(plan.faults.begin(), plan.faults.end(), [](const faults::Fault& fault) {
    return faults::is_of_store(fault.kind) || fault.kind == faults::Kind::kNodeMemory ||
           fault.kind == faults::Kind::kNodeDescriptors;
  });
}

}  // namespace

RealEnvironment::RealEnvironment(Setup setup) : setup_(std::move(setup)) {
  faults::FaultPlan plan;
  for (const faults::Fault& fault : setup_.c->faults.faults) {
    if (fault.kind == faults::Kind::kOperationError)
      continue;  // NCCL's plug-in carries it out; Gloo has none
    if (faults::is_of_host(fault.kind) && !setup_.begin_host_faults) continue;
    if (fault.kind == faults::Kind::kRankLeftOut && !setup_.leave_group) continue;
    // Who takes the place of a rank does not end as that did.
    if (faults::ends_process(fault.kind) && fault.rank == setup_.rank && setup_.joining) continue;
    if (!properties::needs_process(fault.kind) || setup_.exit_process) plan.faults.push_back(fault);
  }
  injector_.reset(plan, program().world,
                  std::max<std::uint32_t>(1, static_cast<std::uint32_t>(program().steps.size())));
}

RealEnvironment::Setup RealEnvironment::setup_of(const properties::RankJob& job) {
  Setup setup;
  setup.c = job.c;
  setup.rank = job.rank;
  if (job.directory.compare(0, 6, "tcp://") == 0) {
    const auto store = std::make_shared<NetworkStore>(job.directory, job.rank);
    setup.store = store;
    if (!disturbs_store(job.c->faults)) setup.lacking = [store] { return store->lacking(); };
  } else {
    const auto store = std::make_shared<WatchedStore>(job.directory);
    setup.store = store;
    setup.lacking = [store] { return store->lacking(); };
  }
  setup.meet = job.meet;
  setup.detailed = job.detailed;
  setup.exit_process = job.exit_process;
  setup.pause_process = job.pause_process;
  setup.address = job.address;
  setup.begin_host_faults = job.begin_host_faults;
  setup.leave_group = job.leave_group;
  setup.joining = job.joining;
  return setup;
}

platform::Duration RealEnvironment::timeout() const {
  const std::uint32_t ms = setup_.c->timeout_ms;
  return std::chrono::milliseconds(ms == 0 ? properties::kDefaultTimeoutMs : ms);
}

platform::Duration RealEnvironment::failure_grace() const {
  // On hosts as long as in production: a rank whose peer is silent asks all others first, and
  // reports up to half a second later than they do.
  const bool is_on_host = !setup_.address.empty();
  return std::min<platform::Duration>(timeout(),
                                      std::chrono::milliseconds(is_on_host ? 2000 : 500));
}

Result<Memberships> RealEnvironment::connect(const Roster& roster) {
  Memberships memberships;
  for (std::uint32_t r = 0; r < reference::reducer_count(program()); ++r) {
    if (r > 0 && !program().options.group_each) {
      memberships.push_back(memberships.front());
      continue;
    }
    auto membership = make_membership(roster, r);
    if (!membership) return failed(membership.error());
    memberships.push_back(std::move(*membership));
  }
  return memberships;
}

Result<Membership> RealEnvironment::make_membership(const Roster& roster, std::uint32_t reducer) {
  const std::uint32_t number = reference::group_of(program(), setup_.rank);
  Membership membership;
  membership.store =
      std::make_shared<PrefixStore>(prefix_of(roster, number, reducer), setup_.store);
  Place place{membership.store,  "first", members_of(program(), roster, setup_.rank),
              roster.generation, reducer, 0};
  const auto here = std::find(place.members.begin(), place.members.end(), setup_.rank);
  place.rank = static_cast<int>(here - place.members.begin());
  auto first = make_faulty_group(place);
  if (!first) return failed(first.error());
  membership.group = std::move(*first);
  const reference::Replicated& options = program().options;
  if (!reference::has_backward_group(options)) return membership;
  place.name = "second";
  auto second = make_faulty_group(place);
  if (!second) return failed(second.error());
  membership.backward_group = std::move(*second);
  return membership;
}

Result<std::shared_ptr<ProcessGroup>> RealEnvironment::make_faulty_group(const Place& place) {
  auto group = make_group(place);
  if (!group) return failed(group.error());
  return std::shared_ptr<ProcessGroup>(
      std::make_shared<FaultyGroup>(std::move(*group), [this] { return on_operation(); }));
}

void RealEnvironment::begin_step(std::uint32_t step) {
  const std::scoped_lock lock(mutex_);
  if (step < program().steps.size())
    injector_.begin_step(setup_.rank, step);
  else
    injector_.end_step(setup_.rank);
}

void RealEnvironment::begin_connect(std::uint32_t step) {
  std::vector<faults::Fault> begun;
  {
    const std::scoped_lock lock(mutex_);
    injector_.begin_reset(setup_.rank, step);
    begun = injector_.on_connect(setup_.rank);
  }
  if (!begun.empty()) setup_.begin_host_faults(begun);
}

void RealEnvironment::begin_reset(std::uint32_t step) {
  const std::scoped_lock lock(mutex_);
  injector_.begin_reset(setup_.rank, step);
}

void RealEnvironment::set_state(faults::ReducerState state) {
  const std::scoped_lock lock(mutex_);
  injector_.set_state(setup_.rank, state);
}

faults::OperationFault RealEnvironment::on_operation() {
  faults::OperationFault fault;
  {
    const std::scoped_lock lock(mutex_);
    fault = injector_.on_operation(setup_.rank);
  }
  if (fault.exit) setup_.exit_process(fired());
  if (!fault.of_host.empty()) setup_.begin_host_faults(fault.of_host);
  if (fault.left_out) setup_.leave_group(fault.is_cut_off, fault.away_us);
  if (fault.pause_us != 0) setup_.pause_process(fault.pause_us);
  return fault;
}

std::optional<faults::Fault> RealEnvironment::visit_user_place() {
  const std::scoped_lock lock(mutex_);
  return injector_.on_user_place(setup_.rank);
}

void RealEnvironment::visit_node() {
  reach_user_place();
  faults::NodeFault fault;
  {
    const std::scoped_lock lock(mutex_);
    fault = injector_.on_node(setup_.rank);
  }
  if (fault.slow_us != 0) std::this_thread::sleep_for(std::chrono::microseconds(fault.slow_us));
  if (fault.throws) throw std::runtime_error("planned by the case");
}

Status RealEnvironment::visit_hook(faults::HookCall call) {
  const std::scoped_lock lock(mutex_);
  return properties::failure_of_hook(injector_.on_hook(setup_.rank, call));
}

faults::Fired RealEnvironment::fired() const {
  const std::scoped_lock lock(mutex_);
  return injector_.fired();
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
