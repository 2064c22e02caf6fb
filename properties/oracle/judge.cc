#include "properties/oracle/judge.h"

#include <fmt/format.h>

#include "properties/oracle/oracles.h"

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

Verdict judge_leaks(const Observation& observation) {
  if (observation.leaked_fibers != 0)
    return {Failing::kLeak, "leak",
            fmt::format("{} threads outlive the run", observation.leaked_fibers)};
  if (observation.leaked_bytes != 0)
    return {Failing::kLeak, "leak",
            fmt::format("{} bytes of tensors outlive the run", observation.leaked_bytes)};
  return {};
}

Verdict judge_trace(const reference::Expectation& expectation, const Observation& observation) {
  using Op = reference::ExpectedCollective::Op;
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    for (const ObservedStep& step : observation.ranks[rank].steps) {
      if (!step.status.ok()) continue;
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
        if (is_bucket != (seen.op == ObservedCollective::Op::kAllReduceBucket))
          return wrong(i, "another operation than expected");
        if (is_bucket && seen.bucket != static_cast<std::int32_t>(expected[i].bucket))
          return wrong(i, fmt::format("bucket {} instead of {}", seen.bucket, expected[i].bucket));
        if (seen.count != expected[i].count)
          return wrong(i, fmt::format("{} elements instead of {}", seen.count, expected[i].count));
        if (i > 0 && seen.sequence != step.collectives[i - 1].sequence + 1)
          return wrong(i, "sequence numbers are not consecutive");
      }
    }
  }
  return {};
}

Verdict judge(const Case& c, const reference::Expectation& expectation,
              const Observation& observation) {
  if (Verdict verdict = judge_end(observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_errors(c, expectation, observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_gradients(c, expectation, observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_trace(expectation, observation); !verdict.ok()) return verdict;
  return judge_leaks(observation);
}

}  // namespace lockstep::properties
