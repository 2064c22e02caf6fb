// UserAbort: what a user who destroys reducers says of reducers that do not end as they must (F5).
#include "properties/observe/user_abort.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// A group that starts nothing, and keeps why it ended.
class EmptyGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool can_reduce(DType) const override { return true; }
  Status start(const Collective&, Work&) override {
    return Status(Code::kInternal, "nothing is started here");
  }
  void abort(const Status& cause) override {
    if (cause_.ok()) cause_ = cause_of_abort(cause, 0);
  }
  Status health() const override { return cause_; }
  platform::Duration timeout() const override { return std::chrono::seconds(1); }

 private:
  Status cause_;
};

// The user gives up at the first place that is visited.
class Environment final : public RankEnvironment {
 public:
  explicit Environment(faults::Fault fault) : fault_(fault) {}
  std::uint32_t rank() const override { return 0; }
  Result<Memberships> connect(const Roster&) override { return Memberships(); }
  platform::Duration failure_grace() const override { return {}; }
  void begin_step(std::uint32_t) override {}
  void visit_node() override {}
  std::optional<faults::Fault> visit_user_place() override {
    return std::exchange(fault_, std::nullopt);
  }
  bool exited() const override { return false; }
  Resume meet(bool, std::uint32_t) override { return {}; }

 private:
  std::optional<faults::Fault> fault_;
};

// Its reducer may be in the middle of a pass, and may end its group when it is destroyed.
class Subject final : public TrainingSubject {
 public:
  Subject(std::shared_ptr<ProcessGroup> group, bool is_amid, bool ends_group)
      : group_(std::move(group)), is_amid_(is_amid), ends_group_(ends_group) {}
  Status construct(const std::vector<Ref<Parameter>>&, const std::vector<Ref<Buffer>>&, Engine&,
                   const reference::Program&, RankEnvironment&, Memberships) override {
    return {};
  }
  Status forward(reference::PassKind, const DataParallel::Module&, std::vector<Edge>&) override {
    return {};
  }
  Status check_complete() override { return {}; }
  void abort(const Status&) override { ++aborts; }
  bool destroy_reducers() override {
    ++destroyed;
    if (ends_group_) group_->abort(Status(Code::kAborted, "destroyed mid-pass"));
    return is_amid_;
  }
  Status reset(Memberships) override { return {}; }
  bool poisoned() const override { return false; }
  bool launched_in_pass() const override { return is_amid_; }
  void take_trace(std::vector<properties::ObservedCollective>&) override {}

  int aborts = 0;
  int destroyed = 0;

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const bool is_amid_;
  const bool ends_group_;
};

faults::Fault fault_by(faults::AbortCall call) {
  faults::Fault fault;
  fault.kind = faults::Kind::kUserAbort;
  fault.at = static_cast<std::uint32_t>(call);
  return fault;
}

class UserAbortTest : public ::testing::Test {
 protected:
  UserAbortTest() {
    Membership membership;
    membership.group = group_;
    user_.take_groups({membership});
  }

  // Returns what is wrong.
  std::string destroy(bool is_amid, bool ends_group) {
    Subject subject(group_, is_amid, ends_group);
    user_.visit(&subject);
    EXPECT_TRUE(user_.is_to_destroy());
    EXPECT_EQ(subject.destroyed, 0);
    EXPECT_TRUE(group_->health().ok());
    std::string wrong;
    const Status cause = user_.destroy_reducers(subject, wrong);
    EXPECT_EQ(cause.code(), Code::kAborted);
    EXPECT_EQ(subject.destroyed, 1);
    EXPECT_FALSE(group_->health().ok());
    EXPECT_FALSE(user_.is_to_destroy());
    EXPECT_TRUE(user_.has_aborted());
    return wrong;
  }

  const std::shared_ptr<EmptyGroup> group_ = std::make_shared<EmptyGroup>();
  Environment environment_{fault_by(faults::AbortCall::kDestroy)};
  UserAbort user_{environment_};
};

TEST_F(UserAbortTest, AReducerWithBucketsInFlightEndsItsGroup) {
  EXPECT_EQ(destroy(true, true), "");
}

TEST_F(UserAbortTest, AReducerWithoutLeavesItsGroupAsItIs) { EXPECT_EQ(destroy(false, false), ""); }

TEST_F(UserAbortTest, AReducerThatLeavesItsGroupInTheMiddleOfAPassIsWrong) {
  EXPECT_EQ(destroy(true, false),
            "a reducer that was destroyed in the middle of a pass has not ended its group");
}

TEST_F(UserAbortTest, AReducerThatEndsItsGroupForNothingIsWrong) {
  EXPECT_EQ(destroy(false, true),
            "a reducer that was destroyed with nothing in flight has ended its group");
}

TEST_F(UserAbortTest, NewGroupsAreNotThoseWhoseReducersWereToBeDestroyed) {
  Subject subject(group_, false, false);
  user_.visit(&subject);
  user_.take_groups({});
  EXPECT_FALSE(user_.is_to_destroy());
}

}  // namespace
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
