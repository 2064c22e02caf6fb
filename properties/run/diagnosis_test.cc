// What the ranks of a failing case tell (T1, F6): planted bugs whose report is known, and cases
// without one.
#include <gtest/gtest.h>

#include "faults/sim/scheduler/test_leaks.h"
#include "properties/case/case_json.h"
#include "properties/generate/generate.h"
#include "properties/report/join_flight_records.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {
namespace {

// The report of a case of the corpus with its planted bug, on so many ranks.
std::string report_of(const std::string& bug, const std::string& file, std::uint32_t world,
                      LaneKind lane = LaneKind::kSim) {
  Result<Case> c = read_case(std::string(LOCKSTEP_CORPUS) + "/seeded/" + file + ".json");
  EXPECT_TRUE(c.has_value());
  c->program.world = world;
  normalize(*c);
  const Result<Subject> subject = parse_subject(bug);
  EXPECT_TRUE(subject.has_value());
  CaseRunner runner(lane, *subject);
  runner.set_detailed(true);
  (void)runner.run(*c);
  return join_flight_records(runner.observation());
}

bool says(const std::string& report, const std::string& text) {
  return report.find(text) != std::string::npos;
}

TEST(RankReport, T1WithoutThePlantedBugTheSameCasesGiveNone) {
  for (const char* file : {"r12", "r07", "c01", "r15"})
    for (const std::uint32_t world : {1u, 2u, 3u})
      EXPECT_EQ(report_of("reducer", file, world), "") << file << " on " << world;
}

// Rank 1 uses all parameters, and leaves out the usage map of the first pass.
TEST(RankReport, F6R12NamesTheRankThatLeftOutTheUsageMap) {
  for (const LaneKind lane : {LaneKind::kSim, LaneKind::kGloo}) {
    const std::string report = report_of("seeded:R12", "r12", 3, lane);
    EXPECT_TRUE(says(report, "suspect: rank 1 (")) << report;
    EXPECT_TRUE(says(report,
                     "the first difference that the records show is in collective #2:\n"
                     "  ranks 0 2: pass 0, all_reduce of the usage map, 1 int32\n"
                     "  rank 1: pass 1, all_reduce of bucket 0 (p0), 1 float32\n"))
        << report;
    EXPECT_TRUE(says(report, "rank 0: waits in #2 for rank 1\n")) << report;
  }
  const std::string two = report_of("seeded:R12", "r12", 2);
  EXPECT_TRUE(says(two, "suspect: rank 1 (went on to pass 1 without")) << two;
}

// Buckets in another order on each rank: with two ranks nobody can tell who is wrong.
TEST(RankReport, F6C01ShowsBothOrdersOfBuckets) {
  const std::string report = report_of("seeded:C01", "c01", 2);
  EXPECT_TRUE(says(report, "2 ranks, no suspect")) << report;
  EXPECT_TRUE(says(report,
                   "collective #1:\n"
                   "  rank 0: pass 0, all_reduce of bucket 0 (p1), 2 float32\n"
                   "  rank 1: pass 0, all_reduce of bucket 0 (p0), 1 float32\n"))
      << report;
}

// Ranks of even and of odd numbers train apart: what they tell is joined for each group.
TEST(RankReport, F6OfTwoGroupsTheOneThatFailedIsTold) {
  Result<Case> c = read_case(std::string(LOCKSTEP_CORPUS) + "/seeded/r12.json");
  ASSERT_TRUE(c.has_value());
  c->program.world = 4;
  c->program.options.two_groups = true;
  c->faults.faults = {{faults::Kind::kOperationError, 3, 0, 0, 0}};
  normalize(*c);
  CaseRunner runner(LaneKind::kSim, Subject{});
  runner.set_detailed(true);
  EXPECT_TRUE(runner.run(*c).ok());
  const std::string report = join_flight_records(runner.observation());
  EXPECT_TRUE(says(report, "in the group of ranks 1 3, numbered anew:\n2 ranks, suspect: rank 1 ("))
      << report;
  EXPECT_FALSE(says(report, "ranks 0 2")) << report;
}

// Ranks that use no parameter join no collective, and say so in their next forward.
TEST(RankReport, F6R07NamesTheRankThatJoinsNoCollective) {
  Result<Case> c = read_case(std::string(LOCKSTEP_CORPUS) + "/seeded/r07.json");
  ASSERT_TRUE(c.has_value());
  c->program.world = 3;
  reference::Step& first = c->program.steps[0];
  // The last rank alone uses none.
  first.variants.assign(3, c->program.steps[1].variants[0]);
  const Result<Case> original = read_case(std::string(LOCKSTEP_CORPUS) + "/seeded/r07.json");
  first.variants[2] = original->program.steps[0].variants[0];
  normalize(*c);
  const Result<Subject> subject = parse_subject("seeded:R07");
  CaseRunner runner(LaneKind::kSim, *subject);
  runner.set_detailed(true);
  EXPECT_FALSE(runner.run(*c).ok());
  const std::string report = join_flight_records(runner.observation());
  EXPECT_TRUE(says(report, "suspect: rank 2 (")) << report;
  EXPECT_TRUE(says(report, "  rank 2: not started\n")) << report;
  EXPECT_TRUE(says(report, "its next bucket, 0, lacks p0")) << report;
  EXPECT_TRUE(says(report, "rank 0: waits in #1 for rank 2")) << report;
}

// Nothing runs any more: what ranks know is taken from outside.
TEST(RankReport, T1OfADeadlockAllRanksTell) {
  const simulation::MayLeak deadlocks;
  const Result<Subject> subject = parse_subject("seeded:C10");
  ASSERT_TRUE(subject.has_value());
  CaseRunner runner(LaneKind::kSim, *subject);
  runner.set_detailed(true);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const Case c = generate(1, i);
    if (runner.run(c).failing != Failing::kDeadlock || c.program.world < 2) continue;
    const std::string report = join_flight_records(runner.observation());
    EXPECT_FALSE(says(report, "no flight record")) << report;
    EXPECT_TRUE(says(report, "in its backward")) << report;
    EXPECT_TRUE(says(report, "its next bucket")) << report;
    return;
  }
  FAIL() << "no deadlock was found";
}

TEST(RankReport, T1GeneratedCasesWithoutFaultsAndErrorsGiveNone) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  runner.set_detailed(true);
  GenerateOptions options;
  options.faults = GenerateOptions::Faults::kNone;
  int clean = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Case c = generate(3, i, options);
    ASSERT_TRUE(runner.run(c).ok());
    const Observation& seen = runner.observation();
    if (!seen.recoveries.empty()) continue;  // an error of the program itself
    ++clean;
    EXPECT_EQ(join_flight_records(seen), "") << "case " << i;
  }
  EXPECT_GT(clean, 200);
}

}  // namespace
}  // namespace lockstep::properties
