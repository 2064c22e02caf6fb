#include "properties/shrink/shrink.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "properties/case/case_json.h"
#include "properties/case/describe.h"
#include "properties/case/expression.h"
#include "properties/shrink/edits.h"
#include "properties/shrink/test_arbitrary.h"
#include "reference/model.h"

namespace lockstep::properties {
namespace {

using reference::Node;
using reference::PassKind;
using reference::RankPass;
using reference::Step;
using Predicate = std::function<bool(const Case&)>;

const RankPass& pass_of(const Step& step, std::uint32_t rank) {
  return step.variants[rank % step.variants.size()];
}

bool uses(const Case& value, const Step& step, std::uint32_t rank, std::size_t parameter) {
  return reached_by(value.program, pass_of(step, rank))[parameter];
}

// Some rank uses a parameter in a no_sync step and not in a later synced one: what R01 of the
// catalogue needs.
bool forgets_no_sync(const Case& value) {
  const auto& steps = value.program.steps;
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (std::size_t k = i + 1; k < steps.size(); ++k)
      for (std::uint32_t rank = 0; rank < value.program.world; ++rank)
        for (std::size_t p = 0; p < value.program.parameters.size(); ++p)
          if (steps[i].kind == PassKind::kNoSync && steps[k].kind == PassKind::kSynced &&
              !value.program.parameters[p].frozen && uses(value, steps[i], rank, p) &&
              !uses(value, steps[k], rank, p))
            return true;
  return false;
}

// Two ranks use two parameters for the first time in opposite orders, in a synced step.
bool opposite_orders(const Case& value) {
  const auto order = [](const RankPass& pass) {
    std::vector<std::uint32_t> seen;
    for (const auto& forward : pass.forwards)
      for (const Node& node : forward.nodes)
        if (node.kind == Node::Kind::kUse && !forward.discard &&
            std::find(seen.begin(), seen.end(), node.parameter) == seen.end())
          seen.push_back(node.parameter);
    std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (std::size_t i = 0; i < seen.size(); ++i)
      for (std::size_t k = i + 1; k < seen.size(); ++k) pairs.insert({seen[i], seen[k]});
    return pairs;
  };
  for (const Step& step : value.program.steps) {
    if (step.kind != PassKind::kSynced) continue;
    for (std::uint32_t a = 0; a < value.program.world; ++a)
      for (const auto& [x, y] : order(pass_of(step, a)))
        for (std::uint32_t b = a + 1; b < value.program.world; ++b)
          if (order(pass_of(step, b)).count({y, x}) > 0) return true;
  }
  return false;
}

// A 16-bit parameter of three elements or more, used by three ranks or more in one synced step.
bool wide_half(const Case& value) {
  for (const Step& step : value.program.steps)
    for (std::size_t p = 0; p < value.program.parameters.size(); ++p) {
      const auto& parameter = value.program.parameters[p];
      if (step.kind != PassKind::kSynced || parameter.dtype != reference::DType::kFloat16) continue;
      std::uint32_t users = 0;
      for (std::uint32_t rank = 0; rank < value.program.world; ++rank)
        users += uses(value, step, rank, p) ? 1 : 0;
      if (users >= 3 && reference::element_count(parameter) >= 3) return true;
    }
  return false;
}

// Rank 1 or later exits in a step after the first, in dynamic mode.
bool late_exit(const Case& value) {
  for (const faults::Fault& fault : value.faults.faults)
    if (fault.kind == faults::Kind::kRankExit && fault.rank > 0 && fault.step > 0 &&
        value.program.options.mode == reference::Mode::kDynamic)
      return true;
  return false;
}

// The model says that a rank ends in a missing parameter while another one does not.
bool incomplete_on_one_rank(const Case& value) {
  const auto expected = reference::run(value.program, reference::Contract::lockstep());
  for (const auto& step : expected.steps) {
    std::size_t incomplete = 0;
    std::size_t fine = 0;
    for (const auto& rank : step.ranks) {
      incomplete += rank.error == reference::Error::kIncomplete ? 1 : 0;
      fine += rank.error == reference::Error::kNone ? 1 : 0;
    }
    if (incomplete > 0 && fine > 0) return true;
  }
  return false;
}

Case with_steps(std::uint32_t world, std::size_t steps) {
  Case value;
  value.program.world = world;
  value.program.steps.resize(steps);
  normalize(value);
  return value;
}

Node& first_node(Case& value, std::size_t step, std::size_t variant = 0) {
  return value.program.steps[step].variants[variant].forwards[0].nodes[0];
}

Case smallest_forgetful() {
  Case value = with_steps(1, 2);
  value.program.steps[0].kind = PassKind::kNoSync;
  first_node(value, 1).kind = Node::Kind::kSum;
  return value;
}

Case smallest_opposite() {
  Case value = with_steps(2, 1);
  value.program.parameters.resize(2);
  auto& variants = value.program.steps[0].variants;
  variants.resize(2, variants[0]);
  for (RankPass& pass : variants) pass.forwards[0].nodes.resize(2);
  variants[0].forwards[0].nodes[0].parameter = 1;
  variants[1].forwards[0].nodes[1].parameter = 1;
  return value;
}

Case smallest_wide_half() {
  Case value = with_steps(3, 1);
  value.program.parameters[0].dtype = reference::DType::kFloat16;
  value.program.parameters[0].sizes = {3};
  return value;
}

Case smallest_late_exit() {
  Case value = with_steps(2, 2);
  value.program.options.mode = reference::Mode::kDynamic;
  value.faults.faults = {{faults::Kind::kRankExit, 1, 1, 0, 0}};
  return value;
}

Case smallest_incomplete() {
  Case value = with_steps(2, 1);
  auto& variants = value.program.steps[0].variants;
  variants.resize(2, variants[0]);
  first_node(value, 0, 1).kind = Node::Kind::kSum;
  return value;
}

// Cases with hundreds of parameters take minutes to become minimal; `lockstep fuzz` ends sooner.
GenerateOptions of_usual_size() {
  GenerateOptions options;
  options.capabilities = options.capabilities.without(Capability::kManyParameters);
  return options;
}

struct Statistics {
  int cases = 0;
  int minimal = 0;
  std::uint64_t executions = 0;
  std::uint64_t worst = 0;
};

// Shrinks the first `count` generated cases for which the predicate holds.
Statistics measure(const char* name, const Predicate& fails, const Case& smallest, int count) {
  EXPECT_TRUE(fails(smallest)) << name;
  const Size least = size_of(smallest);
  Statistics out;
  for (std::uint64_t index = 0; out.cases < count && index < 1'000'000; ++index) {
    const Case value = generate(21, index, of_usual_size());
    if (!fails(value)) continue;
    ++out.cases;
    const ShrinkResult result = shrink(value, fails);
    EXPECT_TRUE(result.finished) << name << " " << index;
    EXPECT_TRUE(fails(result.value)) << name << " " << index;
    out.executions += result.executions;
    out.worst = std::max(out.worst, result.executions);
    const Size size = size_of(result.value);
    EXPECT_FALSE(size < least) << name << ": smaller than thought:\n" << to_json(result.value);
    if (size == least) {
      ++out.minimal;
    } else if (out.cases - out.minimal <= 1) {
      std::printf("%s: not minimal (%s):\n%s", name, to_string(size).c_str(),
                  describe(result.value).c_str());
    }
  }
  std::printf("%s: %d of %d minimal, %.0f executions on average, %llu at most\n", name, out.minimal,
              out.cases, static_cast<double>(out.executions) / out.cases,
              static_cast<unsigned long long>(out.worst));
  return out;
}

TEST(Shrink, ReachesTheMinimumOfAForgottenUse) {
  EXPECT_GE(measure("forgotten use", forgets_no_sync, smallest_forgetful(), 200).minimal, 150);
}

TEST(Shrink, ReachesTheMinimumOfOppositeOrders) {
  EXPECT_GE(measure("opposite orders", opposite_orders, smallest_opposite(), 200).minimal, 150);
}

TEST(Shrink, ReachesTheMinimumOfADtypeAndASize) {
  EXPECT_GE(measure("wide half", wide_half, smallest_wide_half(), 200).minimal, 150);
}

TEST(Shrink, ReachesTheMinimumOfAFault) {
  EXPECT_GE(measure("late exit", late_exit, smallest_late_exit(), 200).minimal, 150);
}

TEST(Shrink, ReachesTheMinimumOfAnErrorOfTheModel) {
  EXPECT_GE(measure("incomplete", incomplete_on_one_rank, smallest_incomplete(), 200).minimal, 150);
}

TEST(Shrink, FindsTheDeviationsThatMatter) {
  Case value = smallest_forgetful();
  for (std::uint32_t i = 0; i < 300; ++i) value.schedule.deviations.push_back({i, i % 7});
  const auto fails = [](const Case& tried) {
    std::size_t found = 0;
    for (const auto& deviation : tried.schedule.deviations)
      found += deviation.choice == 17 || deviation.choice == 120 || deviation.choice == 299 ? 1 : 0;
    return found == 3 && forgets_no_sync(tried);
  };
  const ShrinkResult result = shrink(value, fails);
  EXPECT_TRUE(result.finished);
  ASSERT_EQ(result.value.schedule.deviations.size(), 3u);
  std::printf("300 deviations to 3 in %llu executions\n",
              static_cast<unsigned long long>(result.executions));
  EXPECT_LE(result.executions, 200u);
}

TEST(Shrink, ReplacesARandomScheduleByItsDeviations) {
  Case value = generate(21, 5);
  value.schedule = {Schedule::Policy::kRandomWalk, 77, {}};
  // Fails under the random walk, or under the one deviation of it that matters.
  const auto fails = [](const Case& tried) {
    if (tried.schedule.policy == Schedule::Policy::kRandomWalk) return true;
    for (const auto& deviation : tried.schedule.deviations)
      if (deviation.choice == 8 && deviation.fiber == 2) return true;
    return false;
  };
  ShrinkOptions options;
  options.record = [](const Case&) {
    std::vector<Schedule::Deviation> out;
    for (std::uint32_t i = 0; i < 20; ++i) out.push_back({2 * i, i / 2});
    return out;
  };
  const ShrinkResult result = shrink(value, fails, options);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.value.schedule.policy, Schedule::Policy::kDefault);
  ASSERT_EQ(result.value.schedule.deviations.size(), 1u);
  EXPECT_EQ(result.value.schedule.deviations[0].choice, 8u);
}

// Under a random policy the seed decides. With one try a case stays as large as it is; with more it
// shrinks.
TEST(Shrink, TriesFurtherSeedsOfARandomSchedule) {
  Case value;
  for (std::uint64_t index = 0;; ++index) {
    value = generate(21, index);
    if (value.schedule.policy == Schedule::Policy::kRandomWalk && value.program.steps.size() >= 6)
      break;
  }
  const auto fails = [](const Case& tried) {
    if (tried.schedule.policy != Schedule::Policy::kRandomWalk) return false;
    return hash_of(tried) % 4 == 0;  // one seed in four
  };
  ShrinkOptions options;
  const Size alone = size_of(shrink(value, fails, options).value);
  options.extra_seeds = 12;
  const Size helped = size_of(shrink(value, fails, options).value);
  EXPECT_LE(std::pair(helped.ranks, helped.steps), std::pair(alone.ranks, alone.steps));
  EXPECT_EQ(helped.ranks, 1u);
  EXPECT_EQ(helped.steps, 0u);
}

TEST(Shrink, KeepsToItsBudget) {
  const Case value = generate(21, 7);
  ShrinkOptions options;
  options.max_executions = 10;
  std::uint64_t calls = 0;
  const auto count = [&calls](const Case&) { return ++calls, true; };
  const ShrinkResult result = shrink(value, count, options);
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.executions, 10u);
  EXPECT_EQ(calls, 10u);
  options.max_executions = 1000;
  options.stop = [&calls] { return calls >= 15; };
  EXPECT_EQ(shrink(value, count, options).executions, 5u);
}

