// Claim: whatever is wrong in what a run shows, an oracle fails, or counts why it cannot tell.
// Method: records simulated cases, with and without faults. It then changes one field of one
// recorded observation after the other, and judges each again.
// A failure means that an oracle accepts something in silence: it names the field and the case
// (seed and index for `lockstep generate`), which is to be judged, or counted as unspecified.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <ostream>

#include "properties/generate/generate.h"
#include "properties/generate/random.h"
#include "properties/oracle/allowed_outcomes.h"
#include "properties/oracle/judge.h"
#include "properties/oracle/oracles.h"
#include "properties/oracle/test_corruption.h"
#include "properties/run/case_runner.h"
#include "reference/arithmetic.h"
#include "reference/model/engine.h"

namespace lockstep::properties {
namespace {

constexpr std::uint64_t kSeed = 18;
constexpr std::uint64_t kCases = 400;

using U = Unspecified;

// Why nobody can say which rank an error had to name.
const std::vector<U> kWho = {U::kSeveralFaults,   U::kFaultsAndErrors,
                             U::kSeveralReducers, U::kCycle,
                             U::kDoneOrDead,      U::kNobodySuspected,
                             U::kOtherGroup,      U::kOtherReducer,
                             U::kSharedGroup,     U::kLocalBackward,
                             U::kPeerLeft,        U::kNamelessPeer,
                             U::kEndsOfLink,      U::kStore};
// Why an error need not be the one that the program must end in.
const std::vector<U> kOther = {U::kOtherReducer, U::kSharedGroup, U::kLocalBackward, U::kPeerLeft,
                               U::kStore};

std::vector<U> with(std::vector<U> reasons, std::initializer_list<U> more) {
  reasons.insert(reasons.end(), more);
  return reasons;
}

std::vector<Field> fields_of_gradients() {
  return {
      {"bits of a gradient",
       [](Changed& c) {
         return c.a_gradient([&](At at, std::uint32_t p, const ObservedGradient& gradient) {
           const reference::Parameter& parameter = c.program().parameters[p];
           if (!gradient.defined || reference::gradient_words(parameter) == 0) return false;
           auto& bits = c.observation().ranks[at.rank].bits;
           std::uint64_t& word = bits[gradient.offset];
           const std::uint64_t before = word;
           for (const std::uint64_t flip : {1u, 0x4000u, 0x7fffu}) {
             word = before ^ flip;
             if (!reference::same_bits(parameter.dtype, before, word)) return true;
           }
           word = before;
           return false;
         });
       },
       {U::kBits}},
      {"a gradient is defined",
       [](Changed& c) {
         return c.a_gradient([&](At at, std::uint32_t p, ObservedGradient& gradient) {
           gradient.defined = !gradient.defined;
           if (!gradient.defined) return true;
           auto& bits = c.observation().ranks[at.rank].bits;
           gradient.offset = bits.size();
           bits.resize(bits.size() + reference::gradient_words(c.program().parameters[p]));
           return true;
         });
       },
       {}},
      {"an untouched gradient keeps its storage",
       [](Changed& c) {
         return c.a_gradient([&](At at, std::uint32_t p, ObservedGradient& gradient) {
           const auto& expected = c.recorded().expected(at.rank, at.step.step).gradients[p];
           if (!expected.untouched || !gradient.same_storage) return false;
           gradient.same_storage = false;
           return true;
         });
       },
       {}},
  };
}

std::vector<Field> fields_of_views() {
  return {
      {"byte of a bucket view",
       [](Changed& c) {
         return c.a_gradient([&](At at, std::uint32_t p, ObservedGradient& gradient) {
           const auto& expected = c.recorded().expected(at.rank, at.step.step).gradients[p];
           gradient.byte_in_storage += 4;
           return expected.in_bucket && gradient.defined;
         });
       },
       {}},
      {"storage of a bucket view",
       [](Changed& c) {
         return c.a_gradient([&](At at, std::uint32_t p, ObservedGradient& gradient) {
           const auto& all = c.recorded().expected(at.rank, at.step.step).gradients;
           const auto& parameters = c.program().parameters;
           const auto is_view = [&](std::uint32_t q) {
             return all[q].in_bucket && at.step.gradients[q].defined &&
                    parameters[q].reducer == parameters[p].reducer &&
                    parameters[q].shared_with == 0;
           };
           for (std::uint32_t q = 0; q < at.step.gradients.size() && is_view(p); ++q) {
             const std::uint32_t other = at.step.gradients[q].shares_with;
             if (!is_view(q) || other == gradient.shares_with) continue;
             gradient.shares_with = other;
             return true;
           }
           return false;
         });
       },
       {}},
      {"number of gradients",
       [](Changed& c) {
         return c.a_good_step([](At at) {
           if (at.step.gradients.empty()) return false;
           at.step.gradients.pop_back();
           return true;
         });
       },
       {}},
  };
}

std::vector<Field> fields_of_values() {
  return {
      {"a value of a parameter or buffer",
       [](Changed& c) {
         return c.a_good_step([](At at) {
           if (at.step.state.empty()) return false;
           at.step.state.back() ^= 1;
           return true;
         });
       },
       {}},
      {"number of values",
       [](Changed& c) {
         return c.a_good_step([](At at) {
           if (at.step.state.empty()) return false;
           at.step.state.pop_back();
           return true;
         });
       },
       {}},
      {"bits after a join",
       [](Changed& c) {
         return c.a_rank([&](RankObservation& rank) {
           for (ObservedStep& end : rank.ending)
             for (std::uint32_t p = 0; p < end.gradients.size(); ++p) {
               if (!end.gradients[p].defined) continue;
               if (reference::gradient_words(c.program().parameters[p]) == 0) continue;
               const std::size_t r = static_cast<std::size_t>(&rank - c.observation().ranks.data());
               if (!c.recorded().expectation.ending[r].gradients[p].known) continue;
               std::uint64_t& word = rank.bits[end.gradients[p].offset];
               word = word == 0 ? 0x3c00u : 0;
               return true;
             }
           return false;
         });
       },
       {}},
      {"values after a join",
       [](Changed& c) {
         return c.a_rank([&](RankObservation& rank) {
           if (rank.ending.empty() || rank.ending[0].state.empty()) return false;
           rank.ending[0].state[0] ^= 1;
           return true;
         });
       },
       {}},
  };
}

std::vector<Field> fields_of_collectives() {
  using Op = ObservedCollective::Op;
  const auto change = [](const std::function<bool(ObservedCollective&)>& of) {
    return [of](Changed& c) { return c.a_collective(of); };
  };
  const auto is_bucket = [](const ObservedCollective& each) {
    return each.op == Op::kAllReduceBucket;
  };
  const std::vector<U> open = {U::kCollectives};
  return {
      {"operation", change([](ObservedCollective& each) {
         each.op = each.op == Op::kAnnounce ? Op::kOther : Op::kAnnounce;
         return true;
       }),
       open},
      {"reducer", change([](ObservedCollective& each) {
         each.reducer = 1 - each.reducer;
         return true;
       }),
       open},
      {"bucket", change([=](ObservedCollective& each) {
         each.bucket += 1;
         return is_bucket(each);
       }),
       open},
      {"count", change([](ObservedCollective& each) {
         each.count += 1;
         return true;
       }),
       open},
      {"dtype", change([=](ObservedCollective& each) {
         each.dtype = each.dtype == DType::kFloat16 ? DType::kFloat32 : DType::kFloat16;
         return is_bucket(each) || each.op == Op::kAllReduceUsage ||
                each.op == Op::kBroadcastOrder || each.op == Op::kAnnounce;
       }),
       open},
      {"completed before it was launched", change([](ObservedCollective& each) {
         each.launched_us = each.completed_us + 1;
         return true;
       }),
       open},
      {"completed after its step", change([](ObservedCollective& each) {
         each.completed_us += 3'600'000'000;
         return true;
       }),
       open},
  };
}

std::vector<Field> fields_of_launches() {
  const std::vector<U> open = {U::kCollectives};
  return {
      {"sequence",
       [](Changed& c) {
         return c.a_good_step([](At at) {
           if (at.step.collectives.size() < 2) return false;
           at.step.collectives.back().sequence += 1;
           return at.step.collectives[at.step.collectives.size() - 2].reducer ==
                  at.step.collectives.back().reducer;
         });
       },
       open},
      {"a collective is missing",
       [](Changed& c) {
         return c.a_good_step([](At at) {
           if (at.step.collectives.empty()) return false;
           at.step.collectives.pop_back();
           return true;
         });
       },
       open},
      {"a collective too many",
       [](Changed& c) {
         return c.a_good_step([](At at) {
           if (at.step.collectives.empty()) return false;
           at.step.collectives.push_back(at.step.collectives.back());
           return true;
         });
       },
       open},
      {"order of a rebuild",
       [](Changed& c) {
         return c.a_good_step([&](At at) {
           const bool has_one = reference::reducer_count(c.program()) == 1;
           const std::uint32_t groups = reference::group_count(c.program());
           const bool has_peer = at.rank >= groups || at.rank + groups < c.program().world;
           if (at.step.rebuilt_order.size() < 2 || !has_one || !has_peer) return false;
           std::swap(at.step.rebuilt_order.front(), at.step.rebuilt_order.back());
           return true;
         });
       },
       {U::kConcurrentHooks}},
      {"buckets launched by a hook",
       [](Changed& c) {
         return c.a_good_step([&](At at) {
           if (c.program().options.launch == reference::Launch::kAfterBackward) return false;
           bool is_changed = false;
           for (ObservedHook& hook : at.step.hooks) {
             is_changed = is_changed || hook.launched > 0;
             hook.launched = 0;
           }
           return is_changed;
         });
       },
       {U::kConcurrentHooks, U::kUnlaunchedBucket}},
  };
}

// Changes what a subject says about the times of a pass that its step has completed (T3).
std::function<bool(Changed&)> in_times(
    const std::function<bool(const SeenPassTimes&, ObservedPassTimes&)>& change) {
  return [change](Changed& c) {
    if (reference::reducer_count(c.program()) != 1 || may_pause(c.recorded().value)) return false;
    return c.a_good_step([&](At at) {
      for (ObservedPassTimes& times : at.step.pass_times) {
        const auto& share =
            reference::share_of(c.program(), c.recorded().expectation, at.rank, times.reducer);
        const bool is_absent =
            reference::pass_of(c.program().steps[at.step.step], static_cast<std::uint32_t>(at.rank))
                .absent;
        if (share.steps[at.step.step].is_reduced && !is_absent && change(at.step.seen_times, times))
          return true;
      }
      return false;
    });
  };
}

constexpr std::int64_t kHour = 3'600'000'000'000;

std::vector<Field> fields_of_times() {
  return {
      {"pass of the times",
       in_times([](const SeenPassTimes&, ObservedPassTimes& times) {
         times.pass += 1;
         return true;
       }),
       {}},
      {"a bucket ready after its last member",
       in_times([](const SeenPassTimes&, ObservedPassTimes& times) {
         if (times.buckets.empty()) return false;
         times.buckets.back().ready_ns += 1;
         return true;
       }),
       {}},
      {"a bucket launched before it is ready",
       in_times([](const SeenPassTimes&, ObservedPassTimes& times) {
         if (times.buckets.empty()) return false;
         times.buckets.back().launched_ns = times.buckets.back().ready_ns - 1;
         return true;
       }),
       {}},
      {"a bucket complete before it is launched",
       in_times([](const SeenPassTimes&, ObservedPassTimes& times) {
         if (times.buckets.empty()) return false;
         times.buckets.back().completed_ns = times.buckets.back().launched_ns - 1;
         return true;
       }),
       {}},
      {"the end of the backward",
       in_times([](const SeenPassTimes&, ObservedPassTimes& times) {
         times.backward_ended_ns += kHour;
         return true;
       }),
       {}},
      {"a pass that ends before its backward",
       in_times([](const SeenPassTimes&, ObservedPassTimes& times) {
         times.finished_ns = times.backward_ended_ns - 1;
         return true;
       }),
       {}},
      {"a pass that ends after its step",
       in_times([](const SeenPassTimes&, ObservedPassTimes& t) {
         t.finished_ns += kHour;
         return true;
       }),
       {}},
  };
}

std::function<bool(Changed&)> in_failure(const std::function<bool(Changed&, Failure&)>& change) {
  return [change](Changed& c) {
    return c.a_failure([&](At, Failure& failure) { return change(c, failure); });
  };
}

std::vector<Field> fields_of_errors() {
  return {
      {"code: internal", in_failure([](Changed&, Failure& f) {
         f.code = Code::kInternal;
         return true;
       }),
       kOther},
      {"code: one that no fault and no program gives", in_failure([](Changed&, Failure& f) {
         f.code = Code::kDisagreement;
         return true;
       }),
       kOther},
      {"code: another failure of the group", in_failure([](Changed&, Failure& f) {
         f.code = f.code == Code::kTimeout ? Code::kTransport : Code::kTimeout;
         return true;
       }),
       with(kOther, {U::kCode})},
      {"culprit", in_failure([](Changed& c, Failure& f) {
         const int other = c.innocent(f.rank, f.suspect);
         if (other == kNone) return false;
         f.rank = other;
         return true;
       }),
       with(kWho, {U::kEndsOfLink})},
      {"suspect", in_failure([](Changed& c, Failure& f) {
         const int other = c.innocent(f.suspect, f.rank);
         if (other == kNone || f.suspect == kNone) return false;
         f.suspect = other;
         return true;
       }),
       with(kWho, {U::kDetails})},
      {"neither culprit nor suspect", in_failure([](Changed&, Failure& f) {
         f.rank = f.suspect = kNone;
         return true;
       }),
       with(kOther, {U::kNamelessPeer})},
      {"who reports it", in_failure([](Changed&, Failure& f) {
         f.reported_by += 1;
         return true;
       }),
       kOther},
      {"pass", in_failure([](Changed&, Failure& f) {
         f.pass += 9;
         return true;
       }),
       kOther},
      {"bucket", in_failure([](Changed&, Failure& f) {
         const bool has_bucket = f.bucket != kNone && !f.parameters.empty();
         f.bucket = 77;
         return has_bucket;
       }),
       with(kOther, {U::kLayout})},
  };
}

std::vector<Field> fields_of_names() {
  return {
      {"parameters", in_failure([](Changed&, Failure& f) {
         const bool has_bucket = f.bucket != kNone && !f.parameters.empty();
         f.parameters = {"p99"};
         return has_bucket;
       }),
       with(kOther, {U::kLayout})},
      {"collective", in_failure([](Changed&, Failure& f) {
         f.collective = "all_scatter";
         return true;
       }),
       kOther},
      {"no sequence number", in_failure([](Changed&, Failure& f) {
         f.sequence = kNone;
         return !f.collective.empty();
       }),
       kOther},
      {"another sequence number",
       in_failure([](Changed&, Failure& f) {
         f.sequence += 1;
         return !f.collective.empty();
       }),
       {U::kDetails}},
      {"text",
       in_failure([](Changed&, Failure& f) {
         f.detail = "something went wrong";
         return true;
       }),
       {U::kDetails}},
      {"no text",
       in_failure([](Changed&, Failure& f) {
         f.detail.clear();
         return true;
       }),
       {}},
      {"attached texts",
       in_failure([](Changed&, Failure& f) {
         f.later.push_back("rank 0: something went wrong");
         return true;
       }),
       {U::kDetails}},
      {"whether it is definite",
       in_failure([](Changed&, Failure& f) {
         f.definite = !f.definite;
         return true;
       }),
       {U::kDetails}},
  };
}

std::vector<Field> fields_of_failed_steps() {
  return {
      {"the call that failed",
       [](Changed& c) {
         return c.a_failure([](At at, Failure&) {
           at.step.failed_call += 1;
           return true;
         });
       },
       {U::kDetails}},
      {"the call that raised an own error",
       [](Changed& c) {
         return c.a_failure([&](At at, Failure& f) {
           const auto& expected = c.recorded().expected(at.rank, at.step.step);
           const bool is_own = expected.outcome == reference::Outcome::kOwnError &&
                               f.rank == f.reported_by && kOwnErrors.has(f.code) &&
                               f.code != Code::kUserFailure;
           if (is_own) at.step.failed_call += 1;
           return is_own;
         });
       },
       kOther},
      {"poisoned",
       [](Changed& c) {
         return c.a_failure([](At at, Failure&) {
           at.step.poisoned = !at.step.poisoned;
           return true;
         });
       },
       with(kOther, {U::kPoisonOfOther})},
      {"a launch before an own error",
       [](Changed& c) {
         return c.a_failure([](At at, Failure& f) {
           at.step.launched = !at.step.launched;
           return f.rank == f.reported_by && f.code == Code::kIncomplete;
         });
       },
       with(kOther, {U::kPoisonOfOther})},
      {"an error that is gone",
       [](Changed& c) {
         return c.a_failure([](At at, Failure&) {
           at.step.status = Status();
           return true;
         });
       },
       {}},
      {"an error too many",
       [](Changed& c) {
         return c.a_good_step([](At at) {
           at.step.status = Status(Code::kInternal, "something went wrong");
           at.step.gradients.clear();
           return true;
         });
       },
       with(kOther, {U::kOutcomeByTime})},
  };
}

std::vector<Field> fields_of_ranks() {
  const auto change = [](const std::function<bool(RankObservation&)>& of) {
    return [of](Changed& c) { return c.a_rank(of); };
  };
  return {
      {"construction",
       change([](RankObservation& rank) {
         rank.construction = Status(Code::kTransport, "something went wrong");
         return true;
       }),
       {}},
      {"reset",
       change([](RankObservation& rank) {
         rank.recovery = Status(Code::kTransport, "something went wrong");
         return true;
       }),
       {}},
      {"end_join",
       change([](RankObservation& rank) {
         rank.joining = Status(Code::kInternal, "something went wrong");
         return true;
       }),
       {}},
      {"a failed reset",
       [](Changed& c) {
         c.observation().ranks[0].failed_joins.push_back({1000, 1000, "timeout"});
         return true;
       },
       {U::kLastStepOfExited}},
      {"left early",
       change([](RankObservation& rank) {
         rank.finished = false;
         return !rank.exited;
       }),
       {}},
      {"an answer",
       change([](RankObservation& rank) {
         rank.wrong_answer = "another roster";
         return true;
       }),
       {}},
      {"who reports a failed reset",
       change([](RankObservation& rank) {
         if (rank.failed_joins.empty() || !rank.failed_joins[0].failure) return false;
         rank.failed_joins[0].failure->reported_by += 1;
         return !rank.exited;
       }),
       {}},
      {"padding",
       change([](RankObservation& rank) {
         rank.wrong_padding = "bucket 0";
         return true;
       }),
       {}},
  };
}

std::vector<Field> fields_of_runs() {
  const auto change = [](const std::function<void(Observation&)>& of) {
    return [of](Changed& c) {
      of(c.observation());
      return true;
    };
  };
  return {
      {"end", change([](Observation& o) { o.end = Observation::End::kDeadlock; }), {}},
      {"race", change([](Observation& o) { o.races.push_back("a race"); }), {}},
      {"leaked threads", change([](Observation& o) { o.leaked_fibers = 1; }), {}},
      {"leaked communicators", change([](Observation& o) { o.leaked_communicators = 1; }), {}},
      {"leaked bytes", change([](Observation& o) { o.leaked_bytes = 8; }), {}},
  };
}

// Of a collective that a successful step has in its trace, too.
bool change_recorded(Changed& c, const std::function<bool(RecordedCollective&)>& change) {
  if (c.program().recreate_before_step != 0) return false;
  return c.a_rank([&](RankObservation& rank) {
    for (ObservedFlightRecord& each : rank.records)
      for (const ObservedStep& step : rank.steps)
        for (const ObservedCollective& own : step.collectives) {
          if (!step.status.ok() || step.generation != each.generation || own.reducer != 0) continue;
          for (RecordedCollective& told : each.record.collectives)
            if (told.sequence == own.sequence && change(told)) return true;
        }
    return false;
  });
}

std::vector<Field> fields_of_records() {
  const auto change = [](const std::function<bool(FlightRecord&)>& of) {
    return [of](Changed& c) { return c.a_record(of); };
  };
  const auto in_collective = [](const std::function<bool(RecordedCollective&)>& of) {
    return [of](Changed& c) { return change_recorded(c, of); };
  };
  const std::vector<U> open = {U::kFlightRecord};
  return {
      {"size of the group",
       change([](FlightRecord& record) {
         record.size += 1;
         return true;
       }),
       {}},
      {"pass of the record", change([](FlightRecord& record) {
         record.pass += 5;
         return true;
       }),
       open},
      {"time of a collective", in_collective([](RecordedCollective& told) {
         told.launched_us -= 1;
         return true;
       }),
       open},
      {"operation of a collective", in_collective([](RecordedCollective& told) {
         told.op = told.op == "all_reduce" ? "broadcast" : "all_reduce";
         return true;
       }),
       open},
      {"what a collective is for", in_collective([](RecordedCollective& told) {
         told.what = RecordedCollective::What::kJoin;
         return told.bucket != kNone;
       }),
       open},
      {"parameters of a collective", in_collective([](RecordedCollective& told) {
         told.parameters.add("p99");
         return true;
       }),
       open},
      {"the next collective", change([](FlightRecord& record) {
         record.next_sequence += 1;
         return !record.collectives.empty();
       }),
       open},
      {"the trace as text",
       [](Changed& c) {
         return c.a_rank([](RankObservation& rank) {
           if (rank.records.empty() || rank.records[0].trace.empty()) return false;
           rank.records[0].trace += "#";
           const auto& all = rank.records[0].record.collectives;
           return std::none_of(all.begin(), all.end(), [](const RecordedCollective& told) {
             return told.parameters.count > lockstep::Names::kKept;
           });
         });
       },
       {}},
      {"a gap between collectives", change([](FlightRecord& record) {
         if (record.collectives.size() < 2) return false;
         record.collectives.back().sequence += 3;
         return true;
       }),
       open},
      {"passes of collectives go back", change([](FlightRecord& record) {
         if (record.collectives.size() < 2) return false;
         record.collectives.back().pass = -5;
         return true;
       }),
       open},
  };
}

std::deque<Recorded> record() {
  std::deque<Recorded> all;
  CaseRunner runner(LaneKind::kSim, Subject{});
  runner.set_detailed(true);
  for (std::uint64_t i = 0; i < kCases; ++i) {
    Recorded recorded;
    recorded.index = i;
    recorded.value = generate(kSeed, i, {});
    const Verdict verdict = runner.run(recorded.value);
    EXPECT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
    recorded.observation = runner.observation();
    recorded.expectation =
        expectation_of(recorded.value, Profile::lockstep(), recorded.observation.recoveries,
                       recorded.observation.ready_orders());
    all.push_back(std::move(recorded));
  }
  return all;
}

// One recording serves all tests.
const std::deque<Recorded>& recorded() {
  static const std::deque<Recorded> all = record();
  return all;
}

class Corruption : public ::testing::TestWithParam<Field> {};

TEST_P(Corruption, IsSeenOrCountedAsUnspecified) {
  const Field& field = GetParam();
  std::uint64_t seen = 0;
  std::uint64_t open = 0;
  std::vector<std::string> silent;
  for (const Recorded& each : recorded()) {
    Changed changed(each, std::hash<std::string>()(field.name));
    if (!field.change(changed)) continue;
    const Verdict verdict = judge(each.value, each.expectation, changed.observation());
    const bool is_open = std::any_of(field.open.begin(), field.open.end(), [&](Unspecified reason) {
      return verdict.unspecified.of(reason) > 0;
    });
    if (!verdict.ok())
      ++seen;
    else if (is_open)
      ++open;
    else
      silent.push_back(fmt::format("{}", each.index));
  }
  RecordProperty("seen", fmt::format("{}", seen));
  RecordProperty("open", fmt::format("{}", open));
  const bool is_never_judged = field.open == std::vector<Unspecified>{Unspecified::kDetails};
  EXPECT_TRUE(seen > 0 || (is_never_judged && open > 0)) << "no case has such a field";
  EXPECT_TRUE(silent.empty()) << "of seed " << kSeed << ", nobody says anything in cases "
                              << fmt::format("{}", fmt::join(silent, " ")) << " (" << seen
                              << " seen, " << open << " counted as unspecified)";
}

std::string name_of_field(const ::testing::TestParamInfo<Field>& info) {
  std::string out;
  bool begins_word = true;
  for (const char letter : std::string(info.param.name)) {
    const bool is_letter = std::isalnum(static_cast<unsigned char>(letter)) != 0;
    if (is_letter) out += begins_word ? static_cast<char>(std::toupper(letter)) : letter;
    begins_word = !is_letter;
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Views, Corruption, ::testing::ValuesIn(fields_of_views()), name_of_field);
INSTANTIATE_TEST_SUITE_P(Values, Corruption, ::testing::ValuesIn(fields_of_values()),
                         name_of_field);
INSTANTIATE_TEST_SUITE_P(Gradients, Corruption, ::testing::ValuesIn(fields_of_gradients()),
                         name_of_field);
INSTANTIATE_TEST_SUITE_P(Launches, Corruption, ::testing::ValuesIn(fields_of_launches()),
                         name_of_field);
INSTANTIATE_TEST_SUITE_P(Times, Corruption, ::testing::ValuesIn(fields_of_times()), name_of_field);
INSTANTIATE_TEST_SUITE_P(Collectives, Corruption, ::testing::ValuesIn(fields_of_collectives()),
                         name_of_field);
INSTANTIATE_TEST_SUITE_P(Names, Corruption, ::testing::ValuesIn(fields_of_names()), name_of_field);
INSTANTIATE_TEST_SUITE_P(FailedSteps, Corruption, ::testing::ValuesIn(fields_of_failed_steps()),
                         name_of_field);
INSTANTIATE_TEST_SUITE_P(Errors, Corruption, ::testing::ValuesIn(fields_of_errors()),
                         name_of_field);
INSTANTIATE_TEST_SUITE_P(Ranks, Corruption, ::testing::ValuesIn(fields_of_ranks()), name_of_field);
INSTANTIATE_TEST_SUITE_P(Runs, Corruption, ::testing::ValuesIn(fields_of_runs()), name_of_field);
INSTANTIATE_TEST_SUITE_P(Records, Corruption, ::testing::ValuesIn(fields_of_records()),
                         name_of_field);

// Reasons that concern steps, gradients and flight records; all others concern errors of ranks.
bool is_of_steps(Unspecified reason) {
  return reason == U::kBits || reason == U::kCollectives || reason == U::kConcurrentHooks ||
         reason == U::kUnlaunchedBucket || reason == U::kFlightRecord;
}

// The most that the oracles may leave open, in percent of the errors, or of the steps. The shares
// were two thirds to three quarters of this when the bounds were set; most reasons are rarer.
double bound_of(Unspecified reason) {
  switch (reason) {
    case U::kDetails:
      return 100;
    case U::kCode:
      return 40;
    case U::kConcurrentHooks:
      return 30;
    case U::kSeveralFaults:
      return 27;
    case U::kOtherReducer:
    case U::kAttached:
    case U::kOutcomeByTime:
      return 12;
    case U::kFaultsAndErrors:
    case U::kSeveralReducers:
    case U::kFlightRecord:
    case U::kEndsOfLink:
      return 8;
    case U::kBits:
    case U::kSharedGroup:
    case U::kLayout:
    case U::kLastStepOfExited:
    case U::kPassOfNode:
      return 5;
    case U::kCycle:
    case U::kUnlaunchedBucket:
      return 3;
    case U::kStore:
      return 8;
    case U::kCulpritOfJoin:
    case U::kNoCollective:
      return 2;
    default:
      return 1;
  }
}

// So that a rule that begins to excuse more shows.
TEST(UnspecifiedShare, IsBounded) {
  UnspecifiedCounts counts;
  std::uint64_t steps = 0;
  CaseRunner runner(LaneKind::kSim, Subject{});
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const Verdict verdict = runner.run(generate(kSeed + 1, i, {}));
    ASSERT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
    counts += verdict.unspecified;
    for (const RankObservation& rank : runner.observation().ranks) steps += rank.steps.size();
  }
  ASSERT_GT(counts.errors, 2000u);
  EXPECT_EQ(counts.of(U::kDetails), counts.errors);
  for (std::size_t i = 0; i < kUnspecifiedReasons; ++i) {
    const auto reason = static_cast<Unspecified>(i);
    const std::uint64_t whole = is_of_steps(reason) ? steps : counts.errors;
    const double share = 100.0 * counts.of(reason) / static_cast<double>(whole);
    EXPECT_LE(share, bound_of(reason))
        << name_of(reason) << ": " << counts.of(reason) << " of " << whole;
  }
}

}  // namespace
}  // namespace lockstep::properties
