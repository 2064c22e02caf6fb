// The subject `torch` on the real thing: every policy of its profile shows in a kept case, and
// generated cases agree with the profile bit by bit. Where it is not built the tests say so and
// skip.
//
// A failure means that torch does something else than the profile says. To replay:
// lockstep replay properties/corpus/torch/NAME.json --subject torch
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>

#include "properties/case/case_json.h"
#include "properties/generate/generate.h"
#include "properties/lane/process_ranks.h"
#include "properties/lane/rank_fork_server.h"
#include "properties/lane/torch_lane.h"
#include "properties/oracle/judge.h"
#include "properties/run/case_runner.h"
#include "properties/subject/torch_subject.h"
#include "reference/model.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

class Torch : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Subject> found = torch_subject(LOCKSTEP_PROGRAMS);
    if (!found) GTEST_SKIP() << found.error().failure().detail;
    subject_ = std::move(*found);
  }

  Subject subject_;
};

// Method: the case named after the policy is run once and judged three times over: by the profile,
// by the profile with that policy taken back, by our own contract.
TEST_F(Torch, ShowsEveryPolicyOfItsProfile) {
  const std::unique_ptr<Lane> lane = make_torch_lane(subject_);
  for (const torch_model::Policy& policy : torch_model::kPolicies) {
    const std::string name(policy.name);
    const Result<Case> c = read_case(LOCKSTEP_CORPUS "/torch/" + name + ".json");
    ASSERT_TRUE(c) << c.error().to_string();
    Observation observation;
    lane->run(*c, expectation_of(c->program, Profile::torch()), observation);
    const auto judged_by = [&](const Profile& profile) {
      const reference::Expectation expectation =
          expectation_of(c->program, profile, observation.recoveries);
      return judge(*c, profile, expectation, observation);
    };
    const Verdict verdict = judged_by(Profile::torch());
    EXPECT_TRUE(verdict.ok()) << name << ": " << verdict.message;
    Profile taken_back = Profile::torch();
    taken_back.policies.*policy.member = false;
    EXPECT_FALSE(judged_by(taken_back).ok()) << name;
    EXPECT_FALSE(judged_by(Profile::lockstep()).ok()) << name;
  }
}

TEST_F(Torch, AgreesWithItsProfileOnGeneratedCases) {
  GenerateOptions options;
  options.lane = GenerateOptions::Lane::kGloo;
  options.capabilities = subject_.capabilities;
  options.faults = GenerateOptions::Faults::kNone;
  options.max_world = 4;
  CaseRunner runner(LaneKind::kGloo, subject_);
  for (std::uint64_t index = 0; index < 40; ++index) {
    const Case c = generate(7, index, options);
    const Verdict verdict = runner.run(c);
    ASSERT_TRUE(verdict.ok()) << verdict.message << "\n" << to_json(c);
  }
}

// Faults: ranks that are killed, stopped, slow, or have a node that throws.
class TorchUnderFaults : public Torch {
 protected:
  // The first verdict that is not ok, and which kinds fired.
  Verdict run(FaultKinds kinds, std::uint64_t cases, faults::Fired& fired) {
    GenerateOptions options;
    options.lane = GenerateOptions::Lane::kGloo;
    options.capabilities = subject_.capabilities;
    options.faults = GenerateOptions::Faults::kList;
    options.kinds = kinds;
    options.max_world = 4;
    CaseRunner runner(LaneKind::kGloo, subject_);
    for (std::uint64_t index = 0; index < cases; ++index) {
      const Case c = generate(5, index, options);
      Verdict verdict = runner.run(c);
      if (!verdict.ok()) {
        verdict.message += "\n" + to_json(c);
        return verdict;
      }
      for (std::size_t k = 0; k < faults::kKinds; ++k)
        fired.counts[k] += runner.observation().fired.counts[k];
    }
    return {};
  }
  static void expect_fired(const faults::Fired& fired, std::initializer_list<faults::Kind> kinds) {
    for (const faults::Kind kind : kinds)
      EXPECT_GT(fired.counts[static_cast<std::size_t>(kind)], 0u) << faults::name_of(kind);
  }
};

TEST_F(TorchUnderFaults, ThatAreOverSoonItAgreesWithItsProfile) {
  using enum faults::Kind;
  faults::Fired fired;
  const FaultKinds kinds = FaultKinds().with(kOperationDelay).with(kRankPause).with(kSlowThread);
  const Verdict verdict = run(kinds, 16, fired);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  expect_fired(fired, {kOperationDelay, kRankPause, kSlowThread});
}

