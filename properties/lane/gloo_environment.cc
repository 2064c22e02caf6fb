#include "properties/lane/gloo_environment.h"

#include <algorithm>

#include "faults/gloo/changing_device.h"
#include "reducer/comm/gloo/device.h"
#include "reducer/comm/gloo/gloo_process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Result<Memberships> GlooEnvironment::connect(const Roster& roster) {
  generation_ = roster.generation;
  context_ = nullptr;
  return RealEnvironment::connect(roster);
}

Result<std::shared_ptr<GlooContext>> GlooEnvironment::make_context(const Place& place) {
  GlooContextOptions options;
  options.timeout = timeout();
  if (!address().empty()) options.address = address();
  options.share_memory = the_case().environment.shares_memory;
  if (is_late() || changes_payload()) {
    auto device = shared_device(options.address);
    if (!device) return failed(device.error());
    options.device = std::move(*device);
  }
  if (is_late()) {
    const std::uint64_t seed = (std::uint64_t{rank()} << 32) + of_case().latency_seed;
    options.device = make_late_device(std::move(options.device), seed);
  }
  if (changes_payload()) {
    options.device = make_changing_device(
        std::move(options.device),
        [this, members = place.members](const faults::Frames& out, faults::SentBefore& before) {
          with_injector([&](faults::Injector& injector) {
            faults::disturb(injector, rank(), members, out, before);
          });
        });
  }
  return GlooContext::connect(std::make_shared<PrefixStore>(place.name, place.store), place.rank,
                              place.size(), options);
}

// Other programs have connections of their own, and so have ranks that leave.
bool GlooEnvironment::has_usual_context() const {
  return !changes_payload() && !program().options.two_groups && !leaves_at_once();
}

bool GlooEnvironment::is_late() const {
  return leaves_at_once() && of_case().latency != properties::Environment::Latency::kNone;
}

bool GlooEnvironment::changes_payload() const {
  const auto& plan = the_case().faults.faults;
  return std::any_of(plan.begin(), plan.end(),
                     [](const faults::Fault& fault) { return faults::is_payload(fault.kind); });
}

Result<std::shared_ptr<ProcessGroup>> GlooEnvironment::make_group(const Place& place) {
  std::shared_ptr<GlooContext> context;
  if (place.is_first() && has_usual_context()) context = first_context_;
  if (!context) {
    auto made = make_context(place);
    if (!made) return failed(made.error());
    context = std::move(*made);
  }
  if (!context_ && !leaves_at_once()) context_ = context;
  GlooOptions options;
  options.timeout = std::chrono::milliseconds(properties::gloo_timeout_ms(the_case()));
  options.algorithm = program().options.order == reference::Order::kBcube
                          ? GlooOptions::Algorithm::kBcube
                          : GlooOptions::Algorithm::kRing;
  auto group = GlooProcessGroup::create(context, options);
  if (!group) return failed(group.error());
  return std::shared_ptr<ProcessGroup>(std::move(*group));
}

std::shared_ptr<GlooContext> GlooEnvironment::reusable_context() const {
  const bool healthy =
      generation_ == 0 && has_usual_context() && context_ && context_->health().ok();
  return healthy ? context_ : nullptr;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
