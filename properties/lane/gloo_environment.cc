#include "properties/lane/gloo_environment.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "faults/gloo/changing_device.h"
#include "faults/gloo/faulty_group.h"
#include "reducer/comm/gloo/device.h"
#include "reducer/comm/gloo/gloo_process_group.h"

namespace lockstep::inline LOCKSTEP_NS {

GlooEnvironment::GlooEnvironment(Setup setup) : setup_(std::move(setup)) {
  const reference::Program& program = setup_.c->program;
  faults::FaultPlan plan;
  for (const faults::Fault& fault : setup_.c->faults.faults) {
    const bool needs_process =
        fault.kind == faults::Kind::kRankExit || fault.kind == faults::Kind::kRankPause;
    if (!needs_process || setup_.exit_process) plan.faults.push_back(fault);
  }
  injector_.reset(plan, program.world,
                  std::max<std::uint32_t>(1, static_cast<std::uint32_t>(program.steps.size())));
}

platform::Duration GlooEnvironment::timeout() const {
  const std::uint32_t ms = setup_.c->timeout_ms;
  return std::chrono::milliseconds(ms == 0 ? properties::kDefaultTimeoutMs : ms);
}

platform::Duration GlooEnvironment::failure_grace() const {
  return std::min<platform::Duration>(timeout(), std::chrono::milliseconds(500));
}

Result<Memberships> GlooEnvironment::connect(const Roster& roster) {
  const reference::Program& program = setup_.c->program;
  generation_ = roster.generation;
  context_ = nullptr;
  Memberships memberships;
  for (std::uint32_t r = 0; r < reference::reducer_count(program); ++r) {
    if (r > 0 && !program.options.group_each) {
      memberships.push_back(memberships.front());
      continue;
    }
    auto membership = make_membership(roster, r);
    if (!membership) return failed(membership.error());
    memberships.push_back(std::move(*membership));
  }
  return memberships;
}

Result<Membership> GlooEnvironment::make_membership(const Roster& roster, std::uint32_t reducer) {
  const reference::Program& program = setup_.c->program;
  const std::uint32_t number = reference::group_of(program, setup_.rank);
  Membership membership;
  membership.store =
      std::make_shared<PrefixStore>(prefix_of(roster, number, reducer), setup_.store);
  std::shared_ptr<GlooContext> first;
  if (roster.generation == 0 && reducer == 0 && has_usual_context()) first = setup_.first_context;
  if (!first) {
    auto context = make_context(membership.store, "context", roster);
    if (!context) return failed(context.error());
    first = std::move(*context);
  }
  if (reducer == 0) context_ = first;
  auto group = make_group(first);
  if (!group) return failed(group.error());
  membership.group = std::move(*group);
  const reference::Options& options = program.options;
  if (options.launch != reference::Launch::kAfterBackward || !options.own_group) return membership;
  const auto context = make_context(membership.store, "second", roster);
  if (!context) return failed(context.error());
  auto second = make_group(*context);
  if (!second) return failed(second.error());
  membership.backward_group = std::move(*second);
  return membership;
}

Result<std::shared_ptr<GlooContext>> GlooEnvironment::make_context(
    const std::shared_ptr<Store>& store, const char* name, const Roster& roster) {
  const std::vector<std::uint32_t> members = members_of(setup_.c->program, roster, setup_.rank);
  const auto here = std::find(members.begin(), members.end(), setup_.rank);
  const int rank = static_cast<int>(here - members.begin());
  const int size = static_cast<int>(members.size());
  GlooContextOptions options;
  options.timeout = timeout();
  if (changes_payload()) {
    auto device = shared_device(options.address);
    if (!device) return failed(device.error());
    options.device = make_changing_device(
        std::move(*device), [this, members](const faults::Frames& out, faults::SentBefore& before) {
          const std::scoped_lock lock(mutex_);
          faults::disturb(injector_, setup_.rank, members, out, before);
        });
  }
  return GlooContext::connect(std::make_shared<PrefixStore>(name, store), rank, size, options);
}

// Others have connections of their own.
bool GlooEnvironment::has_usual_context() const {
  return !changes_payload() && !setup_.c->program.options.two_groups;
}

bool GlooEnvironment::changes_payload() const {
  const auto& plan = setup_.c->faults.faults;
  return std::any_of(plan.begin(), plan.end(),
                     [](const faults::Fault& fault) { return faults::is_payload(fault.kind); });
}

Result<std::shared_ptr<ProcessGroup>> GlooEnvironment::make_group(
    const std::shared_ptr<GlooContext>& context) {
  GlooOptions options;
  options.timeout = timeout();
  options.algorithm = setup_.c->program.options.order == reference::Order::kBcube
                          ? GlooOptions::Algorithm::kBcube
                          : GlooOptions::Algorithm::kRing;
  auto group = GlooProcessGroup::create(context, options);
  if (!group) return failed(group.error());
  return std::shared_ptr<ProcessGroup>(std::make_shared<FaultyGroup>(
      std::shared_ptr<ProcessGroup>(std::move(*group)), [this] { return on_operation(); }));
}

void GlooEnvironment::begin_step(std::uint32_t step) {
  const std::scoped_lock lock(mutex_);
  if (step < setup_.c->program.steps.size())
    injector_.begin_step(setup_.rank, step);
  else
    injector_.end_step(setup_.rank);
}

faults::OperationFault GlooEnvironment::on_operation() {
  faults::OperationFault fault;
  {
    const std::scoped_lock lock(mutex_);
    fault = injector_.on_operation(setup_.rank);
  }
  if (fault.exit) setup_.exit_process(fired());
  if (fault.pause_us != 0) setup_.pause_process(fault.pause_us);
  return fault;
}

void GlooEnvironment::visit_node() {
  faults::NodeFault fault;
  {
    const std::scoped_lock lock(mutex_);
    fault = injector_.on_node(setup_.rank);
  }
  if (fault.slow_us != 0) std::this_thread::sleep_for(std::chrono::microseconds(fault.slow_us));
  if (fault.throws) throw std::runtime_error("planned by the case");
}

std::shared_ptr<GlooContext> GlooEnvironment::reusable_context() const {
  const bool healthy =
      generation_ == 0 && has_usual_context() && context_ && context_->health().ok();
  return healthy ? context_ : nullptr;
}

faults::Fired GlooEnvironment::fired() const {
  const std::scoped_lock lock(mutex_);
  return injector_.fired();
}

}  // namespace lockstep::inline LOCKSTEP_NS
