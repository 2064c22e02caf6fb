// Claim: what GroupCheck asks of a group holds for every scenario, number of ranks, release of NCCL
// and schedule, and breaks no rule of NCCL's; and it is seen where it does not hold.
#include "properties/lane/group_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "faults/sim/nccl/test_nccl_run.h"

namespace lockstep {
inline namespace sim {
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NcclConformance);
}
}  // namespace lockstep

namespace lockstep::simulated {
namespace {

using simulation::End;
using ::testing::HasSubstr;

constexpr std::uint32_t kKeys = 1000;  // about 200 for each scenario

std::uint32_t key_of(std::uint32_t scenario) {
  std::uint32_t key = 0;
  while (scenario_of(key) != scenario) ++key;
  return key;
}

// Asks the ranks of a run; `stores` makes the store of each rank.
using Stores = std::function<std::shared_ptr<Store>(int rank, std::shared_ptr<Store> shared)>;
std::vector<std::string> ask(NcclRun& run, std::uint32_t key, const Stores& stores = {}) {
  std::vector<std::string> answers(static_cast<std::size_t>(run.ranks));
  const bool notices = faults::nccl_profile(run.options.version).reports_network_errors;
  const End end = run.run([&](SimRank& on) {
    const auto store = stores ? stores(on.rank(), on.store()) : on.store();
    answers[static_cast<std::size_t>(on.rank())] =
        wrongly_told(on.api(), on.device(), store, {"check", on.rank(), run.ranks, key, notices});
  });
  EXPECT_EQ(end, End::kFinished) << run.wait_graph;
  return answers;
}

TEST(GroupCheck, F2NothingIsWrongWithTheGroup) {
  std::set<std::uint32_t> seen;
  for (std::uint32_t key = 0; key < kKeys; ++key) {
    NcclRun run(2 + static_cast<int>(key % 3));
    constexpr int kVersions[] = {22809, 22707, 23203};
    run.options.version = kVersions[key / 3 % 3];
    run.options.aborts_lose = true;
    run.schedule.seed = key;
    run.schedule.policy = key % 2 == 0 ? simulation::Policy::kRandomWalk : simulation::Policy::kPos;
    if (key % 5 > 1) run.latency = {std::chrono::microseconds(50), std::chrono::microseconds(200)};
    for (const std::string& answer : ask(run, key))
      EXPECT_EQ(answer, "") << "key " << key << ", version " << run.options.version;
    ASSERT_TRUE(run.findings.empty()) << run.findings_text();
    ASSERT_TRUE(run.misuses.empty()) << run.misuses.front() << ", key " << key;
    ASSERT_EQ(run.left_open, 0u) << "key " << key;
    seen.insert(scenario_of(key));
  }
  EXPECT_EQ(seen.size(), kGroupScenarios);
}

// A store in which one key cannot be found.
class BlindStore final : public PrefixStore {
 public:
  BlindStore(std::string end, std::shared_ptr<Store> inner)
      : PrefixStore("", std::move(inner)), end_(std::move(end)) {}
  Result<bool> contains(std::string_view key) override {
    return key.ends_with(end_) ? Result<bool>(false) : PrefixStore::contains(key);
  }
  Result<std::string> get(std::string_view key, platform::Deadline deadline) override {
    if (key.ends_with(end_)) return failed(Status(Code::kTransport, "it cannot be read"));
    return PrefixStore::get(key, deadline);
  }

 private:
  const std::string end_;
};

std::string first_wrong(std::uint32_t scenario, const std::string& hidden, int ranks = 3) {
  NcclRun run(ranks);
  for (const std::string& answer :
       ask(run, key_of(scenario), [&](int, std::shared_ptr<Store> shared) {
         return std::make_shared<BlindStore>(hidden, std::move(shared));
       }))
    if (!answer.empty()) return answer;
  return "nothing";
}

TEST(GroupCheck, F2ItSeesRanksThatDoNotLearnTheCause) {
  EXPECT_THAT(first_wrong(0, "/failure"), HasSubstr("has no aborted"));
  EXPECT_THAT(first_wrong(1, "/failure"), HasSubstr("does not name rank"));
}

TEST(GroupCheck, F2ItSeesThatNobodyIsSuspected) {
  std::string hidden = "left/";
  for (int rank = 0; rank < 3; ++rank)
    if (first_wrong(3, hidden + std::to_string(rank)) != "nothing") hidden = "found";
  EXPECT_EQ(hidden, "found");
}

TEST(GroupCheck, F5ItSeesACommunicatorThatIsNotFinalized) {
  NcclRun run(2);
  std::string wrong;
  const End end = run.run([&](SimRank& on) {
    NcclApi api = on.api();
    api.comm_finalize = [](NcclComm) { return NcclResult::kInternalError; };
    const std::string answer =
        wrongly_told(api, on.device(), on.store(), {"check", on.rank(), 2, key_of(4), true});
    if (wrong.empty()) wrong = answer;
  });
  EXPECT_EQ(end, End::kFinished);
  EXPECT_THAT(wrong, HasSubstr("ends an idle communicator with 1 of ncclCommFinalize, 0 of"));
}

TEST(GroupCheck, G1ItSeesAWrongSum) {
  NcclRun run(2);
  run.before = [](NcclApi& api) {
    api.all_reduce = [](const void*, void*, std::size_t, NcclDataType, NcclRedOp, NcclComm,
                        CudaStreamHandle) { return NcclResult::kSuccess; };
  };
  EXPECT_THAT(ask(run, key_of(9))[0], HasSubstr("has the sum 1"));
}

}  // namespace
}  // namespace lockstep::simulated
