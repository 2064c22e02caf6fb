#include "reducer/core/pass_core.h"

#include <algorithm>
#include <numeric>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace core {
namespace {

constexpr std::uint32_t kNever = ~std::uint32_t{0};

}  // namespace

void PassCore::add_parameter() { parameters_.emplace_back(); }

void PassCore::add_replica() {
  LOCKSTEP_CHECK(!parameters_.empty());
  further_.emplace_back().parameter = static_cast<std::uint32_t>(parameters_.size() - 1);
  ++parameters_.back().replicas;
}

void PassCore::set_buckets(std::span<const std::uint32_t> bucket_of_parameter,
                           std::size_t buckets) {
  LOCKSTEP_CHECK_EQ(bucket_of_parameter.size(), parameters_.size());
  std::vector<std::uint32_t> members(buckets, 0);
  for (const std::uint32_t bucket : bucket_of_parameter) {
    LOCKSTEP_CHECK_LT(bucket, buckets);
    ++members[bucket];
  }
  std::vector<std::uint32_t> pending = members;
  sweep_.unused.reserve(gradient_count());
  sweep_.parameters.reserve(parameters_.size());
  // Nothing below can fail.
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    parameters_[p].bucket = bucket_of_parameter[p];
  buckets_.members = std::move(members);
  buckets_.pending = std::move(pending);
}

void PassCore::forget_passes() {
  has_completed_pass_ = false;
  is_usage_agreed_ = false;
}

// A first static pass that failed has counted nothing.
void PassCore::begin_pass() {
  LOCKSTEP_CHECK_EQ(buckets_.members.size(), buckets_.pending.size());
  const auto begin = [this](Gradient& gradient) {
    gradient.hooks_started = gradient.hooks_finished = 0;
    gradient.is_ready = false;
    if (is_first_static_pass()) gradient.hooks_expected = kNever;
  };
  for (Parameter& parameter : parameters_) {
    begin(parameter);
    parameter.are_all_ready = false;
    parameter.replicas_pending = parameter.replicas;
    parameter.last_hook = 0;
  }
  for (FurtherGradient& gradient : further_) begin(gradient);
  std::copy(buckets_.members.begin(), buckets_.members.end(), buckets_.pending.begin());
  buckets_.next = 0;
  buckets_.is_launching = false;
  sweep_.of = Sweep::Of::kNothing;
  sweep_.unused.clear();
  unready_ = parameters_.size();
  hooks_ = 0;
  is_reached_ = false;
  is_map_launched_ = false;
  if (mode_ != Mode::kStatic) return;
  for (std::size_t g = 0; g < gradient_count(); ++g)
    if (at(g).hooks_expected == 0) sweep_.unused.push_back(static_cast<std::uint32_t>(g));
}

void PassCore::set_reachable(const std::vector<bool>& is_reachable) {
  LOCKSTEP_CHECK(mode_ == Mode::kDynamic);
  LOCKSTEP_CHECK_EQ(is_reachable.size(), gradient_count());
  LOCKSTEP_CHECK(!is_reached_);
  LOCKSTEP_CHECK(sweep_.unused.empty());
  for (std::size_t g = 0; g < is_reachable.size(); ++g)
    if (!is_reachable[g]) sweep_.unused.push_back(static_cast<std::uint32_t>(g));
}

void PassCore::on_backward_begin() { in_backward_ = true; }

void PassCore::on_backward_reached() {
  LOCKSTEP_CHECK(in_backward_);
  if (!is_reached_) begin_sweep(Sweep::Of::kUnusedGradients);
}

bool PassCore::on_gradient_arriving(std::size_t gradient) {
  Gradient& arriving = at(gradient);
  LOCKSTEP_CHECK(in_backward_);
  if (is_parameter_ready(parameter_of(gradient)) || arriving.is_ready ||
      arriving.hooks_started == arriving.hooks_expected)
    return false;
  ++arriving.hooks_started;
  return true;
}

Action PassCore::on_hook(std::size_t gradient) {
  Gradient& reported = at(gradient);
  const std::size_t parameter = parameter_of(gradient);
  parameters_[parameter].last_hook = ++hooks_;
  if (++reported.hooks_finished < reported.hooks_expected) return {};
  return is_last_pending(gradient) ? make_ready(parameter) : Action();
}

bool PassCore::on_copied(std::size_t parameter) {
  const Parameter& copied = parameters_[parameter];
  std::uint32_t& pending = buckets_.pending[copied.bucket];
  LOCKSTEP_CHECK(copied.are_all_ready);
  LOCKSTEP_CHECK(unready_ > 0);
  LOCKSTEP_CHECK(pending > 0);
  --unready_;
  return --pending == 0;
}

void PassCore::on_launched(std::size_t bucket) {
  LOCKSTEP_CHECK(buckets_.is_launching);
  LOCKSTEP_CHECK_EQ(bucket, buckets_.next);
  buckets_.is_launching = false;
  ++buckets_.next;
}

Action PassCore::on_backward_end() {
  LOCKSTEP_CHECK(in_backward_);
  in_backward_ = false;
  if (is_first_static_pass()) {
    if (!is_usage_agreed_ && !parameters_.empty()) return {Action::Kind::kLaunchUsageMap, 0};
    begin_first_static_sweep();
  } else if (mode_ == Mode::kDynamic) {
    if (unready_ == 0) return {};  // The usual case, for which nothing is gone through.
    // The loss does not reach some outputs, or no hook ran (P5, P8).
    sweep_.parameters.resize(parameters_.size());
    std::iota(sweep_.parameters.begin(), sweep_.parameters.end(), 0u);
    begin_sweep(Sweep::Of::kParameters);
  } else if (!is_reached_) {
    begin_sweep(Sweep::Of::kUnusedGradients);
  }
  return {};
}