TEST(Shrink, ACaseThatNoNeighbourFailsStaysAsItIs) {
  const Case value = generate(21, 8);
  const ShrinkResult result = shrink(value, [](const Case&) { return false; });
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.accepted, 0u);
  EXPECT_TRUE(equal(result.value, value));
}

TEST(Shrink, WhatAlwaysFailsEndsAtTheSmallestCaseOfAll) {
  Case smallest = with_steps(1, 0);
  for (std::uint64_t index = 0; index < 50; ++index) {
    const ShrinkResult result = shrink(generate(22, index), [](const Case&) { return true; });
    ASSERT_TRUE(result.finished);
    ASSERT_TRUE(equal(result.value, smallest)) << describe(result.value);
    ASSERT_LE(result.executions, 60u);
  }
}

// Claim: every candidate is a normal case and strictly smaller. Method: all candidates of any case.
// A failure means that shrinking may go on for ever. Replay: the case is printed.
RC_GTEST_PROP(Candidates, AreNormalAndStrictlySmaller, (const Case& value)) {
  Candidates candidates(value);
  const Size size = size_of(value);
  std::size_t count = 0;
  while (const std::optional<Case> next = candidates.next()) {
    ++count;
    RC_ASSERT(size_of(*next) < size);
    Case normal = *next;
    normalize(normal);
    RC_ASSERT(equal(normal, *next));
  }
  RC_ASSERT(count > 0u);
}

