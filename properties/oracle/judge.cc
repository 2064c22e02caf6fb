#include "properties/oracle/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/oracle/oracles.h"
#include "reference/state.h"

namespace lockstep::properties {

Verdict judge_end(const Observation& observation) {
  switch (observation.end) {
    case Observation::End::kFinished:
      return {};
    case Observation::End::kDeadlock:
      return {Failing::kDeadlock, "progress",
              "nothing can run any more:\n" + observation.wait_graph};
    case Observation::End::kLivelock:
      return {Failing::kLivelock, "progress",
              "the bound on scheduling steps was reached:\n" + observation.wait_graph};
    case Observation::End::kCrashed:
      return {Failing::kCrash, "crash",
              "the process of the subject ended: " + observation.wait_graph};
    case Observation::End::kHung:
      return {Failing::kDeadlock, "progress",
              "no end within the time limit: " + observation.wait_graph};
  }
  return {};
}

// Whatever the bits were in this schedule.
Verdict judge_races(const Observation& observation) {
  if (observation.races.empty()) return {};
  return {Failing::kRace, "race", fmt::format("{}", fmt::join(observation.races, "\n"))};
}

Verdict judge_leaks(const Observation& observation) {
  if (observation.leaked_fibers != 0)
    return {Failing::kLeak, "leak",
            fmt::format("{} threads outlive the run", observation.leaked_fibers)};
  if (observation.leaked_bytes != 0)
    return {Failing::kLeak, "leak",
            fmt::format("{} bytes of tensors outlive the run", observation.leaked_bytes)};
  return {};
}

namespace {

ObservedCollective::Op observed_as(reference::ExpectedCollective::Op op) {
  using Op = reference::ExpectedCollective::Op;
  switch (op) {
    case Op::kAllReduceBucket:
      return ObservedCollective::Op::kAllReduceBucket;
    case Op::kAllReduceUsage:
      return ObservedCollective::Op::kAllReduceUsage;
    case Op::kBroadcastOrder:
      return ObservedCollective::Op::kBroadcastOrder;
    case Op::kBroadcastBuffers:
      return ObservedCollective::Op::kBroadcastBuffers;
    case Op::kAnnounce:
      return ObservedCollective::Op::kAnnounce;
    case Op::kGatherSparse:
      return ObservedCollective::Op::kGatherSparse;
  }
  return ObservedCollective::Op::kOther;
}

lockstep::DType observed_as(reference::DType dtype) {
  switch (dtype) {
    case reference::DType::kFloat64:
      return DType::kFloat64;
    case reference::DType::kFloat16:
      return DType::kFloat16;
    case reference::DType::kBFloat16:
      return DType::kBFloat16;
    case reference::DType::kFloat32:
    case reference::DType::kComplex64:
      break;
  }
  return DType::kFloat32;
}

// The step in which the pass was recorded that a rebuild of steps[at] follows: the one synced pass
// that this rank has completed in its group.
const ObservedStep* recorded_before(const reference::Expectation& expectation,
                                    const RankObservation& rank, std::size_t at) {
  while (at-- > 0)
    if (rank.steps[at].status.ok() && expectation.steps[rank.steps[at].step].is_reduced)
      return &rank.steps[at];
  return nullptr;
}

// Ranks below `rank` that train in `step`.
bool is_first(const reference::ExpectedStep& step, std::size_t rank) {
  for (std::size_t r = 0; r < rank; ++r)
    if (step.ranks[r].present) return false;
  return true;
}

}  // namespace

// B2: every parameter that is trained once, the same order on every rank, and that of the hooks of
// the first rank: hooks run one after the other when there is one device.
Verdict judge_rebuild(const Case& c, const reference::Expectation& expectation,
                      const Observation& observation) {
  const bool one_device =
      std::all_of(c.program.parameters.begin(), c.program.parameters.end(),
                  [&](const auto& each) { return each.device == c.program.parameters[0].device; });
  for (const reference::ReadyOrder& order : observation.ready_orders()) {
    std::vector<std::uint32_t> all;
    for (const auto& bucket : expectation.buckets)
      all.insert(all.end(), bucket.parameters.begin(), bucket.parameters.end());
    if (!std::is_permutation(order.parameters.begin(), order.parameters.end(), all.begin(),
                             all.end()))
      return {Failing::kWrongBits, "layout",
              fmt::format("step {}: the buckets were rebuilt from an order that is none of all "
                          "parameters",
                          order.step)};
    for (std::size_t r = 0; r < observation.ranks.size(); ++r) {
      const RankObservation& rank = observation.ranks[r];
      for (std::size_t s = 0; s < rank.steps.size(); ++s) {
        const ObservedStep& step = rank.steps[s];
        if (step.step != order.step || step.rebuilt_order.empty()) continue;
        if (step.rebuilt_order != order.parameters)
          return {Failing::kWrongBits, "layout",
                  fmt::format("step {}: rank {} rebuilt its buckets in another order than others",
                              order.step, r)};
        const ObservedStep* recorded = recorded_before(expectation, rank, s);
        if (!one_device || recorded == nullptr || !is_first(expectation.steps[step.step], r))
          continue;
        std::vector<std::uint32_t> hooked;
        for (const std::uint32_t parameter : order.parameters)
          if (std::find(recorded->hook_order.begin(), recorded->hook_order.end(), parameter) !=
              recorded->hook_order.end())
            hooked.push_back(parameter);
        if (hooked != recorded->hook_order)
          return {Failing::kWrongBits, "layout",
                  fmt::format("step {}: the buckets do not follow the order in which rank {} saw "
                              "its hooks in step {}",
                              order.step, r, recorded->step)};
      }
    }
  }
  return {};
}

// S3: values of parameters and buffers.
Verdict judge_state(const Case& c, const reference::Expectation& expectation,
                    const Observation& observation) {
  const std::vector<reference::StateTensor> tensors = reference::state_tensors(c.program);
  const auto buffers = static_cast<std::size_t>(std::count_if(
      tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.is_buffer; }));
  const auto compare = [&](std::size_t rank, const ObservedStep& step,
                           const reference::ExpectedRankStep& expected) -> Verdict {
    if (!step.status.ok() || !expected.present) return {};
    if (step.state.size() != expected.state.size())
      return {Failing::kWrongBits, "state",
              fmt::format("rank {}, step {}: values of {} tensors instead of {}", rank, step.step,
                          step.state.size(), expected.state.size())};
    for (std::size_t t = 0; t < step.state.size(); ++t) {
      if (step.state[t] == expected.state[t]) continue;
      const std::size_t values = tensors.size() - buffers;
      const std::string name =
          t < values ? fmt::format("the value of parameter {} of those that are no alias", t)
                     : fmt::format("buffer b{}", t - values);
      return {
          Failing::kWrongBits, "state",
          fmt::format("rank {}, step {}: {} is neither what was broadcast nor what the forwards "
                      "of this rank make of it",
                      rank, step.step, name)};
    }
    return {};
  };
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    const RankObservation& seen = observation.ranks[rank];
    for (const ObservedStep& step : seen.steps)
      if (Verdict v = compare(rank, step, expectation.steps[step.step].ranks[rank]); !v.ok())
        return v;
    for (const ObservedStep& step : seen.ending)
      if (Verdict v = compare(rank, step, expectation.ending[rank]); !v.ok()) return v;
  }
  return {};
}

