// The reducer over an NcclProcessGroup, and the NCCL of the tests: gradients of the host, whose
// buckets go over the GPU. The clauses one by one are in reducer/reducer_*_test.cc.
#include "reducer/comm/nccl/test_nccl_ranks.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class NcclReducer : public NcclRanks {
 protected:
  struct Member {
    TestRank replica;
    Ref<Parameter> p = replica.add("p");
    Ref<Parameter> q = replica.add("q", {.dtype = DType::kBFloat16});
    Status backward(double of_p, double of_q) {
      const std::vector<Edge> outputs = replica.forward_of({p, q});
      const std::vector<Tensor> gradients = {replica.tensor({of_p, of_p}),
                                             replica.tensor({of_q, 2 * of_q}, DType::kBFloat16)};
      return replica.engine.backward(outputs, gradients, false);
    }
    // Only the gradient of q comes; then a node of the user throws.
    Status backward_that_throws() {
      const auto outputs = replica.forward({{replica.thrower({{p, 0}}), 0}, {q, 0}});
      const std::vector<Tensor> gradients = {replica.tensor({1, 1}),
                                             replica.tensor({1, 1}, DType::kBFloat16)};
      return replica.engine.backward(outputs, gradients, false);
    }
  };
  Status create(Member& member, int rank, const ReducerOptions& options) {
    return member.replica.create({shared(rank), store}, options);
  }
  void meet(const std::string& place, int rank, int size) {
    ASSERT_TRUE(store->set(place + std::to_string(rank), "").has_value());
    for (int r = 0; r < size; ++r)
      ASSERT_TRUE(
          store->get(place + std::to_string(r), platform::Deadline::in(kGenerous)).has_value());
  }
  std::shared_ptr<ProcessGroup> shared(int rank) {
    return std::shared_ptr<ProcessGroup>(std::move(groups[static_cast<std::size_t>(rank)]));
  }
};

// (6 + 12 + ...) / ranks and so on: exact.
TEST_F(NcclReducer, G1StepsGiveTheMeanInAllModes) {
  for (const int ranks : {1, 2, 4}) {
    for (const bool dynamic : {false, true}) {
      for (const bool verify : {false, true}) {
        store = std::make_shared<HashStore>();
        connect(ranks, quick());
        on_ranks(ranks, [&](int rank) {
          Member member;
          ReducerOptions options = quick_options(dynamic);
          options.reduction = verify ? Reduction::kRankOrdered : Reduction::kNative;
          options.verify_payload = verify;
          const Status created = create(member, rank, options);
          ASSERT_TRUE(created.ok()) << created.to_string();
          for (int step = 0; step < 5; ++step) {
            member.replica.undefine_grads();
            const Status status = member.backward(6.0 * (rank + 1), 12);
            ASSERT_TRUE(status.ok()) << status.to_string();
            const double mean = 3.0 * (ranks + 1);
            EXPECT_EQ(values_of(member.p->grad())[0], mean);
            EXPECT_EQ(values_of(member.q->grad()), (Values{12, 24}));
          }
        });
        groups.clear();
      }
    }
  }
}

TEST_F(NcclReducer, F2EverySurvivorNamesTheRankThatFailedAndItsCause) {
  connect(3, quick());
  std::vector<Status> statuses(3);
  on_ranks(3, [&](int rank) {
    Member member;
    ReducerOptions options = quick_options(false);
    options.failure_grace = std::chrono::seconds(20);
    ASSERT_TRUE(create(member, rank, options).ok());
    meet("created", rank, 3);  // who fails takes with it what others have not quite finished
    statuses[static_cast<std::size_t>(rank)] =
        rank == 1 ? member.backward_that_throws() : member.backward(1, 1);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    ASSERT_EQ(status.code(), Code::kUserFailure) << status.to_string();
    EXPECT_EQ(status.failure().rank, 1);
    EXPECT_EQ(status.failure().reported_by, rank);
    EXPECT_THAT(status.to_string(), HasSubstr("the user's node threw"));
  }
}

}  // namespace
}  // namespace lockstep::testing
