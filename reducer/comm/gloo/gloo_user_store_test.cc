// A store that its user wrote may throw, at any of its calls, which the library makes on the thread
// that trains and on threads of its own. Every call of the library still returns a Status (F1).
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using platform::Deadline;
using std::chrono::milliseconds;

constexpr milliseconds kConnectTime{500};
constexpr std::chrono::seconds kLongest{20};

// Throws from its call number `first` on, in turn a std::exception and something else.
class ThrowingStore final : public Store {
 public:
  ThrowingStore(std::shared_ptr<Store> inner, int first)
      : inner_(std::move(inner)), first_(first) {}
  Result<bool> set(std::string_view key, std::string_view value) override {
    count();
    return inner_->set(key, value);
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    count();
    return inner_->get(key, deadline);
  }
  Result<bool> contains(std::string_view key) override {
    count();
    return inner_->contains(key);
  }
  bool has_thrown() const { return calls_ > first_; }

 private:
  void count() {
    const int call = calls_++;
    if (call < first_) return;
    if (call % 2 == 0) throw std::runtime_error("the shelf fell");
    throw call;
  }

  const std::shared_ptr<Store> inner_;
  const int first_;
  std::atomic<int> calls_{0};
};

struct Outcome {
  Status joined;
  Status created;
  Status trained;
};

// Two ranks meet and train; a node of rank 1 throws behind a collective, so that both ranks report
// and rank 0's group ends on a thread of its own. Then both diagnose. `between` is a store that
// does not throw: a rank that fails at once could end the construction of the other one.
void train_and_fail(int rank, const std::shared_ptr<Store>& store, Store& between,
                    Outcome& outcome) {
  GlooOptions options;
  GlooContextOptions connection = tested_connection();
  connection.timeout = kConnectTime;
  auto group = GlooProcessGroup::connect(store, rank, 2, options, connection);
  if (!group) {
    outcome.joined = group.error();
    return;
  }
  TestRank replica;
  const auto p = replica.add("p");
  const auto q = replica.add("q");
  outcome.created = replica.create({std::shared_ptr<ProcessGroup>(std::move(*group)), store},
                                   quick_options(false));
  if (!outcome.created.ok()) return;
  EXPECT_TRUE(between.set("created/" + std::to_string(rank), "").value());
  EXPECT_TRUE(
      between.get("created/" + std::to_string(1 - rank), Deadline::in(kLongest)).has_value());
  const auto fails = rank == 1 ? replica.thrower({{p, 0}}) : replica.fan({{p, 0}});
  const auto outputs = replica.forward({{replica.fan({{q, 0}, {fails, 0}}), 0}});
  outcome.trained =
      replica.forward_status.ok() ? replica.backward(outputs, 1) : replica.forward_status;
  replica.parallel->diagnose(milliseconds(10)).value();
}

TEST(GlooUserStore, F1AStoreThatThrowsAtAnyOfItsCallsGivesAStatus) {
  for (const int thrower : {0, 1}) {
    bool has_thrown = true;
    for (int first = 0; has_thrown; ++first) {
      SCOPED_TRACE("rank " + std::to_string(thrower) + "'s store throws from call " +
                   std::to_string(first) + " on");
      const auto shared = std::make_shared<HashStore>();
      const auto throwing = std::make_shared<ThrowingStore>(shared, first);
      Outcome outcomes[2];
      on_ranks(2, [&](int rank) {
        train_and_fail(rank, rank == thrower ? std::shared_ptr<Store>(throwing) : shared, *shared,
                       outcomes[rank]);
      });
      has_thrown = throwing->has_thrown();
      const Outcome& own = outcomes[thrower];
      if (first == 0) {
        ASSERT_EQ(own.joined.code(), Code::kTransport) << own.joined.to_string();
        EXPECT_NE(own.joined.to_string().find("the store threw an exception: the shelf fell"),
                  std::string::npos)
            << own.joined.to_string();
      }
      if (!outcomes[0].joined.ok() || !outcomes[1].joined.ok()) continue;
      // Whatever the store does, it hides no failure of the training.
      EXPECT_EQ(outcomes[1].trained.code(), Code::kUserFailure) << outcomes[1].trained.to_string();
      EXPECT_FALSE(outcomes[0].trained.ok()) << outcomes[0].created.to_string();
      ASSERT_LT(first, 100);
    }
  }
}

TEST(GlooUserStore, ANullStoreContextOrAlgorithmIsRefused) {
  const auto no_store = connect_rank(nullptr, 0, 2, {});
  ASSERT_FALSE(no_store.has_value());
  EXPECT_EQ(no_store.error().code(), Code::kInvalidArgument);
  const auto no_context = GlooProcessGroup::create(nullptr, {});
  ASSERT_FALSE(no_context.has_value());
  EXPECT_EQ(no_context.error().code(), Code::kInvalidArgument);
  GlooOptions options;
  options.algorithm = static_cast<GlooOptions::Algorithm>(7);
  const auto strange = connect_rank(std::make_shared<HashStore>(), 0, 1, options);
  ASSERT_FALSE(strange.has_value());
  EXPECT_EQ(strange.error().code(), Code::kInvalidArgument);
}

TEST(GlooUserStore, ACollectiveWithAnUnknownEnumeratorIsRefusedAndTheGroupGoesOn) {
  const auto group = connect_rank(std::make_shared<HashStore>(), 0, 1, {});
  ASSERT_TRUE(group.has_value()) << group.error().to_string();
  float value = 1;
  Collective good;
  good.count = 1;
  good.data = reinterpret_cast<std::byte*>(&value);
  std::vector<Collective> strange(3, good);
  strange[0].op = static_cast<Op>(3);
  strange[1].dtype = static_cast<DType>(200);
  strange[2].reduction = static_cast<Reduction>(2);
  for (const Collective& each : strange) {
    const Status status = run(**group, each);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  }
  EXPECT_TRUE(run(**group, good).ok());
}

}  // namespace
}  // namespace lockstep::testing