TEST(Candidates, CopiesGoOnByThemselves) {
  Candidates first(generate(23, 1));
  ASSERT_TRUE(first.next().has_value());
  Candidates second = first;
  const std::optional<Case> a = first.next();
  const std::optional<Case> b = second.next();
  ASSERT_TRUE(a.has_value());
  ASSERT_TRUE(b.has_value());
  EXPECT_TRUE(equal(*a, *b));
}

TEST(Candidates, TheSmallestCaseHasNone) {
  EXPECT_FALSE(Candidates(with_steps(1, 0)).next().has_value());
}

TEST(Edits, AreListedInOrderAndDoNotHarmOtherCases) {
  for (std::uint64_t index = 0; index < 30; ++index) {
    const Case value = generate(24, index);
    const Case other = generate(25, index);
    const std::vector<Edit> edits = edits_of(value);
    ASSERT_TRUE(std::is_sorted(edits.begin(), edits.end()));
    for (const Edit& edit : edits) {
      Case changed = other;  // an edit of another case may do anything but break it
      apply(edit, changed);
      Case normal = changed;
      normalize(normal);
      ASSERT_TRUE(equal(changed, normal));
    }
  }
}

// Deleting a node must not cut off what stands behind it.
TEST(Edits, ADroppedNodeLeavesItsInputsReachable) {
  Case value = with_steps(1, 1);
  value.program.parameters.resize(3);
  auto& forward = value.program.steps[0].variants[0].forwards[0];
  forward.nodes.resize(3);
  for (std::uint32_t i = 0; i < 3; ++i) forward.nodes[i].parameter = i;
  forward.nodes[1].inputs = {{0, 0}};
  forward.nodes[2].inputs = {{0, 0}};
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) {
    Case changed = value;
    apply({Move::kDropNodes, 0, 2, chunk}, changed);  // level 2: single nodes, the last one first
    const auto reached = reached_by(changed.program, changed.program.steps[0].variants[0]);
    for (std::uint32_t p = 0; p < 3; ++p) EXPECT_EQ(reached[p], p != 2 - chunk) << chunk;
  }
}

