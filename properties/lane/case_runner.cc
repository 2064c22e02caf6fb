#include "properties/lane/case_runner.h"

#include <fmt/format.h>

#include "properties/oracle/judge.h"
#include "reference/torch_model.h"

namespace lockstep::properties {

const char* name_of(LaneKind kind) { return kind == LaneKind::kSim ? "sim" : "gloo"; }

Verdict CaseRunner::run(const Case& c) {
  const std::uint32_t steps = reference::modelled_steps(c.program, contract_);
  if (steps == c.program.steps.size()) return run_modelled(c);
  Case shorter = c;
  shorter.program.steps.resize(steps);
  return run_modelled(shorter);
}

Verdict CaseRunner::run_modelled(const Case& c) {
  reference::run(c.program, contract_, {}, {}, expectation_);
  observation_.clear();
  lane_->run(c, expectation_, observation_);
  const std::vector<reference::ReadyOrder> ready_orders = observation_.ready_orders();
  if (!observation_.recoveries.empty() || !ready_orders.empty())
    reference::run(c.program, contract_, observation_.recoveries, ready_orders, expectation_);
  return judge(c, contract_, expectation_, observation_);
}

Verdict CaseRunner::run_twice(const Case& c) {
  Verdict first = run(c);
  const std::uint64_t hash = observation_.trace_hash;
  const std::uint64_t choices = observation_.choices;
  if (kind_ != LaneKind::kSim || !first.ok()) return first;
  Verdict second = run(c);
  if (!second.ok()) return second;
  if (hash == observation_.trace_hash) return {};
  return {
      Failing::kNotDeterministic, "determinism",
      fmt::format(
          "two runs of the case took different ways: trace {:016x} after {} choices, then {:016x} "
          "after {}",
          hash, choices, observation_.trace_hash, observation_.choices)};
}

}  // namespace lockstep::properties