Action PassCore::on_no_backward() {
  LOCKSTEP_CHECK_EQ(unready_, parameters_.size());
  in_backward_ = false;
  sweep_.parameters.resize(parameters_.size());
  std::iota(sweep_.parameters.begin(), sweep_.parameters.end(), 0u);
  begin_sweep(Sweep::Of::kParameters);
  const bool must_agree_on_usage =
      mode_ == Mode::kStatic && !is_usage_agreed_ && !parameters_.empty();
  return {must_agree_on_usage ? Action::Kind::kLaunchUsageMap : Action::Kind::kNone, 0};
}

void PassCore::on_usage_agreed() {
  LOCKSTEP_CHECK(mode_ == Mode::kStatic);
  LOCKSTEP_CHECK(!is_usage_agreed_);
  is_usage_agreed_ = true;
  if (sweep_.of != Sweep::Of::kParameters) begin_first_static_sweep();
}

void PassCore::on_pass_complete() {
  LOCKSTEP_CHECK(is_all_ready());
  LOCKSTEP_CHECK(is_all_launched());
  has_completed_pass_ = true;
}

Action PassCore::next_copy() {
  if (sweep_.of == Sweep::Of::kUnusedGradients)
    while (sweep_.at < sweep_.unused.size()) {
      const std::uint32_t gradient = sweep_.unused[sweep_.at++];
      if (is_last_pending(gradient)) return make_ready(parameter_of(gradient));
    }
  if (sweep_.of == Sweep::Of::kParameters)
    while (sweep_.at < sweep_.parameters.size()) {
      const std::uint32_t parameter = sweep_.parameters[sweep_.at++];
      if (!is_parameter_ready(parameter)) return make_ready(parameter);
    }
  return {};
}

Action PassCore::next_launch() {
  LOCKSTEP_CHECK_LE(buckets_.next, buckets_.pending.size());
  if (buckets_.is_launching) return {};  // Who launches goes on with what is ready now.
  // Hooks launch nothing, and neither does the end of a backward that leaves gradients to a later
  // one (P14).
  const bool is_early =
      launch_time_ == LaunchTime::kAfterBackward && (in_backward_ || unready_ != 0);
  if (is_early) return {};
  if (!is_all_launched()) {
    if (buckets_.pending[buckets_.next] != 0) return {};
    buckets_.is_launching = true;
    return {Action::Kind::kLaunch, static_cast<std::uint32_t>(buckets_.next)};
  }
  LOCKSTEP_CHECK_EQ(unready_, std::size_t{0});  // Each parameter is in a bucket.
  const bool needs_map = mode_ == Mode::kDynamic && !in_backward_ && !parameters_.empty();
  if (!needs_map || is_map_launched_) return {};
  is_map_launched_ = true;
  return {Action::Kind::kLaunchUsageMap, 0};
}

const PassCore::Gradient& PassCore::at(std::size_t gradient) const {
  if (gradient < parameters_.size()) return parameters_[gradient];
  return further_[gradient - parameters_.size()];
}

PassCore::Gradient& PassCore::at(std::size_t gradient) {
  if (gradient < parameters_.size()) return parameters_[gradient];
  return further_[gradient - parameters_.size()];
}

std::size_t PassCore::parameter_of(std::size_t gradient) const {
  return gradient < parameters_.size() ? gradient
                                       : further_[gradient - parameters_.size()].parameter;
}

// The gradient is ready. Returns true if those of all other replicas were ready before it.
bool PassCore::is_last_pending(std::size_t gradient) {
  Gradient& ready = at(gradient);
  LOCKSTEP_CHECK(!ready.is_ready);
  ready.is_ready = true;
  return --parameters_[parameter_of(gradient)].replicas_pending == 0;
}

Action PassCore::make_ready(std::size_t parameter) {
  LOCKSTEP_CHECK(!parameters_[parameter].are_all_ready);
  parameters_[parameter].are_all_ready = true;
  return {Action::Kind::kCopyToBucket, static_cast<std::uint32_t>(parameter)};
}

void PassCore::begin_sweep(Sweep::Of of) {
  is_reached_ = true;
  sweep_.of = of;
  sweep_.at = 0;
}

// Later passes expect as many hooks as there were in this one. Parameters become ready in the order
// in which they would have if that had been known: those without a hook first.
void PassCore::begin_first_static_sweep() {
  LOCKSTEP_CHECK(is_first_static_pass());
  for (std::size_t g = 0; g < gradient_count(); ++g) at(g).hooks_expected = at(g).hooks_finished;
  sweep_.parameters.resize(parameters_.size());
  std::iota(sweep_.parameters.begin(), sweep_.parameters.end(), 0u);
  std::sort(sweep_.parameters.begin(), sweep_.parameters.end(),
            [this](std::uint32_t a, std::uint32_t b) {
              const std::uint32_t first = parameters_[a].last_hook;
              const std::uint32_t second = parameters_[b].last_hook;
              return first != second ? first < second : a < b;
            });
  begin_sweep(Sweep::Of::kParameters);
}

}  // namespace core
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