TEST(Edits, ADroppedRankLeavesTheOthersTheirPasses) {
  Case value = with_steps(3, 1);
  auto& variants = value.program.steps[0].variants;
  value.program.parameters.resize(3);
  variants.resize(3, variants[0]);
  for (std::uint32_t rank = 0; rank < 3; ++rank) first_node(value, 0, rank).parameter = rank;
  value.faults.faults = {{faults::Kind::kSlowThread, 2, 0, 0, 5},
                         {faults::Kind::kPayloadFlip, 0, 0, 0, 0, 2, 9}};
  apply({Move::kDropRank, 1, 0, 0}, value);  // rank 1, as positions count from the end
  ASSERT_EQ(value.program.world, 2u);
  EXPECT_EQ(first_node(value, 0, 0).parameter, 0u);
  EXPECT_EQ(first_node(value, 0, 1).parameter, 2u);
  EXPECT_EQ(value.faults.faults[0].rank, 1u);
  EXPECT_EQ(value.faults.faults[1].rank, 0u);
  EXPECT_EQ(value.faults.faults[1].peer, 1u);
}

TEST(Edits, ADroppedParameterLeavesTheOthersTheirUsesAndTensors) {
  Case value = with_steps(1, 1);
  value.program.parameters.resize(4);
  value.program.parameters[0].sizes = {5};
  value.program.parameters[2].shared_with = 2;  // p2 is p0
  value.program.parameters[3].shared_with = 1;  // p3 is p2, and so p0
  auto& nodes = value.program.steps[0].variants[0].forwards[0].nodes;
  nodes.resize(4);
  for (std::uint32_t i = 0; i < 4; ++i) nodes[i].parameter = i;
  normalize(value);
  apply({Move::kDropParameters, 2, 3, 0}, value);  // level 2: single ones; the first one is last
  const auto& program = value.program;
  ASSERT_EQ(program.parameters.size(), 3u);
  EXPECT_EQ(program.parameters[1].shared_with, 0u);
  EXPECT_EQ(program.parameters[1].sizes, std::vector<std::uint32_t>{5});
  EXPECT_EQ(program.parameters[2].shared_with, 1u);
  const auto& left = program.steps[0].variants[0].forwards[0].nodes;
  EXPECT_EQ(left[0].kind, Node::Kind::kSum);
  EXPECT_EQ(left[1].parameter, 0u);
  EXPECT_EQ(left[2].parameter, 1u);
  EXPECT_EQ(left[3].parameter, 2u);
}

