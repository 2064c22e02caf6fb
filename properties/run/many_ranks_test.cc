// Claim: the reducer does what the contract says with more ranks than the generator draws, as far
// as case files go. Method: drawn cases, faults included, with the number of ranks raised, in the
// simulator against the model. A failure means that the reducer, the model or an oracle holds ranks
// in something too small; `lockstep replay` runs the case that the message shows.
#include <gtest/gtest.h>

#include <set>

#include "properties/case/case_json.h"
#include "properties/case/describe.h"
#include "properties/generate/generate.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {
namespace {

using reference::Program;

// A case of so many ranks, and of few steps, since the messages of a sum grow with their square.
Case with_ranks(Case c, std::uint32_t ranks) {
  Program& program = c.program;
  program.world = ranks;
  if (program.steps.size() > 3) program.steps.resize(3);
  for (std::uint32_t i = 0; !program.inputs.empty() && program.inputs.size() < ranks; ++i)
    program.inputs.push_back(program.inputs[i]);
  std::uint32_t rank = ranks;
  for (faults::Fault& fault : c.faults.faults) fault.rank = rank -= 5;  // the high ones, too
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

// What a case file may say runs, and one rank more is cut off.
TEST(ManyRanks, SixtyFourIsTheMost) {
  Case c;
  c.program.world = reference::kMaxWorld + 1;
  normalize(c);
  EXPECT_EQ(c.program.world, 64U);
}

}  // namespace
}  // namespace lockstep::properties
