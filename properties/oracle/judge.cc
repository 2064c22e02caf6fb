#include "properties/oracle/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "properties/oracle/oracles.h"
#include "reference/model/engine.h"
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
    case Observation::End::kNotRun:
      return {Failing::kInconclusive, "environment", observation.wait_graph};
    case Observation::End::kHung:
      return {Failing::kDeadlock, "progress",
              "no end within the time limit: " + observation.wait_graph};
  }
  return {};
}

// A race is a failure, whatever the bits were in this schedule.
Verdict judge_races(const Observation& observation) {
  if (observation.races.empty()) return {};
  return {Failing::kRace, "race", fmt::format("{}", fmt::join(observation.races, "\n"))};
}

Verdict judge_leaks(const Observation& observation) {
  if (observation.leaked_fibers != 0)
    return {Failing::kLeak, "leak",
            fmt::format("{} threads outlive the run", observation.leaked_fibers)};
  if (observation.leaked_communicators != 0)
    return {Failing::kLeak, "leak",
            fmt::format("{} NCCL communicators were neither aborted nor destroyed",
                        observation.leaked_communicators)};
  if (observation.leaked_bytes != 0)
    return {Failing::kLeak, "leak",
            fmt::format("{} bytes of tensors outlive the run", observation.leaked_bytes)};
  return {};
}

Verdict judge_answers(const Observation& observation) {
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank)
    if (const std::string& what = observation.ranks[rank].wrong_answer; !what.empty())
      return {Failing::kWrongError, "answer", fmt::format("rank {}: {}", rank, what)};
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

// Returns the step whose pass recorded the order for the rebuild of steps[at]: the one synced pass
// that this rank has completed in its group.
const ObservedStep* recorded_before(const reference::Expectation& expectation,
                                    const RankObservation& rank, std::size_t at) {
  while (at-- > 0)
    if (rank.steps[at].status.ok() && expectation.steps[rank.steps[at].step].is_reduced)
      return &rank.steps[at];
  return nullptr;
}

// Judges the rebuild of one reducer in one group (B2).
class RebuildOracle {
 public:
  RebuildOracle(const Case& c, const reference::Expectation& share, const Observation& observation,
                std::size_t first_rank, std::uint32_t reducer, UnspecifiedCounts& counts)
      : case_(c),
        share_(share),
        observation_(observation),
        first_rank_(first_rank),
        reducer_(reducer),
        counts_(counts) {
    const auto& parameters = c.program.parameters;
    one_device_ = std::all_of(parameters.begin(), parameters.end(), [&](const auto& each) {
      return each.device == parameters[0].device;
    });
    has_replicas_ = std::any_of(parameters.begin(), parameters.end(),
                                [](const auto& each) { return each.copy_of > 0; });
    // A backward of a communication hook may run other hooks of the pass within the hook that
    // called it, which has not returned then.
    const reference::Replicated& options = c.program.options;
    hooks_nest_ = options.hook == reference::Hook::kElsewhere &&
                  options.hook_backward != reference::HookBackward::kNone;
    for (const auto& bucket : share.buckets)
      all_.insert(all_.end(), bucket.parameters.begin(), bucket.parameters.end());
  }

  Verdict judge() {
    const std::uint32_t groups = reference::group_count(case_.program);
    for (std::size_t r = first_rank_; r < observation_.ranks.size(); r += groups) {
      const RankObservation& rank = observation_.ranks[r];
      for (std::size_t s = 0; s < rank.steps.size(); ++s)
        if (Verdict verdict = judge_step(r, s); !verdict.ok()) return verdict;
    }
    return {};
  }

 private:
  // Returns the parameters that belong to this reducer.
  std::vector<std::uint32_t> own(const std::vector<std::uint32_t>& parameters) const {
    std::vector<std::uint32_t> out = parameters;
    std::erase_if(out,
                  [&](std::uint32_t p) { return case_.program.parameters[p].reducer != reducer_; });
    return out;
  }

