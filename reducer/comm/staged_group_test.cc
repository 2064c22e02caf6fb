// Claim: a group that reaches only host memory works on a device's memory through StagedGroup, with
// the collectives in one order, and says what fails where (F1, F2, F8). Here on real threads;
// faults/sim/staged_group_test.cc has schedules, and the component staged-group draws what goes
// wrong.
#include "reducer/comm/staged_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <span>
#include <vector>

#include "reducer/comm/mirror_peer_group.h"
#include "reducer/device/test_queue_device.h"

namespace lockstep::testing {
namespace {

using platform::Deadline;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Values = std::vector<float>;

// Passes everything on, until it is to fail.
class FailingGroup final : public ProcessGroup {
 public:
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  bool can_reduce(DType dtype) const override { return inner_.can_reduce(dtype); }
  platform::Duration timeout() const override { return inner_.timeout(); }
  void abort(const Status& cause) override {
    if (cause_.ok()) cause_ = cause;
  }
  Status health() const override { return cause_; }
  Status start(const Collective& collective, Work& work) override {
    if (fails) return Status(Code::kPeerLost, "rank 1 is gone");
    return inner_.start(collective, work);
  }

  std::atomic<bool> fails{false};

 private:
  MirrorPeerGroup inner_{2};
  Status cause_;
};

class StagedGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = StagedGroup::create(below_, gpu_);
    ASSERT_TRUE(made.has_value());
    group_ = std::move(*made);
  }

  Ref<Storage> on_gpu(const Values& values) {
    Ref<Storage> made = *gpu_.allocate(values.size() * sizeof(float));
    EXPECT_TRUE(
        write(gpu_, std::as_bytes(std::span(values)), made->data(), Deadline::in(seconds(30)))
            .ok());
    return made;
  }
  Values read_back(const Ref<Storage>& from, std::size_t count) {
    Values values(count);
    EXPECT_TRUE(read(gpu_, from->data(), std::as_writable_bytes(std::span(values)),
                     Deadline::in(seconds(30)))
                    .ok());
    return values;
  }
  Collective sum_of(const Ref<Storage>& data, std::size_t count) {
    Collective sum;
    sum.count = count;
    sum.data = data->data();
    sum.device = &gpu_;
    sum.ready = gpu_.record(gpu_.current_stream());
    return sum;
  }

  QueueDevice gpu_;
  const std::shared_ptr<FailingGroup> below_ = std::make_shared<FailingGroup>();
  std::unique_ptr<StagedGroup> group_;
};

TEST_F(StagedGroupTest, F8ASumOfDeviceMemoryComesBackToIt) {
  Values values(1000);
  std::iota(values.begin(), values.end(), 1.0F);
  const Ref<Storage> data = on_gpu(values);
  Work work;
  ASSERT_TRUE(group_->start(sum_of(data, values.size()), work).ok());
  ASSERT_TRUE(work.wait(Deadline::in(seconds(30))).ok());
  for (float& value : values) value *= 2;
  EXPECT_EQ(read_back(data, values.size()), values);
}

TEST_F(StagedGroupTest, CollectivesOfBothMemoriesAreNumberedInOneOrder) {
  Values on_host{1, 2, 3};
  Collective of_host;
  of_host.count = on_host.size();
  of_host.data = reinterpret_cast<std::byte*>(on_host.data());
  const std::array<Ref<Storage>, 2> data{on_gpu({4, 5}), on_gpu({6, 7})};
  std::array<Work, 3> works;
  ASSERT_TRUE(group_->start(sum_of(data[0], 2), works[0]).ok());
  ASSERT_TRUE(group_->start(of_host, works[1]).ok());
  ASSERT_TRUE(group_->start(sum_of(data[1], 2), works[2]).ok());
  for (std::size_t i = 0; i < works.size(); ++i) {
    ASSERT_TRUE(works[i].wait(Deadline::in(seconds(30))).ok());
    EXPECT_EQ(works[i].sequence(), static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(on_host, (Values{2, 4, 6}));
  EXPECT_EQ(read_back(data[0], 2), (Values{8, 10}));
  EXPECT_EQ(read_back(data[1], 2), (Values{12, 14}));
}

TEST_F(StagedGroupTest, F2AnErrorOfTheGroupBelowIsThatOfTheCollective) {
  const Ref<Storage> data = on_gpu({1});
  below_->fails = true;
  Work work;
  Status status = group_->start(sum_of(data, 1), work);
  if (status.ok()) status = work.wait(Deadline::in(seconds(30)));
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_THAT(status.failure().detail, HasSubstr("rank 1 is gone"));
  EXPECT_EQ(status.failure().collective, "all_reduce");
  Work again;
  EXPECT_FALSE(group_->start(sum_of(data, 1), again).ok()) << "It has failed.";
}

TEST_F(StagedGroupTest, ItRefusesWhatNoGroupCanCarryOut) {
  Collective without_data;
  without_data.count = 4;
  without_data.device = &gpu_;
  Work work;
  EXPECT_EQ(group_->start(without_data, work).code(), Code::kInvalidArgument);
  EXPECT_TRUE(work.done());
}

TEST_F(StagedGroupTest, ItsStreamIsGivenBackWhenItEnds) {
  group_.reset();
  EXPECT_EQ(gpu_.given_back(), 1);
}

}  // namespace
}  // namespace lockstep::testing
