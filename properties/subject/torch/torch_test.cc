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
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>

#include "properties/case/case_json.h"
#include "properties/case/switched.h"
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
    Result<Subject> found = torch_subject("", LOCKSTEP_PROGRAMS);
    if (!found) GTEST_SKIP() << found.error().failure().detail;
    subject_ = std::move(*found);
  }

  Subject subject_;
};

// Method: the case named after the policy is run once and judged three times over: by the profile,
// by the profile with that policy taken back, by our own contract. Where a version forgets no local
// use, some policies show in a second case alone.
TEST_F(Torch, ShowsEveryPolicyOfItsProfile) {
  const std::unique_ptr<Lane> lane = make_torch_lane(subject_);
  const auto shows = [&](const torch_model::Policy& policy, const std::string& file) {
    const Result<Case> c = read_case(LOCKSTEP_CORPUS "/torch/" + file + ".json");
    if (!c) return false;
    Observation observation;
    lane->run(*c, expectation_of(*c, subject_.profile), observation);
    const auto judged_by = [&](const Profile& profile) {
      const Expected expectation = expectation_of(*c, profile, observation.recoveries);
      return judge(*c, profile, expectation, observation);
    };
    const Verdict verdict = judged_by(subject_.profile);
    EXPECT_TRUE(verdict.ok()) << file << ": " << verdict.message;
    EXPECT_FALSE(judged_by(Profile::lockstep()).ok()) << file;
    Profile taken_back = subject_.profile;
    taken_back.policies.*policy.member = false;
    return !judged_by(taken_back).ok();
  };
  for (const torch_model::Policy& policy : torch_model::kPolicies) {
    if (!policy.holds_in(torch_model::kOldestVersion)) continue;  // later ones: TorchVersions
    if (!(subject_.profile.policies.*policy.member)) continue;    // gone before the version at hand
    const std::string name(policy.name);
    EXPECT_TRUE(shows(policy, name) || shows(policy, name + "-3-ranks")) << name;
  }
}

// The table policy x version, of the versions that are built (ci/torch --version). Method: the case
// named after the policy is run once, and judged by the version's profile with the policy and
// without it. Exactly one of the two has to accept what the version does, and it has to be the one
// that policies.h names for it. Where both accept it, a second case may tell, which needs no local
// use: newer versions do not forget that.
// "holds", "gone", or "cannot tell".
std::string look_at_policy(const Subject& subject, Lane& lane, const torch_model::Policy& policy,
                           const std::string& file) {
  const Result<Case> c = read_case(LOCKSTEP_CORPUS "/torch/" + file + ".json");
  if (!c) return c.error().to_string();
  // A policy about an option that the version does not have.
  if (!missing(*c, subject.capabilities).empty()) return "gone";
  using torch_model::Policies;
  Profile with = subject.profile;
  // A policy about the same passes would hide these.
  if (policy.member == &Policies::repeats_first_static_pass ||
      policy.member == &Policies::counts_one_static_forward)
    with.policies.first_static_pass_is_any = false;
  if (policy.member == &Policies::use_outlives_zero_grad) with.policies.forgets_local_use = false;
  with.policies.*policy.member = true;
  Profile without = with;
  without.policies.*policy.member = false;
  Observation observation;
  lane.run(*c, expectation_of(*c, subject.profile), observation);
  const auto accepts = [&](const Profile& profile) {
    return judge(*c, profile, expectation_of(*c, profile, observation.recoveries), observation)
        .ok();
  };
  const bool holds = accepts(with);
  if (holds == accepts(without)) return "cannot tell";
  return holds ? "holds" : "gone";
}

TEST(TorchVersions, DoWhatPoliciesSayOfThem) {
  std::uint32_t versions = 0;
  for (const torch_model::Version& version : torch_model::kTestedVersions) {
    const std::string name = torch_model::to_string(version);
    const Result<Subject> subject = torch_subject(name, LOCKSTEP_PROGRAMS);
    if (!subject) continue;
    ++versions;
    const std::unique_ptr<Lane> lane = make_torch_lane(*subject);
    for (const torch_model::Policy& policy : torch_model::kPolicies) {
      const std::string file(policy.name);
      std::string found = look_at_policy(*subject, *lane, policy, file);
      if (found == "cannot tell" && fs::exists(LOCKSTEP_CORPUS "/torch/" + file + "-3-ranks.json"))
        found = look_at_policy(*subject, *lane, policy, file + "-3-ranks");
      std::printf("%-8s %-28s %s\n", name.c_str(), file.c_str(), found.c_str());
      EXPECT_EQ(found, policy.holds_in(version) ? "holds" : "gone") << name << ": " << file;
    }
  }
  if (versions == 0) GTEST_SKIP() << "no version is built: ci/torch --version 2.15.0 builds one";
}

