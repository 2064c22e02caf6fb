// Claim: the reducer keeps the contract also with more ranks than the generator draws, up to the
// most that a case file may have. Method: the test raises the number of ranks of generated cases,
// faults included, runs them in the simulator, and compares them with the model. A failure probably
// means that the reducer, the model or an oracle keeps ranks in a type that is too small. Replay:
// the message shows the case; `lockstep replay` runs it.
#include <gtest/gtest.h>

#include <set>

#include "properties/case/case_json.h"
#include "properties/case/describe.h"
#include "properties/generate/generate.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {
namespace {

using reference::Program;

// The case with `ranks` ranks, and with few steps, because the number of messages of a sum grows
// with the square of the number of ranks.
Case with_ranks(Case c, std::uint32_t ranks) {
  Program& program = c.program;
  program.world = ranks;
  if (program.steps.size() > 3) program.steps.resize(3);
  for (std::uint32_t i = 0;
       !program.steps_per_rank.empty() && program.steps_per_rank.size() < ranks; ++i)
    program.steps_per_rank.push_back(program.steps_per_rank[i]);
  std::uint32_t rank = ranks;
  // Faults act on high ranks, too.
  for (faults::Fault& fault : c.faults.faults) fault.rank = rank -= 5;
  normalize(c);
  return c;
}

void run_cases(std::uint32_t ranks, int count) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  std::set<reference::Mode> modes;
  std::set<reference::Order> orders;
  int joins = 0;
  int fired = 0;
  int large = 0;
  int run = 0;
  for (std::uint64_t i = 0; run < count; ++i) {
    const Case drawn = generate(91, i);
    if (drawn.program.world < 2 || drawn.program.parameters.size() > 6) continue;
    const Case c = with_ranks(drawn, ranks);
    const Verdict verdict = runner.run(c);
    ASSERT_TRUE(verdict.ok()) << describe(c) << verdict.message << to_json(c);
    ASSERT_EQ(runner.observation().ranks.size(), ranks);
    modes.insert(c.program.options.mode);
    orders.insert(c.program.options.order);
    joins += c.program.options.join != reference::Join::kNone ? 1 : 0;
    for (const std::uint64_t times : runner.observation().fired.counts) fired += times > 0 ? 1 : 0;
    for (const auto& parameter : c.program.parameters)
      large += reference::element_count(parameter) > ranks ? 1 : 0;
    ++run;
  }
  EXPECT_EQ(modes.size(), 3U);
  EXPECT_EQ(orders.size(), 3U);
  EXPECT_GT(joins, 1);
  EXPECT_GT(fired, 3);
  EXPECT_GT(large, 1);
}

TEST(ManyRanks, ThirtyThreeRanksAgreeWithTheModel) { run_cases(33, 60); }
TEST(ManyRanks, SixtyFourRanksAgreeWithTheModel) { run_cases(64, 40); }

TEST(ManyRanks, ACaseHasAtMostSixtyFourRanks) {
  Case c;
  c.program.world = reference::kMaxWorld + 1;
  normalize(c);
  EXPECT_EQ(c.program.world, 64U);
}

}  // namespace
}  // namespace lockstep::properties
