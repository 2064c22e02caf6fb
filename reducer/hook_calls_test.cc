// What communication hooks of users do besides summing (S4): futures that complete late and in any
// order, local backwards on any thread of the engine, and errors with codes of their own.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "reducer/hooks/communication_hook.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

using Names = std::vector<std::string>;

// Sums a bucket in place and returns it, or does what a test says.
class FreeHook final : public CommunicationHook {
 public:
  std::string name() const override { return "free"; }
  Status start(HookBucket& bucket) override {
    if (on_start) LOCKSTEP_RETURN_IF_ERROR(on_start(bucket));
    return bucket.all_reduce(bucket.flat());
  }
  Result<Tensor> finish(HookBucket& bucket) override {
    return on_finish ? on_finish(bucket) : bucket.flat();
  }
  std::function<Status(HookBucket&)> on_start;
  std::function<Result<Tensor>(HookBucket&)> on_finish;
};

class HookCalls : public ReducerTest {
 protected:
  void create() {
    ReducerOptions options = quick_options(false, {1});
    options.hook = hook_;
    const Status status = rank_.create(membership(), options);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Status train() {
    rank_.undefine_grads();
    return rank_.backward(rank_.forward_of({p_, q_}), 6);
  }
  std::shared_ptr<FreeHook> hook_ = std::make_shared<FreeHook>();
};

TEST_F(HookCalls, S4FuturesMayCompleteInReversedOrder) {
  std::vector<std::shared_ptr<Work>> futures;
  std::thread other;
  hook_->on_start = [&](HookBucket& bucket) {
    futures.push_back(bucket.future());
    if (!bucket.is_last()) return Status();
    other = std::thread([&futures] {
      for (std::size_t i = futures.size(); i-- > 0;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        futures[i]->complete(Status());
      }
    });
    return Status();
  };
  std::vector<int> finished;
  hook_->on_finish = [&](HookBucket& bucket) -> Result<Tensor> {
    EXPECT_TRUE(futures[static_cast<std::size_t>(bucket.index())]->done());
    finished.push_back(bucket.index());
    return bucket.flat();
  };
  create();
  EXPECT_TRUE(train().ok());
  other.join();
  EXPECT_EQ(finished, (std::vector<int>{0, 1}));
}

// A hook may use any code, also one that groups fail with. Only if a collective of the hook failed
// is the error one of the group.
TEST_F(HookCalls, S4AnErrorOfAHookIsAFailureOfTheUserWhateverItsCode) {
  for (const Code code : {Code::kInvalidArgument, Code::kTimeout, Code::kPeerLost, Code::kAborted,
                          Code::kCorrupted, Code::kInternal}) {
    const Status own(code, "the disk is full");
    const auto in_start = [&] { hook_->on_start = [&](HookBucket&) { return own; }; };
    const auto in_finish = [&] {
      hook_->on_finish = [&](HookBucket&) -> Result<Tensor> { return failed(own); };
    };
    const auto in_future = [&] {
      hook_->on_start = [&](HookBucket& bucket) {
        bucket.future()->complete(own);
        return Status();
      };
    };
    for (const std::function<void()>& breaks :
         std::vector<std::function<void()>>{in_start, in_finish, in_future}) {
      hook_->on_start = {};
      hook_->on_finish = {};
      breaks();
      create();
      const Status status = train();
      ASSERT_EQ(status.code(), Code::kUserFailure) << status.to_string();
      EXPECT_EQ(status.failure().rank, 0);
      EXPECT_EQ(status.failure().suspect, kNone);
      EXPECT_EQ(status.failure().bucket, 0);
      EXPECT_EQ(status.failure().parameters, Names{"q"});
      EXPECT_TRUE(status.failure().definite);
      EXPECT_NE(status.to_string().find("the disk is full"), std::string::npos);
    }
  }
}

TEST_F(HookCalls, F1RefusedMemoryStaysWhatItIs) {
  hook_->on_start = [&](HookBucket&) { return out_of_memory(); };
  create();
  EXPECT_EQ(train().code(), Code::kOutOfMemory);
}

// The group of a hook may be told that a peer was refused memory.
TEST_F(HookCalls, F2MemoryThatAPeerWasRefusedIsNotThisRanks) {
  create();
  group_->failure = Status(Code::kOutOfMemory, "the GPU of rank 1 has no memory left");
  group_->failure.failure().rank = 1;
  group_->failure.failure().collective = name_of(Op::kAllReduceSum);
  const Status status = train();
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_EQ(status.failure().rank, 1);
  EXPECT_FALSE(status.failure().collective.empty());
}

// P1: the average would take the place of what such a backward adds. The pass goes on.
TEST_F(HookCalls, P1ABackwardToAGradientThatThePassHasTakenIsRefused) {
  Status inside;
  hook_->on_start = [&](HookBucket& bucket) {
    if (bucket.index() == 0) inside = rank_.backward({{q_, 0}}, 100);
    return Status();
  };
  create();
  EXPECT_TRUE(train().ok());
  EXPECT_EQ(inside.code(), Code::kReadyTwice) << inside.to_string();
  EXPECT_EQ(inside.failure().parameters, Names{"q"});
}

// The parameter and its bucket are on device 1, so that the hook is called on a thread of the
// engine, which alone runs the nodes of device 1.
TEST(HookCallsOnWorkers, S4AHookMayRunABackwardOnAThreadOfTheEngine) {
  TestRank rank(1);
  rank.add("p", {DType::kFloat32, Shape::row_major({2}), true, 1});
  rank.add("q", {DType::kFloat32, Shape::row_major({2}), true, 1});
  const Ref<Parameter> own =
      make_ref<Parameter>("own", rank.devices[1], DType::kFloat32, Shape::row_major({2}), true,
                          rank.engine.next_sequence());
  const auto hook = std::make_shared<FreeHook>();
  Status inside(Code::kInternal, "the hook was not started");
  hook->on_start = [&](HookBucket&) {
    const std::vector<Edge> roots = {{rank.fan({{own, 0}}), 0}};
    const std::vector<Tensor> gradients = {rank.tensor({3, 4}, DType::kFloat32, 1)};
    inside = rank.engine.backward(roots, gradients, false);
    return inside;
  };
  ReducerOptions options = quick_options(false);
  options.hook = hook;
  const auto group = std::make_shared<ScriptedGroup>(1);
  ASSERT_TRUE(rank.create({group, std::make_shared<HashStore>()}, options).ok());
  std::vector<Tensor> gradients;
  for (int i = 0; i < 2; ++i) gradients.push_back(rank.tensor({1, 2}, DType::kFloat32, 1));
  const Status status = rank.engine.backward(rank.forward_of(rank.parameters), gradients, false);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(inside.ok()) << inside.to_string();
  EXPECT_EQ(values_of(own->grad()), (Values{6, 8}));  // once for each bucket
}

}  // namespace
}  // namespace lockstep::testing
