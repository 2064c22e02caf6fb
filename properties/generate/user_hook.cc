#include "properties/generate/user_hook.h"

#include "properties/case/fields.h"
#include "properties/case/hook_error.h"
#include "properties/generate/fault_plan.h"
#include "properties/generate/random.h"

namespace lockstep::properties {
namespace {

using faults::Fault;
using faults::HookCall;
using reference::HookBackward;
using reference::HookCompletion;
using reference::HookResult;

void draw_options(Random& random, Capabilities can, reference::Replicated& options) {
  const auto result = static_cast<HookResult>(random.weighted(fields::weights<HookResult>()));
  const auto completion =
      static_cast<HookCompletion>(random.weighted(fields::weights<HookCompletion>()));
  const auto backward = static_cast<HookBackward>(random.weighted(fields::weights<HookBackward>()));
  if (can.has(Capability::kHookResults)) options.hook_result = result;
  if (!can.has(Capability::kHookCalls)) return;
  options.hook_completion = completion;
  options.hook_backward = backward;
}

// Most of these cases get no other fault, so that the model knows the expected result.
void draw_failure(Random& random, Case& value) {
  if (random.percent(75)) {
    value.faults.faults.clear();
    value.timeout_ms = 0;
  }
  Fault fault;
  fault.kind = faults::Kind::kHookFails;
  fault.rank = random.below(value.program.world);
  fault.step = draw_synced_step(random, value.program);
  fault.site = random.percent(40) ? 0 : random.below(bucket_count(value.program));
  const std::uint32_t call = random.below(faults::kHookCalls);
  const auto codes = static_cast<std::uint32_t>(kHookErrors.size());
  fault.at = call + faults::kHookCalls * random.below(codes);
  auto& completion = value.program.options.hook_completion;
  if (hook_call(fault) == HookCall::kFuture && completion == HookCompletion::kImmediate)
    completion = HookCompletion::kLate;
  value.faults.faults.push_back(fault);
}

}  // namespace

void draw_user_hook(Random random, const GenerateOptions& options, Case& value) {
  const Capabilities can = options.capabilities;
  if (value.program.options.hook != reference::Hook::kElsewhere) return;
  draw_options(random, can, value.program.options);
  using Faults = GenerateOptions::Faults;
  const bool is_able = can.has(Capability::kHookCalls) && can.has(Capability::kRecovery);
  const bool is_listed =
      options.faults == Faults::kList && options.kinds.has(faults::Kind::kHookFails);
  const bool is_drawn = options.faults == Faults::kSwarm && random.percent(30);
  if (is_able && !value.program.steps.empty() && (is_listed || is_drawn))
    draw_failure(random, value);
}

void find_user_hook_features(const Case& value, std::set<std::string>& found) {
  const reference::Replicated& options = value.program.options;
  if (options.hook != reference::Hook::kElsewhere) return;
  const auto add_if = [&](bool condition, const char* name) {
    if (condition) found.insert(name);
  };
  add_if(options.hook_completion == HookCompletion::kReversed && bucket_count(value.program) > 1,
         "hook: futures of several buckets complete in reversed order");
  for (const Fault& fault : value.faults.faults) {
    if (fault.kind != faults::Kind::kHookFails) continue;
    add_if(hook_call(fault) == HookCall::kStart, "hook: it fails when it is started");
    add_if(hook_call(fault) == HookCall::kFuture, "hook: its future fails");
    add_if(hook_call(fault) == HookCall::kFinish, "hook: it fails when it finishes");
  }
}

}  // namespace lockstep::properties
