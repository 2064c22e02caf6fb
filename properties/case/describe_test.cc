#include "properties/case/describe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "properties/generate/generate.h"

namespace lockstep::properties {
namespace {

using reference::Input;
using reference::Node;
using reference::PassKind;
using reference::ZeroGrad;

Case with_steps(std::uint32_t world, std::size_t parameters, std::size_t steps) {
  Case value;
  value.program.world = world;
  value.program.parameters.resize(parameters);
  value.program.steps.resize(steps);
  normalize(value);
  return value;
}

std::vector<Node>& nodes_of(Case& value, std::size_t step, std::size_t variant = 0) {
  return value.program.steps[step].variants[variant].forwards[0].nodes;
}

Node use(std::uint32_t parameter, std::vector<Input> inputs = {}) {
  Node node;
  node.parameter = parameter;
  node.inputs = std::move(inputs);
  return node;
}

Node other(Node::Kind kind, std::vector<Input> inputs, std::int32_t factor = 0) {
  Node node;
  node.kind = kind;
  node.inputs = std::move(inputs);
  node.factor = factor;
  return node;
}

// The text of one step, without the lines around it.
std::string step_text(const Case& value, std::size_t step) {
  std::istringstream text(describe(value));
  std::string out;
  const std::string begin = "step " + std::to_string(step) + " ";
  bool inside = false;
  for (std::string line; std::getline(text, line);) {
    inside = line.rfind(begin, 0) == 0 || (inside && line.rfind("  ", 0) == 0);
    if (inside) out += line + "\n";
  }
  return out;
}

TEST(Describe, AParameterUsedInNoSyncAlone) {
  Case value = with_steps(2, 2, 2);
  value.program.options.mode = reference::Mode::kDynamic;
  value.program.steps[0].kind = PassKind::kNoSync;
  value.program.steps[1].zero_grad = ZeroGrad::kKeep;
  nodes_of(value, 1) = {use(1)};
  EXPECT_EQ(describe(value),
            "2 ranks, dynamic mode, ring order, exact values, buckets of 1 MiB, then 25 MiB\n"
            "parameters p0 float32, p1 float32\n"
            "step 0 (no_sync): every rank: backward of p0; does not use p1\n"
            "step 1 (synced, no zero_grad): every rank: backward of p1; does not use p0\n"
            "schedule: default; waits never time out\n");
}

TEST(Describe, AnAbsentRankAndWhatItDoesMeanwhile) {
  Case value = with_steps(2, 1, 1);
  std::vector<reference::RankPass>& variants = value.program.steps[0].variants;
  variants.resize(1);
  variants.push_back(variants[0]);
  variants[1].absent = true;
  const auto line = [&] {
    Case normal = value;
    normalize(normal);
    const std::string text = describe(normal);
    const std::size_t begin = text.find("step 0");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(
      line(),
      "step 0 (synced): rank 0: backward of p0; rank 1: absent: under no_sync, backward of p0");
  variants[1].forwards[0].discard = true;
  EXPECT_EQ(line(),
            "step 0 (synced): rank 0: backward of p0; rank 1: absent: drops p0, no backward");
  variants[1].skip = true;
  EXPECT_EQ(line(), "step 0 (synced): rank 0: backward of p0; rank 1: absent: nothing");
}

TEST(Describe, TheWayAProgramIsRun) {
  Case value = with_steps(2, 1, 1);
  value.program.options.manual_sync = true;
  EXPECT_EQ(
      describe(value).substr(0, describe(value).find('\n')),
      "2 ranks, plain mode, ring order, exact values, buckets of 1 MiB, then 25 MiB; synced by "
      "hand");
}

TEST(Describe, ABadNumberAndWhereItStands) {
  Case value = with_steps(2, 2, 2);
  EXPECT_EQ(describe(value).find("bad number"), std::string::npos);
  value.program.bad_number = {reference::BadNumber::Kind::kInfinity, 3, 1, 0, 5};
  EXPECT_NE(describe(value).find("\nbad number: in step 1 rank 1 sends p0 +infinity at value 4\n"),
            std::string::npos)
      << describe(value);
  value.program.bad_number.element = 0;
  EXPECT_NE(describe(value).find(" sends p0 +infinity as a factor\n"), std::string::npos);
}

TEST(Describe, AThirdLimitIsNamedOnlyWhereItHolds) {
  Case value = with_steps(2, 1, 1);
  value.program.options.last_bucket_bytes = 8;
  EXPECT_NE(describe(value).find("then 25 MiB, then 8 bytes\n"), std::string::npos);
  value.program.options.launch = reference::Launch::kAfterBackward;
  EXPECT_NE(describe(value).find("buckets of 25 MiB; reduced after backward\n"), std::string::npos);
}

TEST(Describe, FaultsAndASchedule) {
  Case value = with_steps(3, 1, 4);
  value.program.options.first_bucket_bytes = 1;
  value.program.options.bucket_bytes = 64;
  value.faults.faults = {{faults::Kind::kRankExit, 1, 3, 1, 0},
                         {faults::Kind::kMessageDelay, 2, 0, 10, 1500}};
  value.schedule.policy = Schedule::Policy::kRandomWalk;
  value.schedule.seed = 7;
  value.timeout_ms = 2000;
  EXPECT_EQ(describe(value),
            "3 ranks, plain mode, ring order, exact values, buckets of 1 byte, then 64 bytes\n"
            "parameter p0 float32\n"
            "step 0 (synced): every rank: backward of p0\n"
            "step 1 (synced, zero_grad to none): every rank: backward of p0\n"
            "step 2 (synced, zero_grad to none): every rank: backward of p0\n"
            "step 3 (synced, zero_grad to none): every rank: backward of p0\n"
            "fault: rank 1's process exits at its 2nd collective of step 3\n"
            "fault: rank 2's 11th message of step 0 arrives 1.5 ms late\n"
            "schedule: random walk, seed 7; timeout 2000 ms\n");
  value.timeout_ms = 0;  // not for ever, as who exits may never answer
  EXPECT_NE(describe(value).find("seed 7; timeout 10000 ms\n"), std::string::npos);
}

TEST(Describe, EveryKindOfParameter) {
  Case value = with_steps(2, 5, 0);
  auto& p = value.program.parameters;
  p[0].sizes = {3, 4};
  p[0].column_major = true;
  p[1].shared_with = 1;
  p[2].dtype = reference::DType::kFloat16;
  p[2].frozen = true;
  p[3].sizes = {0};
  p[3].device = 1;
  p[4].dtype = reference::DType::kBFloat16;
  EXPECT_EQ(
      describe(value),
      "2 ranks, plain mode, ring order, exact values, buckets of 1 MiB, then 25 MiB\n"
      "parameters p0 float32[3, 4] column-major, p1 is p0, p2 float16 frozen, p3 float32[0] on "
      "device 1,\n"
      "           p4 bfloat16\n"
      "no steps: construction alone\n"
      "schedule: default; waits never time out\n");
}

TEST(Describe, RanksThatDiffer) {
  Case value = with_steps(3, 2, 1);
  auto& variants = value.program.steps[0].variants;
  variants.resize(3, variants[0]);
  nodes_of(value, 0, 0) = {use(0), use(1, {{0, 0}})};
  nodes_of(value, 0, 1) = {use(0)};
  nodes_of(value, 0, 2) = {use(0), use(1, {{0, 0}})};
  EXPECT_EQ(
      step_text(value, 0),
      "step 0 (synced): ranks 0, 2: backward of p1(p0); rank 1: backward of p0; does not use p1\n");
  nodes_of(value, 0, 1) = {other(Node::Kind::kSum, {})};
  EXPECT_EQ(step_text(value, 0),
            "step 0 (synced): ranks 0, 2: backward of p1(p0); rank 1: backward of const; uses no "
            "parameter\n");
  // What does not fit on a line gets a line for each group of ranks.
  variants[1].keep_outputs = true;
  EXPECT_EQ(step_text(value, 0),
            "step 0 (synced):\n"
            "  ranks 0, 2: backward of p1(p0)\n"
            "  rank 1: backward of const; keeps outputs, check_complete(); uses no parameter\n");
  variants[1].hold_outputs = true;
  variants[1].forwards[0].constants = 2;
  EXPECT_EQ(step_text(value, 0),
            "step 0 (synced):\n"
            "  ranks 0, 2: backward of p1(p0)\n"
            "  rank 1: backward of const; 2 constant outputs; keeps outputs, check_complete(), and "
            "holds them until its next step has ended; uses no parameter\n");
}

TEST(Describe, EveryKindOfNode) {
  Case value = with_steps(1, 3, 1);
  using Kind = Node::Kind;
  nodes_of(value, 0) = {use(0), other(Kind::kScale, {{0, 0}}, -2), other(Kind::kStop, {{0, 0}}),
                        other(Kind::kDetach, {{0, 0}}), other(Kind::kSum, {{0, 0}, {2, 0}})};
  EXPECT_EQ(
      step_text(value, 0),
      "step 0 (synced): rank 0: backward of sum(detach(stop(a)), a) where a = -2*p0; does not use "
      "p1, p2\n");
  Node checkpoint = other(Kind::kCheckpoint, {{0, 1}});
  checkpoint.body = {use(1), use(2, {{0, 0}})};
  nodes_of(value, 0) = {other(Kind::kSplit, {}), checkpoint};
  EXPECT_EQ(
      step_text(value, 0),
      "step 0 (synced): rank 0: backward of checkpoint{p2(p1)}(split().1); does not use p0\n");
  nodes_of(value, 0) = {use(0), use(1, {{0, 0}}), use(2, {{0, 0}})};
  nodes_of(value, 0)[2].row_major = true;
  value.program.parameters[2].column_major = true;
  EXPECT_EQ(step_text(value, 0), "step 0 (synced): rank 0: backward of p2:row-major(p1(p0))\n");
}

TEST(Describe, WhatARankDoesBetweenCallsHasItsPlaceInTheirOrder) {
  Case value = with_steps(1, 1, 2);
  nodes_of(value, 1) = {use(0)};
  auto& calls = value.program.steps[1].variants[0].backwards;
  calls = {{{0}}, {}};
  calls[0].zeroes = calls[0].evaluates = calls[0].updates = true;
  calls[1].held = calls[1].drops = true;
  EXPECT_EQ(
      step_text(value, 1),
      "step 1 (synced, zero_grad to none): rank 0: backward of p0, then of what it holds from "
      "the step before; in the order forward 0, forward 0 without gradients, zero_grad, "
      "optimizer step, backward 0, drop of the outputs that no further backward needs, "
      "backward 1\n");
}

TEST(Describe, ForwardsOutputsAndCalls) {
  Case value = with_steps(1, 2, 1);
  auto& pass = value.program.steps[0].variants[0];
  pass.forwards.resize(2, pass.forwards[0]);
  pass.forwards[1].nodes = {use(1)};
  EXPECT_EQ(step_text(value, 0), "step 0 (synced): rank 0: 2 forwards, backward of p0, p1\n");
  pass.backwards = {{{1}}, {{0}}};
  EXPECT_EQ(step_text(value, 0),
            "step 0 (synced): rank 0: 2 forwards, backward of p1, then of p0\n");
  pass.backwards = {{{1}}};
  EXPECT_EQ(
      step_text(value, 0),
      "step 0 (synced): rank 0: 2 forwards, backward of p1, not of output p0; does not use p0\n");
  pass.backwards.clear();
  pass.forwards[0].discard = true;
  EXPECT_EQ(step_text(value, 0),
            "step 0 (synced): rank 0: drops p0, backward of p1; does not use p0\n");
  pass.forwards[1].discard = true;
  EXPECT_EQ(step_text(value, 0), "step 0 (synced): rank 0: drops p0, drops p1, no backward\n");
}

TEST(Describe, NoGradOnOneRankAlone) {
  Case value = with_steps(2, 1, 1);
  auto& step = value.program.steps[0];
  step.kind = PassKind::kNoGrad;
  step.variants.resize(2, step.variants[0]);
  step.variants[1].skip = true;
  EXPECT_EQ(step_text(value, 0),
            "step 0 (no_grad): rank 0: 1 forward without gradients; rank 1: nothing\n");
}

TEST(Describe, ALongGraphIsNamedByItsParameters) {
  Case value = with_steps(1, 12, 1);
  nodes_of(value, 0).clear();
  for (std::uint32_t i = 0; i < 12; ++i)
    for (int k = 0; k < 3; ++k) nodes_of(value, 0).push_back(use(i, {{0, 0}}));
  EXPECT_EQ(step_text(value, 0),
            "step 0 (synced): rank 0: backward of f(p0, p1, p2, p3, p4, p5, p6, p7, ...)\n");
}

TEST(Describe, ACheckpointAroundTheWholeModelIsNamedWithItsStep) {
  Case value = with_steps(1, 1, 1);
  value.program.steps[0].variants[0].recompute = reference::Recompute::kTwice;
  EXPECT_EQ(step_text(value, 0),
            "step 0 (synced): rank 0: in two checkpoints of the whole model, the second ignores "
            "that it is refused: backward of p0\n");
}

TEST(Describe, Deviations) {
  Case value = with_steps(1, 1, 0);
  value.schedule.deviations = {{3, 1}, {8, 0}};
  const std::string text = describe(value);
  EXPECT_NE(text.find("schedule: default, but fiber 1 at choice 3, fiber 0 at choice 8 (a fiber is "
                      "a thread of a rank); waits never time out\n"),
            std::string::npos)
      << text;
}

TEST(DescribeFault, EveryKindIsASentence) {
  using faults::Kind;
  const auto text = [](Kind kind, std::uint32_t site, std::uint32_t us = 0) {
    return describe(faults::Fault{kind, 1, 2, site, us});
  };
  EXPECT_EQ(text(Kind::kMessageDelay, 0, 5), "rank 1's 1st message of step 2 arrives 5 us late");
  EXPECT_EQ(text(Kind::kMessageStall, 1),
            "rank 1's 2nd message of step 2 and all after it on that link never arrive");
  EXPECT_EQ(text(Kind::kOperationDelay, 2, 2000),
            "rank 1 begins its 3rd collective of step 2 late by 2 ms");
  EXPECT_EQ(text(Kind::kOperationStall, 3), "rank 1 never begins its 4th collective of step 2");
  EXPECT_EQ(text(Kind::kOperationError, 10),
            "rank 1's transport fails at its 11th collective of step 2");
  EXPECT_EQ(text(Kind::kCallError, 4),
            "rank 1's 5th call of NCCL, or for its GPU, in step 2 fails");
  EXPECT_EQ(text(Kind::kLinkReset, 20), "the link under rank 1's 21st message of step 2 is reset");
  EXPECT_EQ(text(Kind::kRankExit, 111), "rank 1's process exits at its 112th collective of step 2");
  EXPECT_EQ(text(Kind::kRankPause, 0, 400'000),
            "rank 1 does nothing for 400 ms from its 1st collective of step 2 on");
  EXPECT_EQ(text(Kind::kNodeThrows, 3), "the 4th node that rank 1 executes in step 2 throws");
  EXPECT_EQ(text(Kind::kSlowThread, 3, 1),
            "rank 1's engine sleeps for 1 us at the 4th node of step 2");
  EXPECT_EQ(text(Kind::kConnectError, 0),
            "rank 1's 1st call of ncclGetUniqueId fails while its group connects, before step 2");
  EXPECT_EQ(text(Kind::kStoreDelay, 0, 5),
            "rank 1's 1st call of the store in step 2 takes 5 us longer");
  EXPECT_EQ(text(Kind::kStoreError, 1), "rank 1's store fails from its 2nd call in step 2 on");
  EXPECT_EQ(describe(faults::Fault{Kind::kUserAbort, 1, 2, 3, 0, 0, 2}),
            "the user of rank 1 aborts its reducers with 'aborted' at the 4th place of step 2");
  EXPECT_EQ(describe(faults::Fault{Kind::kUserAbort, 1, 2, 0, 0, 0, 1 + faults::kAbortCalls}),
            "the user of rank 1 aborts its groups from another thread with 'user failure' at the "
            "1st place of step 2");
  EXPECT_EQ(describe(faults::Fault{Kind::kUserAbort, 1, 2, 0, 0, 0, 3}),
            "the user of rank 1 destroys its reducers and aborts its groups with 'aborted' at the "
            "1st place of step 2");
  EXPECT_EQ(describe(faults::Fault{Kind::kUserAbort, 1, 2, 0, 40, 0, 1}),
            "the user of rank 1 aborts its groups from another thread with 'aborted' at the 1st "
            "place of step 2, one 40 us after the other");
  EXPECT_EQ(describe(faults::Fault{Kind::kStoreTorn, 1, 2, 0, 0, 0, 9}),
            "of the 1st value that rank 1 writes into the store in step 2, only 9 bytes arrive");
  faults::Fault in_reset{Kind::kOperationError, 1, 2, 0};
  in_reset.in_reset = true;
  EXPECT_EQ(describe(in_reset),
            "rank 1's transport fails at its 1st collective of the reset before step 2");
  EXPECT_EQ(describe(faults::Fault{Kind::kHookFails, 1, 2, 3, 0, 0, 1 + 4 * faults::kHookCalls}),
            "rank 1's communication hook fails with its own code 'peer lost' in its 4th future of "
            "step 2");
  EXPECT_EQ(describe(faults::Fault{Kind::kHookFails, 1, 2, 3, 0, 0, 1 + 3 * faults::kHookCalls}),
            "rank 1's communication hook never completes its 4th future of step 2");
}

TEST(Describe, AFaultOfANodeSaysWhatHappensToIt) {
  using faults::Kind;
  const auto text = [](Kind kind, std::uint32_t at, std::uint32_t duration_us = 0,
                       bool in_reset = false, std::uint32_t step = 3) {
    faults::Fault fault{kind, 1, step, 1, duration_us, 0, at};
    fault.in_reset = in_reset;
    return describe(fault);
  };
  const std::string from = ", from rank 1's 2nd collective of step 3 on";
  EXPECT_EQ(text(Kind::kNodeStop, 0, 4'000'000), "rank 1's process is stopped for 4000 ms" + from);
  EXPECT_EQ(text(Kind::kNodeMemory, 1'048'576),
            "rank 1's process gets at most 1 MiB of memory more" + from);
  EXPECT_EQ(text(Kind::kNodeDescriptors, 0), "rank 1's process gets no more descriptors" + from);
  EXPECT_EQ(text(Kind::kNodeClock, 10'000), "the wall clock of rank 1 jumps forward by 5 s" + from);
  EXPECT_EQ(text(Kind::kNodeClock, 10'001), "the wall clock of rank 1 jumps back by 5 s" + from);
  EXPECT_EQ(text(Kind::kStoreDead, 0, 5000, true),
            "the store is dead for 5 ms, from rank 1's connecting in the reset before step 3 on");
  EXPECT_EQ(text(Kind::kStoreFull, 0, 0, true, 0),
            "the store takes no new values, from rank 1's connecting in the construction on");
  EXPECT_EQ(text(Kind::kStoreSlow, 20'000), "each answer of the store is 20 ms late" + from);
  EXPECT_EQ(text(Kind::kRankReplaced, 1),
            "rank 1's process exits, and another one joins at the 2nd recovery" + from);
  EXPECT_EQ(text(Kind::kRankLeftOut, 1),
            "rank 1 is cut off from all others, and the others go on without it" + from);
}

TEST(Describe, AFaultOfTheNetworkSaysWhichPackets) {
  using faults::Kind;
  const auto text = [](Kind kind, std::uint32_t peer, std::uint32_t direction, std::uint32_t amount,
                       std::uint32_t duration_us) {
    return describe(faults::Fault{kind, 1, 2, 0, duration_us, peer,
                                  direction + faults::kLinkDirections * amount});
  };
  const std::string from = ", from rank 1's 1st collective of step 2 on";
  EXPECT_EQ(text(Kind::kNetPartition, 1, 0, 0, 0),
            "all packets of what rank 1 and the others exchange are dropped" + from);
  EXPECT_EQ(text(Kind::kNetLoss, 0, 1, 10, 5000),
            "10 % of the packets of what rank 1 sends rank 0 are dropped for 5 ms" + from);
  EXPECT_EQ(text(Kind::kNetReset, 2, 0, 0, 5000),
            "the connections of what rank 1 and rank 2 exchange are reset for 5 ms" + from);
  EXPECT_EQ(text(Kind::kNetReject, 2, 2, 0, 0),
            "the packets of what rank 1 receives from rank 2 are answered with a reset" + from);
  EXPECT_EQ(text(Kind::kNetBandwidth, 1, 0, 8000, 0), "rank 1 sends at most 8000 kbit/s" + from);
  EXPECT_EQ(text(Kind::kNetDelay, 1, 0, 20'000, 0),
            "what rank 1 and the others exchange arrives 20 ms late" + from);
}

TEST(Describe, TheHeaderSaysWhatAHookOfAUserDoes) {
  Case value = with_steps(1, 1, 0);
  value.program.options.hook = reference::Hook::kElsewhere;
  value.program.options.hook_result = reference::HookResult::kLocal;
  value.program.options.hook_completion = reference::HookCompletion::kReversed;
  value.program.options.hook_backward = reference::HookBackward::kTaken;
  const std::string text = describe(value);
  EXPECT_NE(text.find("; hook elsewhere that returns what the rank has, its futures complete in "
                      "reversed order, it runs a backward to a gradient that the pass has taken"),
            std::string::npos)
      << text;
}

TEST(DescribeFault, WhatIsChangedOnItsWayIsASentence) {
  using faults::Kind;
  const auto text = [](Kind kind, std::uint32_t at) {
    return describe(faults::Fault{kind, 1, 2, 3, 0, 0, at});
  };
  const std::string where = "of what rank 1 sends rank 0 in its 4th exchange of step 2 ";
  EXPECT_EQ(text(Kind::kPayloadFlip, 700), "bit 700 " + where + "is flipped");
  EXPECT_EQ(text(Kind::kPayloadTruncate, 65), "all but 65 bytes " + where + "is lost");
  EXPECT_EQ(text(Kind::kPayloadSwap, 0),
            "the whole " + where + "changes places with what the next rank is to get");
  EXPECT_EQ(text(Kind::kPayloadStale, 0), "the whole " + where + "is what it sent the time before");
  EXPECT_EQ(text(Kind::kPayloadShift, 0), "the whole " + where + "is shifted by 1 byte");
}

TEST(Describe, NeverTakesMoreThanItsLines) {
  GenerateOptions large;
  large.max_parameters = reference::kMaxParameters;
  large.max_steps = reference::kMaxSteps;
  for (std::uint64_t index = 0; index < 3000; ++index) {
    Case value = generate(31, index, large);
    if (index % 3 == 0) value.program.steps.resize(64, value.program.steps[0]);
    if (index % 5 == 0) value.faults.faults.resize(20);
    const std::string text = describe(value);
    const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    ASSERT_LE(lines, kMaxDescriptionLines) << text;
    ASSERT_GE(lines, 4u) << text;
  }
}

TEST(Describe, AllStepsAreCountedWhenThereAreTooMany) {
  const Case value = with_steps(1, 1, 64);
  const std::string text = describe(value);
  EXPECT_NE(text.find("\nand 43 more steps\n"), std::string::npos) << text;
}

TEST(Describe, WhichRankDoesNotFitAtWhichConstruction) {
  Case value = with_steps(2, 2, 1);
  value.program.disagreement = {reference::disagreement_named("dtype"), 1, false, 1};
  EXPECT_NE(describe(value).find(
                "refused first: the construction, where rank 1 has another dtype of parameter p1"),
            std::string::npos)
      << describe(value);
  value.program.disagreement = {reference::disagreement_named("limits"), 0, true, 0};
  EXPECT_NE(describe(value).find(
                "refused first: the first reset, where rank 0 has one bucket limit more"),
            std::string::npos)
      << describe(value);
}

}  // namespace
}  // namespace lockstep::properties
