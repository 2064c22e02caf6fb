// Claims: generated cases run clean with the example reducers, in the simulator and on real Gloo;
// each of the faulty ones is found, with the right verdict; and one that ends or hangs its process
// leaves the next case unharmed. Replay of a case: its index with seed kSeed, and the capabilities
// of the subject.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "faults/sim/scheduler/test_leaks.h"
#include "properties/cli/server.h"
#include "properties/generate/generate.h"
#include "properties/run/case_runner.h"
#include "properties/subject/probe_library.h"

namespace lockstep::properties {
namespace {

constexpr std::uint64_t kSeed = 20;

Subject subject(const std::string& name) {
  Result<Subject> parsed =
      parse_subject(std::string(LOCKSTEP_SUBJECT_DIR) + "/liblockstep_" + name + "_subject.so");
  EXPECT_TRUE(parsed.has_value());
  return *parsed;
}

Case generated(const Subject& subject, LaneKind lane, std::uint64_t index) {
  GenerateOptions options;
  options.lane =
      lane == LaneKind::kSim ? GenerateOptions::Lane::kSim : GenerateOptions::Lane::kGloo;
  options.capabilities = subject.capabilities;
  return generate(kSeed, index, options);
}

// The first failure among so many cases.
Verdict first_failure(const Subject& subject, LaneKind lane, std::uint64_t cases) {
  CaseRunner runner(lane, subject);
  for (std::uint64_t i = 0; i < cases; ++i) {
    const Case c = generated(subject, lane, i);
    Verdict verdict = i % 20 == 0 ? runner.run_twice(c) : runner.run(c);
    if (verdict.ok()) continue;
    verdict.message = "case " + std::to_string(i) + ": " + verdict.message;
    return verdict;
  }
  return {};
}

TEST(ExampleSubject, IsCleanInTheSimulator) {
  const Verdict verdict = first_failure(subject("example"), LaneKind::kSim, 1500);
  EXPECT_TRUE(verdict.ok()) << verdict.oracle << ": " << verdict.message;
}

TEST(ExampleSubject, IsCleanOnGloo) {
  const Verdict verdict = first_failure(subject("example"), LaneKind::kGloo, 60);
  EXPECT_TRUE(verdict.ok()) << verdict.oracle << ": " << verdict.message;
}

// All of the interface: unused detection, errors, recovery, fatal faults.
TEST(FullSubject, IsCleanInTheSimulator) {
  const Verdict verdict = first_failure(subject("full"), LaneKind::kSim, 3000);
  EXPECT_TRUE(verdict.ok()) << verdict.oracle << ": " << verdict.message;
}

TEST(FullSubject, IsCleanOnGloo) {
  const Verdict verdict = first_failure(subject("full"), LaneKind::kGloo, 60);
  EXPECT_TRUE(verdict.ok()) << verdict.oracle << ": " << verdict.message;
}

// Errors without recovery: after one, the host makes a new reducer in a new group.
TEST(SubjectWithoutRecovery, IsCleanInTheSimulatorWithProgramsThatEndInAnError) {
  const Subject without = subject("without_recovery");
  CaseRunner runner(LaneKind::kSim, without);
  int errors = 0;
  for (std::uint64_t i = 0; i < 1500; ++i) {
    const Case c = generated(without, LaneKind::kSim, i);
    errors += needed(c).has(Capability::kErrors) ? 1 : 0;
    EXPECT_FALSE(needed(c).has(Capability::kRecovery)) << i;
    const Verdict verdict = i % 20 == 0 ? runner.run_twice(c) : runner.run(c);
    ASSERT_TRUE(verdict.ok()) << "case " << i << ": " << verdict.oracle << ": " << verdict.message;
  }
  EXPECT_GT(errors, 50);
}

TEST(SubjectWithoutRecovery, IsCleanOnGloo) {
  const Verdict verdict = first_failure(subject("without_recovery"), LaneKind::kGloo, 60);
  EXPECT_TRUE(verdict.ok()) << verdict.oracle << ": " << verdict.message;
}

TEST(NamelessSubject, IsFoundByTheParametersThatItsErrorDoesNotName) {
  const Verdict verdict = first_failure(subject("nameless"), LaneKind::kSim, 1500);
  EXPECT_EQ(verdict.failing, Failing::kWrongError) << verdict.message;
}

TEST(StaleSubject, IsFoundInTheSimulatorByItsBits) {
  const Verdict verdict = first_failure(subject("stale"), LaneKind::kSim, 100);
  EXPECT_EQ(verdict.failing, Failing::kWrongBits);
  EXPECT_EQ(verdict.oracle, "bits");
}

TEST(StaleSubject, IsFoundOnGlooByItsBits) {
  const Verdict verdict = first_failure(subject("stale"), LaneKind::kGloo, 60);
  EXPECT_EQ(verdict.failing, Failing::kWrongBits);
  EXPECT_EQ(verdict.oracle, "bits");
}

TEST(SkippingSubject, IsFoundInTheSimulatorAsADeadlock) {
  const simulation::MayLeak deadlocks;
  const Subject skipping = subject("skipping");
  CaseRunner runner(LaneKind::kSim, skipping);
  bool is_found = false;
  for (std::uint64_t i = 0; i < 100 && !is_found; ++i)
    is_found = runner.run(generated(skipping, LaneKind::kSim, i)).failing == Failing::kDeadlock;
  EXPECT_TRUE(is_found);
}

// The host keeps the flight records of a subject that knows none. Of two ranks none is in the
// majority, so that the number of the pass decides.
TEST(SkippingSubject, IsTheSuspectOfTheFlightRecordsOnGloo) {
  const Subject skipping = subject("skipping");
  CaseServer server(LaneKind::kGloo, skipping);
  const char* const kSuspect = "suspect: rank 0 (went on to pass";
  Outcome found;
  for (std::uint64_t i = 0; i < 100 && found.diagnosis.find(kSuspect) == std::string::npos; ++i) {
    Case c = generated(skipping, LaneKind::kGloo, i);
    if (c.program.world != 2) continue;
    c.environment.records = Environment::Records::kOfFailures;
    c.timeout_ms = 1000;
    found = server.run(c);
  }
  EXPECT_NE(found.diagnosis.find(kSuspect), std::string::npos) << found.verdict.message << "\n"
                                                               << found.diagnosis;
}

// Runs cases until one has this verdict, then 20 more, which must have one of their own.
Verdict find_in_a_child(const std::string& name, Failing wanted, std::chrono::milliseconds limit) {
  const Subject faulty = subject(name);
  CaseServer server(LaneKind::kSim, faulty);
  Verdict found;
  std::uint64_t index = 0;
  for (; index < 100 && found.ok(); ++index)
    found = server.run(generated(faulty, LaneKind::kSim, index), {}, limit).verdict;
  EXPECT_EQ(found.failing, wanted) << found.message;
  bool goes_on = false;
  for (const std::uint64_t end = index + 20; index < end && !goes_on; ++index)
    goes_on = server.run(generated(faulty, LaneKind::kSim, index), {}, limit).verdict.ok();
  EXPECT_TRUE(goes_on);
  return found;
}

TEST(CrashingSubject, IsReportedAndLeavesTheNextCaseUnharmed) {
  const Verdict found =
      find_in_a_child("crashing", Failing::kCrash, std::chrono::milliseconds(20'000));
  EXPECT_NE(found.message.find("signal 6"), std::string::npos) << found.message;
}

TEST(ExitingSubject, IsACrashThoughItsStatusIsZero) {
  const Verdict found =
      find_in_a_child("exiting", Failing::kCrash, std::chrono::milliseconds(20'000));
  EXPECT_NE(found.message.find("exited with status 0, without having said that it was done"),
            std::string::npos)
      << found.message;
}

TEST(ClosingSubject, IsACrashAndLeavesTheNextCaseUnharmed) {
  const Verdict found =
      find_in_a_child("closing", Failing::kCrash, std::chrono::milliseconds(20'000));
  EXPECT_NE(found.message.find("closed its connection"), std::string::npos) << found.message;
}

TEST(ScribblingSubject, IsACrashAndLeavesTheNextCaseUnharmed) {
  const Verdict found =
      find_in_a_child("scribbling", Failing::kCrash, std::chrono::milliseconds(20'000));
  EXPECT_NE(found.message.find("wrote to a descriptor"), std::string::npos) << found.message;
}

TEST(StoppingSubject, IsReportedAndLeavesTheNextCaseUnharmed) {
  find_in_a_child("stopping", Failing::kDeadlock, std::chrono::milliseconds(1'500));
}

// On the gloo lane ranks are processes of their own in a share of the cases.
TEST(ExitingSubject, IsACrashOnGlooToo) {
  const Subject exiting = subject("exiting");
  CaseServer server(LaneKind::kGloo, exiting);
  Verdict found;
  for (std::uint64_t i = 0; i < 100 && found.ok(); ++i)
    found = server.run(generated(exiting, LaneKind::kGloo, i)).verdict;
  EXPECT_EQ(found.failing, Failing::kCrash) << found.message;
}

std::string told_of(const std::string& name, std::chrono::milliseconds limit = kProbeLimit) {
  const Result<LoadedSubject> found = probe_library(
      std::string(LOCKSTEP_SUBJECT_DIR) + "/liblockstep_" + name + "_subject.so", limit);
  return found ? "taken" : found.error().failure().detail;
}

TEST(ProbeLibrary, TellsHowTheSubjectScales) {
  const Result<LoadedSubject> found =
      probe_library(LOCKSTEP_SUBJECT_DIR "/liblockstep_sums_subject.so");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->scale, "sum");
}

TEST(ProbeLibrary, SaysWhatAConstructorDid) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  EXPECT_THAT(told_of("crashing_library"),
              AllOf(HasSubstr("constructors"), HasSubstr("signal 11")));
  EXPECT_THAT(told_of("aborting_library"), AllOf(HasSubstr("constructors"), HasSubstr("signal 6")));
  EXPECT_THAT(told_of("exiting_library"),
              AllOf(HasSubstr("constructors"), HasSubstr("exited with status 0")));
  EXPECT_THAT(told_of("looping_library", std::chrono::milliseconds(500)),
              AllOf(HasSubstr("constructors"), HasSubstr("did not return within 0.5 s")));
  EXPECT_THAT(told_of("crashing_entry"),
              AllOf(HasSubstr("lockstep_subject_entry"), HasSubstr("signal 11")));
}

TEST(ProbeLibrary, TakesTheExamplesAndSaysWhatTheLoaderSays) {
  EXPECT_EQ(told_of("example"), "taken");
  EXPECT_EQ(told_of("full"), "taken");
  EXPECT_THAT(told_of("no_such"), ::testing::HasSubstr("there is no file"));
}

TEST(HangingSubject, IsReportedAndLeavesTheNextCaseUnharmed) {
  find_in_a_child("hanging", Failing::kDeadlock, std::chrono::milliseconds(1'500));
}

}  // namespace
}  // namespace lockstep::properties