// Method: each kept case is run and judged by the profile; and once more by what the profile
// expects of the same program whose passes end by themselves, which must not accept what nobody or
// a hook has ended wrongly.
TEST(TorchVersions, EndPassesWhenTheUserDoes) {
  const Result<Subject> subject =
      torch_subject(torch_model::to_string(torch_model::kTestedVersions.back()), LOCKSTEP_PROGRAMS);
  if (!subject) GTEST_SKIP() << subject.error().failure().detail;
  const std::unique_ptr<Lane> lane = make_torch_lane(*subject);
  for (const auto& [name, is_right] :
       {std::pair("ended-after-backward", true), std::pair("ended-in-hook", false),
        std::pair("never-ended", false), std::pair("static-backward-before-the-end", false)}) {
    const Result<Case> c = read_case(LOCKSTEP_CORPUS "/torch/" + std::string(name) + ".json");
    ASSERT_TRUE(c) << c.error().to_string();
    Observation observation;
    lane->run(*c, expectation_of(*c, subject->profile), observation);
    const auto judged_as = [&](const Case& expected) {
      return judge(*c, subject->profile,
                   expectation_of(expected, subject->profile, observation.recoveries), observation);
    };
    const Verdict verdict = judged_as(*c);
    EXPECT_TRUE(verdict.ok()) << name << ": " << verdict.message;
    Case automatic = *c;
    automatic.torch.finalization = TorchOptions::Finalization::kAutomatic;
    EXPECT_EQ(judged_as(automatic).ok(), is_right) << name;
  }
}

// Method: a kept case runs twice, with passes that end by themselves and with passes that the user
// ends after the backward; the model compares nothing. The planted control leaves the endings out.
TEST(TorchVersions, GiveTheSameBitsWhoeverEndsThePasses) {
  const Result<Subject> subject =
      torch_subject(torch_model::to_string(torch_model::kTestedVersions.back()), LOCKSTEP_PROGRAMS);
  if (!subject) GTEST_SKIP() << subject.error().failure().detail;
  Result<Case> c = read_case(LOCKSTEP_CORPUS "/torch/ended-after-backward.json");
  ASSERT_TRUE(c) << c.error().to_string();
  c->torch.finalization = TorchOptions::Finalization::kAutomatic;
  c->program.options.views = false;  // an all-reduce that nobody ends may write to a view
  c->switched.option = *switchable_option("finalization");
  ASSERT_EQ(describe_switch(*c), "finalization = after");
  CaseRunner runner(LaneKind::kGloo, *subject);
  const Verdict verdict = runner.run(*c);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  EXPECT_EQ(runner.compared_steps(), c->program.steps.size());
  ::setenv("LOCKSTEP_TORCH_PLANTED", "skipped-endings", 1);
  const Verdict planted = CaseRunner(LaneKind::kGloo, *subject).run(*c);
  ::unsetenv("LOCKSTEP_TORCH_PLANTED");
  EXPECT_EQ(planted.failing, Failing::kWrongBits) << planted.message;
  EXPECT_EQ(planted.oracle, "same with finalization");
}

// Method: each kept case is run, and judged by what the profile expects of it, and of the same
// program without another group: in the first one only the second rebuild tells them apart, and in
// the other one a forward after an incomplete pass, which raises without another group.
TEST(TorchVersions, GoOnWithAnotherGroup) {
  const Result<Subject> subject =
      torch_subject(torch_model::to_string(torch_model::kTestedVersions.back()), LOCKSTEP_PROGRAMS);
  if (!subject) GTEST_SKIP() << subject.error().failure().detail;
  const std::unique_ptr<Lane> lane = make_torch_lane(*subject);
  for (const char* name : {"updated-group", "updated-in-a-pass"}) {
    const Result<Case> c = read_case(LOCKSTEP_CORPUS "/torch/" + std::string(name) + ".json");
    ASSERT_TRUE(c) << c.error().to_string();
    EXPECT_EQ(modelled_steps(*c, subject->profile), c->program.steps.size()) << name;
    Observation observation;
    lane->run(*c, expectation_of(*c, subject->profile), observation);
    const auto judged_as = [&](const Case& expected) {
      return judge(*c, subject->profile, expectation_of(expected, subject->profile), observation);
    };
    const Verdict verdict = judged_as(*c);
    EXPECT_TRUE(verdict.ok()) << name << ": " << verdict.message;
    Case without = *c;
    without.torch.update_process_group = 0;
    EXPECT_FALSE(judged_as(without).ok()) << name;
  }
}