Verdict judge_trace(const reference::Expectation& expectation, const Observation& observation) {
  using Op = reference::ExpectedCollective::Op;
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    for (const ObservedStep& step : observation.ranks[rank].steps) {
      // A rank that is gone may have been ahead of those who recovered without it.
      if (!step.status.ok() || !expectation.steps[step.step].ranks[rank].present) continue;
      if (!expectation.steps[step.step].knows_collectives) continue;
      const auto& expected = expectation.steps[step.step].collectives;
      const auto wrong = [&](std::size_t i, const std::string& what) {
        return Verdict{
            Failing::kWrongBits, "trace",
            fmt::format("rank {}, step {}, collective {}: {}", rank, step.step, i, what)};
      };
      for (std::size_t i = 0; i < expected.size() || i < step.collectives.size(); ++i) {
        if (i >= step.collectives.size()) return wrong(i, "not launched");
        const ObservedCollective& seen = step.collectives[i];
        if (i >= expected.size())
          return wrong(
              i, fmt::format("one too many: bucket {}, {} elements", seen.bucket, seen.count));
        const bool is_bucket = expected[i].op == Op::kAllReduceBucket;
        if (seen.op != observed_as(expected[i].op))
          return wrong(i, "another operation than expected");
        const bool is_sparse = expected[i].op == Op::kGatherSparse;
        if ((is_bucket || is_sparse) &&
            seen.bucket != static_cast<std::int32_t>(expected[i].bucket))
          return wrong(i, fmt::format("bucket {} instead of {}", seen.bucket, expected[i].bucket));
        if (is_bucket && seen.dtype != observed_as(expected[i].dtype))
          return wrong(i, fmt::format("{} instead of {}", name_of(seen.dtype),
                                      name_of(observed_as(expected[i].dtype))));
        if (seen.count != expected[i].count)
          return wrong(i, fmt::format("{} elements instead of {}", seen.count, expected[i].count));
        if (i > 0 && seen.sequence != step.collectives[i - 1].sequence + 1)
          return wrong(i, "sequence numbers are not consecutive");
      }
    }
  }
  return {};
}

Verdict judge(const Case& c, const reference::Contract& contract,
              const reference::Expectation& expectation, const Observation& observation) {
  if (Verdict verdict = judge_end(observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_races(observation); !verdict.ok()) return verdict;
  Verdict errors = contract.is_hook_by_hook
                       ? judge_error_calls(c, contract, expectation, observation)
                       : judge_errors(c, expectation, observation);
  if (!errors.ok()) return errors;
  if (Verdict verdict = judge_gradients(c, expectation, observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_rebuild(c, expectation, observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_state(c, expectation, observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_trace(expectation, observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_leaks(observation); !verdict.ok()) return verdict;
  return errors;  // which may say what could not be judged
}

}  // namespace lockstep::properties
