// Properties of whole runs. A failure means that the reducer, the model, the simulator or an oracle
// is wrong: RapidCheck prints the smallest case; `lockstep fuzz` finds it again and saves it as a
// file that replays.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sstream>

#include "faults/seeded/seeded.h"
#include "properties/case/case_json.h"
#include "properties/generate/arbitrary.h"
#include "properties/generate/generate.h"
#include "properties/lane/case_runner.h"
#include "properties/report/describe.h"

namespace lockstep::properties {
namespace {

// Claim: whatever the program, the schedule and the faults, the reducer does what the contract
// says. Method: simulation against the model.
RC_GTEST_PROP(SimLane, EveryCaseAgreesWithTheModel, (const Case& c)) {
  static CaseRunner runner(LaneKind::kSim, Subject{});
  const Verdict verdict = runner.run(c);
  if (!verdict.ok()) RC_FAIL(describe(c) + verdict.message);
}

TEST(SimLane, ThousandSeedsRunTwiceTakeTheSameWay) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Verdict verdict = runner.run_twice(generate(11, i));
    ASSERT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.message;
  }
}

TEST(SimLane, RecordedDeviationsReplayARandomSchedule) {
  CaseRunner runner(LaneKind::kSim, Subject{});
  int replayed = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    Case c = generate(12, i);
    if (c.schedule.policy == Schedule::Policy::kDefault) continue;
    ASSERT_TRUE(runner.run(c).ok());
    const std::uint64_t hash = runner.observation().trace_hash;
    c.schedule = Schedule();
    for (const auto& [choice, fiber] : runner.observation().deviations)
      c.schedule.deviations.push_back({choice, fiber});
    ASSERT_TRUE(runner.run(c).ok());
    EXPECT_EQ(runner.observation().trace_hash, hash) << "case " << i;
    ++replayed;
  }
  EXPECT_GT(replayed, 50);
}

// Every planted bug must be found: the pipeline as a whole can still fail.
TEST(SimLane, EveryPlantedBugIsFound) {
  ASSERT_GE(seeded::bugs().size(), 16u);
  for (const seeded::Bug& bug : seeded::bugs()) {
    const Result<Subject> subject = parse_subject("seeded:" + std::string(bug.id));
    ASSERT_TRUE(subject.has_value());
    CaseRunner runner(LaneKind::kSim, *subject);
    bool found = false;
    for (std::uint64_t i = 0; i < 20'000 && !found; ++i) found = !runner.run(generate(1, i)).ok();
    EXPECT_TRUE(found) << bug.id << ": " << bug.what;
    EXPECT_GT(seeded::triggered(), 0u) << bug.id;
  }
  ASSERT_TRUE(seeded::select(""));
}

TEST(Lanes, TheSameCaseHasTheSameBitsInSimulationAndOnGloo) {
  CaseRunner sim(LaneKind::kSim, Subject{});
  CaseRunner gloo(LaneKind::kGloo, Subject{});
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  options.faults = GenerateOptions::Faults::kNone;
  int compared = 0;
  for (std::uint64_t i = 0; compared < 40 && i < 400; ++i) {
    Case c = generate(13, i, options);
    c.program.key |=
        1;  // ranks as threads: this is not the program that ranks as processes are made of
    if (needed(c).has(Capability::kErrors)) continue;
    const Verdict in_sim = sim.run(c);
    const Verdict on_gloo = gloo.run(c);
    ASSERT_TRUE(in_sim.ok()) << in_sim.message;
    ASSERT_TRUE(on_gloo.ok()) << on_gloo.message;
    if (c.program.values != reference::Values::kSpecial) {  // the bits of a NaN are not told
      for (std::size_t r = 0; r < c.program.world; ++r) {
        EXPECT_EQ(sim.observation().ranks[r].bits, gloo.observation().ranks[r].bits)
            << "case " << i;
      }
    }
    ++compared;
  }
  EXPECT_EQ(compared, 40);
}

}  // namespace
}  // namespace lockstep::properties