// Method: the kept case is run once, and judged by the profile for it, and for the same program
// without the hook, whose gradient is scaled although its bucket is left out.
TEST(TorchVersions, LeaveASparseGradientAloneBehindAHook) {
  const Result<Subject> subject =
      torch_subject(torch_model::to_string(torch_model::kTestedVersions.back()), LOCKSTEP_PROGRAMS);
  if (!subject) GTEST_SKIP() << subject.error().failure().detail;
  const Result<Case> c = read_case(LOCKSTEP_CORPUS "/torch/skipped-sparse-behind-a-hook.json");
  ASSERT_TRUE(c) << c.error().to_string();
  Observation observation;
  make_torch_lane(*subject)->run(*c, expectation_of(*c, subject->profile), observation);
  const auto judged_as = [&](const Case& expected) {
    return judge(*c, subject->profile, expectation_of(expected, subject->profile), observation);
  };
  const Verdict verdict = judged_as(*c);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  Case without = *c;
  without.program.options.hook = reference::Hook::kNone;
  EXPECT_FALSE(judged_as(without).ok());
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
  const Expected expected = expectation_of(c, subject_.profile);
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
    const Result<Subject> found = torch_subject("", folder_);
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

TEST_F(TorchProgram, ThatCrashesWhileItLoadsIsToldInOneLine) {
  const fs::path program = folder_ / "lockstep-torch";
  std::ofstream(program) << "#!/bin/sh\nkill -SEGV $$\n";
  fs::permissions(program, fs::perms::owner_all);
  EXPECT_NE(complaint().find("it was killed by signal 11"), std::string::npos) << complaint();
}

TEST_F(TorchProgram, WarningsBeforeItsAnswerAreSkipped) {
  const fs::path program = folder_ / "lockstep-torch.d" / "2.9.1" / "lockstep-torch";
  fs::create_directories(program.parent_path());
  std::ofstream(program) << "#!/bin/sh\necho '[W interface.cpp:47] Warning'\n"
                            "echo 'lockstep-torch 2, libtorch 2.9.1+cpu'\n";
  fs::permissions(program, fs::perms::owner_all);
  const Result<Subject> found = torch_subject("2.9.1", folder_);
  ASSERT_TRUE(found) << found.error().failure().detail;
  EXPECT_EQ(found->name(), "torch:2.9.1");
  EXPECT_FALSE(found->profile.policies.forgets_local_use);
  EXPECT_TRUE(Profile::torch().policies.forgets_local_use);
}

TEST_F(TorchProgram, OfAVersionThatIsNotBuiltNamesTheCommand) {
  const Result<Subject> found = torch_subject("2.9.1", folder_);
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().failure().detail.find("ci/torch --version 2.9.1"), std::string::npos);
}

// A folder is any of the three that a user may mean; the program is found by the one with lib/.
TEST_F(TorchProgram, OfAFolderIsFoundByItsRoot) {
  const fs::path root = fs::canonical(folder_) / "site-packages" / "torch";
  fs::create_directories(root / "share" / "cmake");
  EXPECT_TRUE(torch_root(root).empty());
  EXPECT_NE(torch_subject(root, folder_).error().failure().detail.find("no folder with a PyTorch"),
            std::string::npos);
  fs::create_directories(root / "lib");
  std::ofstream(root / "lib" / "libtorch_cpu.so") << "x";
  for (const fs::path& given : {root, root.parent_path(), root / "share" / "cmake"})
    EXPECT_EQ(torch_root(given), root) << given;
  EXPECT_NE(torch_subject(root, folder_)
                .error()
                .failure()
                .detail.find("ci/torch --with " + root.string()),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::properties