TEST(Edits, AnInlinedBodyReachesTheSameParameters) {
  Case value = with_steps(1, 1);
  value.program.parameters.resize(3);
  auto& forward = value.program.steps[0].variants[0].forwards[0];
  forward.nodes.resize(3);
  forward.nodes[0].parameter = 2;
  Node& checkpoint = forward.nodes[1];
  checkpoint.kind = Node::Kind::kCheckpoint;
  checkpoint.inputs = {{0, 0}};
  checkpoint.body.resize(2);
  checkpoint.body[1].parameter = 1;
  checkpoint.body[1].inputs = {{0, 0}};
  forward.nodes[2].kind = Node::Kind::kSum;
  forward.nodes[2].inputs = {{0, 0}};
  const auto before = reached_by(value.program, value.program.steps[0].variants[0]);
  const Size size = size_of(value);
  apply({Move::kInlineBody, 0, 1, 0}, value);
  EXPECT_EQ(value.program.steps[0].variants[0].forwards[0].nodes.size(), 5u);
  EXPECT_EQ(reached_by(value.program, value.program.steps[0].variants[0]), before);
  EXPECT_LT(size_of(value), size);
}

TEST(Edits, MergedForwardsKeepTheirGraphsAndOutputs) {
  Case value = with_steps(1, 1);
  value.program.parameters.resize(4);
  auto& pass = value.program.steps[0].variants[0];
  pass.forwards.resize(2, pass.forwards[0]);
  for (std::uint32_t f = 0; f < 2; ++f) {
    auto& nodes = pass.forwards[f].nodes;
    nodes.resize(2);
    for (std::uint32_t i = 0; i < 2; ++i) nodes[i].parameter = 2 * f + i;
    nodes[1].inputs = {{0, 0}};
  }
  pass.backwards.resize(2);
  pass.backwards[0].roots = {1};
  pass.backwards[1].roots = {0};
  for (std::uint32_t root = 0; root < 2; ++root) {
    Case changed = value;
    changed.program.steps[0].variants[0].backwards = {{{root}}};
    const auto before = reached_by(changed.program, changed.program.steps[0].variants[0]);
    apply({Move::kMergeForward, 0, 0, 1}, changed);
    ASSERT_EQ(changed.program.steps[0].variants[0].forwards.size(), 1u);
    EXPECT_EQ(reached_by(changed.program, changed.program.steps[0].variants[0]), before);
  }
}