  // Returns the order that the first rank observed in the same step.
  std::vector<std::uint32_t> order_of(std::uint32_t step) const {
    const std::uint32_t groups = reference::group_count(case_.program);
    for (std::size_t r = first_rank_; r < observation_.ranks.size(); r += groups)
      for (const ObservedStep& each : observation_.ranks[r].steps)
        if (each.step == step && !each.rebuilt_order.empty()) return own(each.rebuilt_order);
    return {};
  }

  bool is_first(const reference::ExpectedStep& step, std::size_t rank) const {
    for (std::size_t r = 0; r < rank; ++r)
      if (step.ranks[r].present) return false;
    return true;
  }

  Verdict judge_step(std::size_t r, std::size_t at) const {
    const RankObservation& rank = observation_.ranks[r];
    const ObservedStep& step = rank.steps[at];
    const std::vector<std::uint32_t> order = own(step.rebuilt_order);
    if (order.empty()) return {};
    const auto wrong = [&](const std::string& what) {
      return Verdict{Failing::kWrongBits, "layout", fmt::format("step {}: {}", step.step, what)};
    };
    if (!std::is_permutation(order.begin(), order.end(), all_.begin(), all_.end()))
      return wrong("the buckets were rebuilt from an order that is none of all parameters");
    if (order != order_of(step.step))
      return wrong(fmt::format("rank {} rebuilt its buckets in another order than others", r));
    const ObservedStep* recorded = recorded_before(share_, rank, at);
    const bool is_ordered = one_device_ && !hooks_nest_;
    if (!is_ordered) counts_.note(Unspecified::kConcurrentHooks);
    if (!is_ordered || recorded == nullptr || !is_first(share_.steps[step.step], r)) return {};
    const std::vector<std::uint32_t> seen = own(recorded->hook_order);
    std::vector<std::uint32_t> hooked;
    std::vector<std::uint32_t> others;
    for (const std::uint32_t parameter : order) {
      const bool had_hook = std::find(seen.begin(), seen.end(), parameter) != seen.end();
      (had_hook ? hooked : others).push_back(parameter);
    }
    // The end of the first static pass marks all parameters without a hook.
    const bool are_marked_at_once =
        case_.program.options.mode == reference::Mode::kStatic && !has_replicas_;
    if (are_marked_at_once && !std::is_sorted(others.begin(), others.end()))
      return wrong(fmt::format("the buckets follow p{}, and p{} had no hook in step {}",
                               fmt::join(order, " p"), fmt::join(others, " p"), recorded->step));
    if (hooked == seen) return {};
    return wrong(fmt::format("the buckets follow p{}, and rank {} saw its hooks in step {} as p{}",
                             fmt::join(order, " p"), r, recorded->step, fmt::join(seen, " p")));
  }

  const Case& case_;
  const reference::Expectation& share_;
  const Observation& observation_;
  const std::size_t first_rank_;
  const std::uint32_t reducer_;
  UnspecifiedCounts& counts_;
  bool one_device_ = false;
  bool hooks_nest_ = false;
  bool has_replicas_ = false;
  std::vector<std::uint32_t> all_;  // the parameters that are trained
};

}  // namespace

// The order must contain every trained parameter once, be the same on every rank, and be the order
// of hooks on the first rank: with one device, hooks run one after another (B2).
Verdict judge_rebuild(const Case& c, const reference::Expectation& expectation,
                      const Observation& observation, UnspecifiedCounts& counts) {
  if (!c.program.options.rebuild) return {};
  for (std::uint32_t group = 0; group < reference::group_count(c.program); ++group) {
    for (std::uint32_t r = 0; r < reference::reducer_count(c.program); ++r) {
      const auto& share = reference::share_of(c.program, expectation, group, r);
      if (Verdict verdict = RebuildOracle(c, share, observation, group, r, counts).judge();
          !verdict.ok())
        return verdict;
    }
  }
  return {};
}

