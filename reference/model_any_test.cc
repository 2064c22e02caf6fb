// Claims about the expectation of every program whatever. Method: many programs of random fields,
// made legal by normalize(). A failure names the seed that any_program() takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "reference/arithmetic.h"
#include "reference/model.h"
#include "reference/model/engine.h"
#include "reference/test_any_program.h"

namespace lockstep::reference {
namespace {

// Ends the first forward in a chain of uses of all parameters, so that its pass is complete unless
// something else is wrong with it.
void use_everything(RankPass& pass, std::size_t parameters) {
  pass.backwards.clear();
  pass.forwards.resize(1);
  pass.forwards[0].discard = false;
  std::vector<Node>& nodes = pass.forwards[0].nodes;
  if (nodes.size() > 5) nodes.resize(5);
  for (std::uint32_t p = 0; p < parameters; ++p) {
    Node node;
    node.parameter = p;
    node.inputs = {{}};
    nodes.push_back(node);
  }
  pass.forwards[0].outputs = {{}};
}

// Static mode (P11): a synced pass without the last parameter, a local one with it, then a synced
// one without it again.
void use_the_last_one_late(Program& program) {
  program.options.mode = Mode::kStatic;
  program.steps.resize(3);
  const std::size_t count = program.parameters.size();
  for (std::size_t s = 0; s < 3; ++s) {
    Step& step = program.steps[s];
    step.kind = s == 1 ? PassKind::kNoSync : PassKind::kSynced;
    step.zero_grad = ZeroGrad::kKeep;
    step.variants.assign(1, RankPass{});
    use_everything(step.variants[0], s == 1 ? count : count - 1);
  }
}

// Few ranks, and few and small parameters, so that a run is short.
Program small_program(std::uint64_t seed) {
  Program program = testing::any_program(seed);
  program.world = 1 + program.world % 10;
  program.options.first_bucket_bytes %= 64;
  program.options.bucket_bytes %= 64;
  program.parameters.resize(1 + program.parameters.size() % 4);
  for (Parameter& parameter : program.parameters) {
    for (std::uint32_t& size : parameter.sizes) size %= 4;
  }
  for (Step& step : program.steps) {
    for (RankPass& pass : step.variants) {
      if (seed % 2 == 0) use_everything(pass, program.parameters.size());
    }
  }
  if (seed % 8 == 1) use_the_last_one_late(program);
  normalize(program);
  return program;
}

std::vector<Recovery> recoveries_of(const Program& program, std::uint64_t seed) {
  if (seed % 3 != 0 || program.steps.empty()) return {};
  Recovery recovery;
  recovery.before_step = static_cast<std::uint32_t>(seed / 3 % program.steps.size());
  for (std::uint32_t rank = 0; rank < program.world; ++rank) {
    if ((seed >> (rank % 8) & 3) != 0) recovery.survivors.push_back(rank);
  }
  return {recovery};
}

// Whether sums in the wide types are exact: see Values::kExact. A gradient that is kept is divided
// once more by each reduction.
bool has_integers(const Program& program, const ExpectedStep& step) {
  return program.values == Values::kExact && program.world <= 8 && program.world != 7 &&
         std::all_of(step.ranks.begin(), step.ranks.end(),
                     [](const ExpectedRankStep& rank) { return rank.present; }) &&
         std::none_of(program.steps.begin(), program.steps.end(),
                      [](const Step& each) { return each.zero_grad == ZeroGrad::kKeep; });
}

// One rank's part of a step, and how often each outcome was seen.
void check_rank(const Program& program, const Expectation& expectation, const ExpectedStep& step,
                const ExpectedRankStep& rank) {
  EXPECT_EQ(rank.outcome == Outcome::kOwnError, rank.error != Error::kNone);
  EXPECT_TRUE(step.any_error || rank.outcome == Outcome::kSuccess);
  EXPECT_TRUE(std::is_sorted(rank.parameters.begin(), rank.parameters.end()));
  EXPECT_LE(rank.error_call, kMaxBackwards);
  EXPECT_EQ(rank.gradients.size(), program.parameters.size());
  for (std::size_t p = 0; p < rank.gradients.size(); ++p) {
    const ExpectedGradient& gradient = rank.gradients[p];
    // What cannot be known: a peer's part of a failed pass, or rounded sums whose order time
    // decides; those are defined.
    const bool may_round = size_of(program.parameters[p].dtype) < 4 || !has_integers(program, step);
    EXPECT_TRUE(gradient.known || step.any_error || (gradient.defined && may_round));
    EXPECT_TRUE(gradient.defined || !gradient.untouched);
    EXPECT_FALSE(gradient.defined && program.parameters[p].frozen);
    EXPECT_FALSE(gradient.defined && !rank.present);
    if (!gradient.defined) continue;
    EXPECT_LE(gradient.offset + element_count(program.parameters[p]), expectation.bits.size());
  }
}

// After a synced pass that every rank survived, G1 and G8.
void check_agreement(const Program& program, const Expectation& expectation,
                     const ExpectedStep& step) {
  const ExpectedRankStep* first = nullptr;
  for (const ExpectedRankStep& rank : step.ranks) {
    if (!rank.present) continue;
    if (first == nullptr) first = &rank;
    for (std::size_t p = 0; p < rank.gradients.size(); ++p) {
      if (program.parameters[p].frozen) continue;
      ASSERT_TRUE(rank.gradients[p].defined);
      for (std::uint64_t e = 0; e < element_count(program.parameters[p]); ++e) {
        ASSERT_EQ(expectation.bits[rank.gradients[p].offset + e],
                  expectation.bits[first->gradients[p].offset + e]);
      }
    }
  }
}

// Whether a rank is absent from the step (P8).
bool misses_a_rank(const Step& made, const ExpectedStep& step) {
  for (std::uint32_t rank = 0; rank < step.ranks.size(); ++rank)
    if (step.ranks[rank].present && pass_of(made, rank).absent) return true;
  return false;
}

TEST(ModelOfAnyProgram, IsConsistentAndShowsEveryOutcome) {
  std::array<int, 4> outcomes{};
  // By Error. All errors of profile `lockstep` except kUnevenInputs occur in these programs.
  std::array<int, 8> errors{};
  int agreements = 0;
  int unknown = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Program program = small_program(seed);
    const Expectation expectation =
        run(program, Contract::lockstep(), recoveries_of(program, seed));
    ASSERT_EQ(expectation.steps.size(), program.steps.size());
    for (const ExpectedStep& step : expectation.steps) {
      const auto number = static_cast<std::size_t>(&step - expectation.steps.data());
      bool any_error = misses_a_rank(program.steps[number], step);
      for (const ExpectedRankStep& rank : step.ranks) {
        check_rank(program, expectation, step, rank);
        any_error = any_error || rank.error != Error::kNone;
        ++outcomes.at(static_cast<std::size_t>(rank.outcome));
        ++errors.at(static_cast<std::size_t>(rank.error));
        for (const ExpectedGradient& gradient : rank.gradients) unknown += !gradient.known;
      }
      EXPECT_EQ(step.any_error, any_error);
      const bool agrees = program.options.hook_result != HookResult::kLocal;
      if (program.options.mode != Mode::kPlain || any_error || !step.is_reduced || !agrees)
        continue;
      check_agreement(program, expectation, step);
      ++agreements;
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  for (const int count : outcomes) EXPECT_GT(count, 30);
  for (std::size_t error = 0; error <= static_cast<std::size_t>(Error::kUsageChanged); ++error)
    EXPECT_GT(errors.at(error), 30);
  EXPECT_GT(errors.at(static_cast<std::size_t>(Error::kForwardInBackward)), 0);
  EXPECT_GT(agreements, 30);
  EXPECT_GT(unknown, 30);
}

}  // namespace
}  // namespace lockstep::reference