// Claim: what the small case needs is within what the found one needs. Without that limit some
// small cases must end in an error of their own, or have three ranks, which the subject of the
// found one may not be given.
TEST(Shrink, TheSmallCaseNeedsNoMoreThanTheFoundOne) {
  GenerateOptions of_template;  // what the template for subjects declares
  of_template.capabilities = Capabilities().with(Capability::kNoSync).with(Capability::kDynamic);
  of_template.faults = GenerateOptions::Faults::kNone;
  const Predicate two_ranks = [](const Case& value) { return value.program.world >= 2; };
  const Predicate unlike_hooks = [](const Case& value) {
    return opposite_orders(value) || value.program.steps.size() >= 3;
  };
  int checked = 0;
  int beyond = 0;
  for (std::uint64_t index = 0; index < 200; ++index) {
    const bool is_restricted = index % 2 == 0;
    const Case found =
        is_restricted ? generate(31, index, of_template) : generate(31, index, of_usual_size());
    const Capabilities needs = needed(found);
    for (const Predicate& fails : {two_ranks, unlike_hooks, Predicate(incomplete_on_one_rank)}) {
      if (!fails(found)) continue;
      ShrinkOptions options;
      options.max_executions = 300;
      if (!missing(shrink(found, fails, options).value, needs).empty()) ++beyond;
      options.within = needs;
      const ShrinkResult small = shrink(found, fails, options);
      EXPECT_TRUE(fails(small.value)) << index;
      EXPECT_EQ(missing_message(small.value, needs, "of the found case"), "") << index;
      ++checked;
    }
  }
  EXPECT_GE(checked, 100);
  EXPECT_GE(beyond, 5) << "nothing shows that the limit limits";
}

// RapidCheck shrinks cases through the same candidates: a property that fails for two steps and a
// frozen parameter ends at two steps and two parameters.
TEST(Arbitrary, RapidCheckShrinksThroughTheShrinker) {
  const auto fails = [](const Case& value) {
    const auto& parameters = value.program.parameters;
    return value.program.steps.size() >= 2 && parameters.size() >= 2 &&
           std::any_of(parameters.begin(), parameters.end(),
                       [](const auto& parameter) { return parameter.frozen; });
  };
  rc::Random random(99);
  rc::Shrinkable<Case> current = cases()(random, 0);
  while (!fails(current.value())) {
    random.next();
    current = cases()(random, 0);
  }
  int executions = 0;
  for (bool progress = true; progress;) {
    progress = false;
    rc::Seq<rc::Shrinkable<Case>> shrinks = current.shrinks();
    while (auto next = shrinks.next()) {
      ++executions;
      if (!fails(next->value())) continue;
      current = *next;
      progress = true;
      break;
    }
  }
  Case smallest = with_steps(1, 2);
  smallest.program.parameters.resize(2);
  smallest.program.parameters[0].frozen = true;
  EXPECT_EQ(size_of(current.value()), size_of(smallest)) << describe(current.value());
  EXPECT_LT(executions, 2000);
}

}  // namespace
}  // namespace lockstep::properties