// Judges the values of parameters and buffers (S3).
Verdict judge_state(const Case& c, const reference::Expectation& expectation,
                    const Observation& observation) {
  const std::vector<reference::StateTensor> tensors = reference::state_tensors(c.program);
  const auto buffers = static_cast<std::size_t>(std::count_if(
      tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.is_buffer; }));
  const bool has_replicas =
      std::any_of(c.program.parameters.begin(), c.program.parameters.end(),
                  [](const reference::Parameter& each) { return each.copy_of > 0; });
  const auto compare = [&](std::size_t rank, const ObservedStep& step,
                           const reference::ExpectedRankStep& expected) -> Verdict {
    if (!step.status.ok() || !expected.present) return {};
    // A reducer that its user has aborted copies nothing to replicas before a forward without
    // gradients, which is none of its work.
    const bool is_without_gradients =
        step.step < c.program.steps.size() &&
        c.program.steps[step.step].kind == reference::PassKind::kNoGrad;
    if (has_replicas && is_without_gradients &&
        has_aborted_reducers(c, observation, rank, step.step))
      return {};
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

namespace {

// Judges the collectives of one step of one rank and reducer (T2).
Verdict judge_collectives(const std::vector<reference::ExpectedCollective>& expected,
                          const std::vector<ObservedCollective>& observed, const ObservedStep& step,
                          bool is_ours, const std::string& where) {
  using Op = reference::ExpectedCollective::Op;
  const auto wrong = [&](std::size_t i, const std::string& what) {
    return Verdict{Failing::kWrongBits, "trace",
                   fmt::format("{}, collective {}: {}", where, i, what)};
  };
  for (std::size_t i = 0; i < expected.size() || i < observed.size(); ++i) {
    if (i >= observed.size()) return wrong(i, "not launched");
    const ObservedCollective& seen = observed[i];
    if (i >= expected.size())
      return wrong(i, fmt::format("one too many: bucket {}, {} elements", seen.bucket, seen.count));
    const bool is_bucket = expected[i].op == Op::kAllReduceBucket;
    if (seen.op != observed_as(expected[i].op)) return wrong(i, "another operation than expected");
    const bool is_sparse = expected[i].op == Op::kGatherSparse;
    if ((is_bucket || is_sparse) && seen.bucket != static_cast<std::int32_t>(expected[i].bucket))
      return wrong(i, fmt::format("bucket {} instead of {}", seen.bucket, expected[i].bucket));
    // Other reducers may send these numbers as another dtype, or are not asked for it.
    const bool is_of_numbers =
        is_ours && (expected[i].op == Op::kAllReduceUsage ||
                    expected[i].op == Op::kBroadcastOrder || expected[i].op == Op::kAnnounce);
    const DType dtype = is_of_numbers ? DType::kInt32 : observed_as(expected[i].dtype);
    if ((is_bucket || is_of_numbers) && seen.dtype != dtype)
      return wrong(i, fmt::format("{} instead of {}", name_of(seen.dtype), name_of(dtype)));
    if (seen.count != expected[i].count)
      return wrong(i, fmt::format("{} elements instead of {}", seen.count, expected[i].count));
    if (seen.launched_us > seen.completed_us) return wrong(i, "completed before it was launched");
    if (seen.launched_us < step.begin_us || seen.completed_us > step.end_us)
      return wrong(i, fmt::format("from {} to {} us of the clock, and the step is from {} to {}",
                                  seen.launched_us, seen.completed_us, step.begin_us, step.end_us));
    if (i > 0 && seen.sequence != observed[i - 1].sequence + 1)
      return wrong(i, "sequence numbers are not consecutive");
  }
  return {};
}

// An absent rank takes part in what its forwards start, and in nothing else (P8).
void leave_out_absent(const reference::Step& step, std::size_t rank,
                      std::vector<reference::ExpectedCollective>& expected) {
  using Op = reference::ExpectedCollective::Op;
  const reference::RankPass& pass = reference::pass_of(step, static_cast<std::uint32_t>(rank));
  if (!pass.absent) return;
  const bool is_synced = kind_of(step, pass) == reference::PassKind::kSynced;
  std::erase_if(expected, [&](const auto& each) {
    const bool is_own = (each.op == Op::kBroadcastBuffers && !pass.skip) ||
                        (each.op == Op::kBroadcastOrder && is_synced);
    return !is_own;
  });
}

}  // namespace

Verdict judge_trace(const Case& c, const Expected& expectation, const Observation& observation,
                    UnspecifiedCounts& counts) {
  const std::uint32_t reducers = reference::reducer_count(c.program);
  std::vector<ObservedCollective> own;
  std::vector<reference::ExpectedCollective> expected;
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank) {
    for (const ObservedStep& step : observation.ranks[rank].steps) {
      // A rank that has exited may have been ahead of those who recovered without it.
      if (!step.status.ok() || !expectation.steps[step.step].ranks[rank].present) continue;
      if (!expectation.knowledge_of(step.step).knows_collectives) {
        counts.note(Unspecified::kCollectives);
        continue;
      }
      // Only reducers of this project run in the simulator, but for those of shared libraries.
      const bool is_ours = observation.trace_hash != 0 && observation.attaches;
      for (std::uint32_t r = 0; r < reducers; ++r) {
        own.clear();
        std::copy_if(step.collectives.begin(), step.collectives.end(), std::back_inserter(own),
                     [r](const ObservedCollective& each) { return each.reducer == r; });
        std::string where = fmt::format("rank {}, step {}", rank, step.step);
        if (reducers > 1) where += fmt::format(", reducer {}", r);
        const auto& share = reference::share_of(c.program, expectation, rank, r);
        expected = share.steps[step.step].collectives;
        leave_out_absent(c.program.steps[step.step], rank, expected);
        Verdict verdict = judge_collectives(expected, own, step, is_ours, where);
        if (!verdict.ok()) return verdict;
      }
    }
  }
  return {};
}