TEST_F(TorchUnderFaults, WhoNeedsALostRankRaisesAndNoProcessIsLeft) {
  using enum faults::Kind;
  faults::Fired fired;
  const Verdict verdict = run(FaultKinds().with(kRankExit).with(kNodeThrows), 24, fired);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  expect_fired(fired, {kRankExit, kNodeThrows});
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(TorchUnderFaults, WhoNeedsAStoppedRankRaises) {
  faults::Fired fired;
  const Verdict verdict = run(FaultKinds().with(faults::Kind::kOperationStall), 4, fired);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  expect_fired(fired, {faults::Kind::kOperationStall});
}

TEST_F(TorchUnderFaults, APlantedSwallowedErrorIsFound) {
  const Result<Case> c = read_case(LOCKSTEP_CORPUS "/torch/names_no_lost_rank.json");
  ASSERT_TRUE(c) << c.error().to_string();
  ::setenv("LOCKSTEP_TORCH_PLANTED", "swallowed-errors", 1);
  const Verdict verdict = CaseRunner(LaneKind::kGloo, subject_).run(*c);
  ::unsetenv("LOCKSTEP_TORCH_PLANTED");
  EXPECT_EQ(verdict.failing, Failing::kWrongError);
  EXPECT_NE(verdict.message.find("rank 0, step 0: ended well, although it needs rank 1"),
            std::string::npos)
      << verdict.message;
}

// Our reducer runs every case, too (properties/oracle/agreement.h).
class TorchBeside : public Torch {
 protected:
  // The first verdict that is no agreement, and how many cases were compared.
  Verdict compare(const std::string& name, std::uint64_t cases, std::uint64_t& compared) {
    Result<Subject> subject = parse_subject(name);
    EXPECT_TRUE(subject);
    subject->against = std::make_shared<const Subject>(subject_);
    GenerateOptions options;
    options.lane = GenerateOptions::Lane::kGloo;
    options.capabilities = common_capabilities(*subject);
    options.faults = GenerateOptions::Faults::kNone;
    options.max_world = 4;
    CaseRunner runner(LaneKind::kGloo, *subject);
    for (std::uint64_t index = 0; index < cases; ++index) {
      const Verdict verdict = runner.run(generate(11, index, options));
      if (runner.compared_steps() > 0) ++compared;
      if (!verdict.ok() && verdict.failing != Failing::kInconclusive) return verdict;
    }
    return {};
  }
};

TEST_F(TorchBeside, OurReducerAgreesOnGeneratedCases) {
  std::uint64_t compared = 0;
  const Verdict verdict = compare("reducer", 40, compared);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  EXPECT_GE(compared, 10u);
}

TEST_F(TorchBeside, APlantedBugIsFound) {
  std::uint64_t compared = 0;
  const Verdict verdict = compare("seeded:N08", 40, compared);
  EXPECT_EQ(verdict.failing, Failing::kSubjectsDiffer);
  EXPECT_NE(verdict.message.find("\n  torch       "), std::string::npos) << verdict.message;
}

// Where ranks' processes come from (properties/lane/rank_fork_server.h).
class TorchRankForkServer : public Torch {
 protected:
  // A rank without work; `fd` is the end of its socket that is ours.
  static Result<pid_t> make_rank(RankForkServer& fork_server, int& fd) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    Result<pid_t> made = fork_server.make({fds[1]});
    ::close(fds[1]);
    fd = fds[0];
    return made;
  }
  static int end_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid) << "it is no child of this process";
    return status;
  }
};

TEST_F(TorchRankForkServer, RanksAreOurChildrenAndEndWithTheirSocket) {
  RankForkServer fork_server(subject_.rank_program);
  int fds[2] = {-1, -1};
  const Result<pid_t> first = make_rank(fork_server, fds[0]);
  const Result<pid_t> second = make_rank(fork_server, fds[1]);
  ASSERT_TRUE(first && second);
  ::kill(*first, SIGKILL);
  EXPECT_EQ(WTERMSIG(end_of(*first)), SIGKILL);
  ::close(fds[0]);
  ::close(fds[1]);
  EXPECT_EQ(end_of(*second), 0);
}

TEST_F(TorchRankForkServer, RanksOutliveIt) {
  auto fork_server = std::make_unique<RankForkServer>(subject_.rank_program);
  int fd = -1;
  const Result<pid_t> rank = make_rank(*fork_server, fd);
  ASSERT_TRUE(rank);
  fork_server.reset();
  EXPECT_EQ(::waitpid(*rank, nullptr, WNOHANG), 0);
  ::close(fd);
  EXPECT_EQ(end_of(*rank), 0);
}

TEST(RankForkServer, ThatCannotServeIsAnError) {
  RankForkServer fork_server("/bin/false");
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Result<pid_t> made = fork_server.make({0});
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().failure().detail.find("/bin/false"), std::string::npos);
  }
}

// Processes that are children of this one, as the kernel has them.
std::size_t children() {
  std::size_t count = 0;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (std::string pid; file >> pid;) ++count;
  }
  return count;
}

TEST_F(Torch, RanksAreProcessesOrThreadsOfOne) {
  Case c;
  c.program.world = 3;
  c.program.steps.resize(2);
  normalize(c);
  Observation seen[2];
  {
    ProcessRanks ranks(subject_);
    ranks.run_as_threads(c, seen[0]);
    EXPECT_EQ(children(), 2u);  // the other is the fork server
    ranks.run(c, seen[1]);
    EXPECT_EQ(children(), 2u + 3u);
  }
  EXPECT_EQ(children(), 0u);
  const reference::Expectation expected = expectation_of(c.program, subject_.profile);
  for (const Observation& each : seen) {
    const Verdict verdict = judge(c, subject_.profile, expected, each);
    EXPECT_TRUE(verdict.ok()) << verdict.message;
    ASSERT_EQ(each.ranks.size(), 3u);
    EXPECT_EQ(each.ranks[2].steps.size(), 2u);
  }
}

// Bad input: what a program says that cannot start, as one that its libtorch does not match.
class TorchProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string complaint() const {
    const Result<Subject> found = torch_subject(folder_);
    EXPECT_FALSE(found);
    return found ? "" : found.error().failure().detail;
  }

  fs::path folder_;
};

TEST_F(TorchProgram, ThatIsNotThereIsToldInOneLine) {
  EXPECT_NE(complaint().find("ci/setup --torch"), std::string::npos);
  EXPECT_EQ(complaint().find('\n'), std::string::npos);
}

TEST_F(TorchProgram, ThatCannotStartIsToldInOneLine) {
  const fs::path program = folder_ / "lockstep-torch";
  std::ofstream(program) << "#!/bin/sh\necho 'undefined symbol: _ZN5torch' >&2\necho more >&2\n";
  fs::permissions(program, fs::perms::owner_all);
  EXPECT_NE(complaint().find("undefined symbol: _ZN5torch"), std::string::npos);
  EXPECT_EQ(complaint().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::properties
