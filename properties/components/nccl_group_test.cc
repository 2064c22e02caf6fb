// Claim: the component nccl-group sees where a group over NCCL tells its ranks something wrong.
// That nothing is wrong with the reducer's group is for components_test.cc.
#include "properties/components/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// Asks the ranks of a run; `stores` makes the store of each rank.
using Stores = std::function<std::shared_ptr<Store>(int rank, std::shared_ptr<Store> shared)>;
std::vector<std::string> ask(NcclRun& run, std::uint32_t scenario, const Stores& stores = {}) {
  std::vector<std::string> answers(static_cast<std::size_t>(run.ranks));
  const bool notices = faults::nccl_profile(run.options.version).reports_network_errors;
  const End end = run.run([&](SimRank& on) {
    const auto store = stores ? stores(on.rank(), on.store()) : on.store();
    Choices choices(1, scenario, "a test");
    answers[static_cast<std::size_t>(on.rank())] = check_nccl_group(
        on.api(), on.device(), store, {"check", on.rank(), run.ranks, scenario, notices}, choices);
  });
  EXPECT_EQ(end, End::kFinished) << run.wait_graph;
  return answers;
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
  for (const std::string& answer : ask(run, scenario, [&](int, std::shared_ptr<Store> shared) {
         return std::make_shared<BlindStore>(hidden, std::move(shared));
       }))
    if (!answer.empty()) return answer;
  return "nothing";
}

TEST(NcclGroupComponent, F2ItSeesRanksThatDoNotLearnTheCause) {
  EXPECT_THAT(first_wrong(0, "/failure"), HasSubstr("has no aborted"));
  EXPECT_THAT(first_wrong(1, "/failure"), HasSubstr("does not name rank"));
}

TEST(NcclGroupComponent, F2ItSeesThatNobodyIsSuspected) {
  std::string hidden = "left/";
  for (int rank = 0; rank < 3; ++rank)
    if (first_wrong(3, hidden + std::to_string(rank)) != "nothing") hidden = "found";
  EXPECT_EQ(hidden, "found");
}

TEST(NcclGroupComponent, F5ItSeesACommunicatorThatIsNotFinalized) {
  NcclRun run(2);
  std::string wrong;
  const End end = run.run([&](SimRank& on) {
    NcclApi api = on.api();
    api.comm_finalize = [](NcclComm) { return NcclResult::kInternalError; };
    Choices choices(1, 4, "a test");
    const std::string answer =
        check_nccl_group(api, on.device(), on.store(), {"check", on.rank(), 2, 4, true}, choices);
    if (wrong.empty()) wrong = answer;
  });
  EXPECT_EQ(end, End::kFinished);
  EXPECT_THAT(wrong, HasSubstr("ends an idle communicator with 1 of ncclCommFinalize, 0 of"));
}

TEST(NcclGroupComponent, G1ItSeesAWrongSum) {
  NcclRun run(2);
  run.before = [](NcclApi& api) {
    api.all_reduce = [](const void*, void*, std::size_t, NcclDataType, NcclRedOp, NcclComm,
                        CudaStreamHandle) { return NcclResult::kSuccess; };
  };
  EXPECT_THAT(ask(run, 9)[0], HasSubstr("has the sum 1"));
}

}  // namespace
}  // namespace lockstep::simulated