Verdict judge_proof(const Observation& observation) {
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank)
    if (const std::string& what = observation.ranks[rank].lacking; !what.empty())
      return {Failing::kInconclusive, "environment", fmt::format("rank {}: {}", rank, what)};
  for (std::size_t rank = 0; rank < observation.ranks.size(); ++rank)
    if (const std::string& why = observation.ranks[rank].unproven; !why.empty())
      return {Failing::kUnproven, "pinning", fmt::format("rank {}: {}", rank, why)};
  return {};
}

Verdict judge(const Case& c, const Profile& profile, const Expected& expectation,
              const Observation& observation) {
  if (Verdict verdict = judge_proof(observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_end(observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_races(observation); !verdict.ok()) return verdict;
  Verdict errors = profile.judges_calls_alone()
                       ? judge_error_calls(c, profile.policies, expectation, observation)
                       : judge_errors(c, expectation, observation);
  // A question of the lane's own does not hide an error that the subject has raised without a
  // reason: what the lane found wrong may only follow from it.
  if (errors.might_succeed) return errors;
  if (Verdict verdict = judge_answers(observation); !verdict.ok()) return verdict;
  if (Verdict verdict = judge_refusals(c, observation); !verdict.ok()) return verdict;
  if (!errors.ok()) return errors;
  if (!profile.judges_calls_alone()) {
    if (Verdict v = judge_texts(c, expectation, observation); !v.ok()) return v;
    if (Verdict v = judge_attempts(c, observation); !v.ok()) return v;
  }
  UnspecifiedCounts& counts = errors.unspecified;
  if (Verdict v = judge_gradients(c, expectation, observation, counts); !v.ok()) return v;
  if (!profile.any_arithmetic)
    if (Verdict v = judge_rebuild(c, expectation, observation, counts); !v.ok()) return v;
  if (!profile.gradients_alone)
    if (Verdict v = judge_state(c, expectation, observation); !v.ok()) return v;
  if (Verdict v = judge_trace(c, expectation, observation, counts); !v.ok()) return v;
  if (Verdict verdict = judge_padding(observation); !verdict.ok()) return verdict;
  if (!profile.any_arithmetic)
    if (Verdict v = judge_overlap(c, expectation, observation, counts); !v.ok()) return v;
  if (Verdict v = judge_pass_times(c, expectation, observation); !v.ok()) return v;
  if (Verdict v = judge_diagnosis(c, expectation, observation, counts); !v.ok()) return v;
  if (Verdict verdict = judge_leaks(observation); !verdict.ok()) return verdict;
  return errors;  // this verdict may say what could not be judged
}

}  // namespace lockstep::properties
