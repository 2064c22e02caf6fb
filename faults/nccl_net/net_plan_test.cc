#include "faults/nccl_net/net_plan.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "faults/nccl_net/test_net_ends.h"

namespace lockstep::faults::net {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::plan_name;

std::string error_of(const Result<NetPlan>& plan) {
  if (plan.has_value()) return "";
  EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
  return plan.error().to_string();
}

// Shared memory of that name with these bytes, and its removal.
class Memory {
 public:
  Memory(std::string name, std::size_t size) : name_(std::move(name)), size_(size) {
    const int descriptor = ::shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    EXPECT_EQ(::ftruncate(descriptor, static_cast<off_t>(size)), 0);
    bytes_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    ::close(descriptor);
  }
  ~Memory() {
    ::munmap(bytes_, size_);
    ::shm_unlink(name_.c_str());
  }
  const std::string& name() const { return name_; }
  lockstep_net_plan& plan() { return *static_cast<lockstep_net_plan*>(bytes_); }

  // What create() would have written for no faults.
  void make_right() {
    plan().magic = LOCKSTEP_NET_PLAN_MAGIC;
    plan().version = LOCKSTEP_NET_PLAN_VERSION;
    plan().size = sizeof(lockstep_net_plan);
  }

 private:
  std::string name_;
  std::size_t size_;
  void* bytes_ = nullptr;
};

TEST(NetPlan, ThoseWhoAttachSeeTheFaultsAndCountForTheMaker) {
  const std::vector<NetFault> faults = {{NetKind::kFlip, 0, 2, End::kSender, 1, 5, 2, 17},
                                        {NetKind::kStall}};
  const Result<NetPlan> plan = NetPlan::create(plan_name(), faults);
  ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
  Result<NetPlan> other = NetPlan::attach(plan->name());
  ASSERT_TRUE(other.has_value()) << other.error().to_string();
  ASSERT_EQ(other->faults().size(), 2u);
  EXPECT_EQ(to_string(other->faults()[0]),
            "flip, rank 0 -> 2, connection 1, message 5 and the 1 after it");
  EXPECT_EQ(other->faults()[0].amount, 17);
  EXPECT_EQ(to_string(other->faults()[1]), "stall, rank any -> any, connection any, message 0");
  EXPECT_EQ(plan->fired(0), 0u);
  other->count_fired(0);
  other->count_fired(0);
  EXPECT_EQ(plan->fired(0), 2u);
  EXPECT_EQ(plan->fired(1), 0u);
}

TEST(NetPlan, ReportTellsHowFarEachFaultGot) {
  const NetFault fault{NetKind::kClose, 0, 2, End::kReceiver, 0, 3, 1, 0};
  Result<NetPlan> plan = NetPlan::create(plan_name(), {fault});
  ASSERT_TRUE(plan.has_value());
  const std::string which = "fault 0 (close, rank 0 <- 2, connection 0, message 3) never fired: ";
  EXPECT_THAT(plan->unfired(), ElementsAre(which + "no rank took the plan"));
  plan->count_attached();
  EXPECT_THAT(plan->unfired(), ElementsAre(which + "no connection rank 0 <- 2"));
  plan->count_connection(0);
  EXPECT_THAT(plan->unfired(), ElementsAre(which + "the connection carried 0 messages"));
  plan->count_seen(0, 3);
  plan->count_seen(0, 2);
  EXPECT_THAT(plan->unfired(), ElementsAre(which + "the connection carried 3 messages"));
  plan->count_seen(0, 4);
  EXPECT_THAT(plan->unfired(), ElementsAre(HasSubstr("posted, but nothing came of it")));
  plan->count_idle(0);
  EXPECT_THAT(plan->unfired(), ElementsAre(HasSubstr("had nothing to change")));
  plan->count_fired(0);
  EXPECT_THAT(plan->unfired(), IsEmpty());
}

TEST(NetPlan, NameGoesWithItsMakerAndMemoryStaysForTheOthers) {
  const std::string name = plan_name();
  std::optional<NetPlan> other;
  {
    Result<NetPlan> plan = NetPlan::create(name, {{NetKind::kStall}});
    ASSERT_TRUE(plan.has_value());
    other.emplace(std::move(*NetPlan::attach(name)));
  }
  EXPECT_THAT(error_of(NetPlan::attach(name)), HasSubstr("the runner makes it before"));
  other->count_fired(0);
  EXPECT_EQ(other->fired(0), 1u);
  EXPECT_TRUE(NetPlan::create(name, {}).has_value());
}

TEST(NetPlan, SecondPlanOfOneNameIsAnErrorAndLeavesTheFirst) {
  const Result<NetPlan> plan = NetPlan::create(plan_name(), {{NetKind::kStall}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(error_of(NetPlan::create(plan->name(), {})), HasSubstr("choose another name"));
  EXPECT_EQ(NetPlan::attach(plan->name())->faults().size(), 1u);
}

TEST(NetPlan, PlanThatTheSystemHasNoRoomForIsAnErrorAndLeavesNothing) {
  const std::string name = plan_name();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const Result<NetPlan> plan = NetPlan::create(name, {});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code(), Code::kTransport);
  EXPECT_THAT(plan.error().to_string(), HasSubstr("cannot make room for '" + name + "'"));
  EXPECT_EQ(error_of(NetPlan::create(name, {})), "") << "the name is free";
}

TEST(NetPlan, NamesHaveOneSlashAtTheirBeginning) {
  for (const std::string& name : {std::string(), std::string("/"), std::string("plan"),
                                  std::string("/a/b"), "/" + std::string(300, 'x')})
    EXPECT_THAT(error_of(NetPlan::create(name, {})), HasSubstr("is no name")) << name;
}

TEST(NetPlan, FaultsThatMakeNoSenseAreRefused) {
  const std::pair<NetFault, const char*> wrong[] = {
      {{static_cast<NetKind>(0)}, "no kind 0"},
      {{static_cast<NetKind>(10)}, "no kind 10"},
      {{NetKind::kStall, -2}, "below -1"},
      {{NetKind::kStall, 0, -2}, "below -1"},
      {{NetKind::kStall, 0, 0, static_cast<End>(2)}, "no end 2"},
      {{NetKind::kStall, 0, 0, End::kSender, -2}, "below -1"},
      {{NetKind::kStall, 0, 0, End::kSender, 0, -1}, "counted from 0"},
      {{NetKind::kStall, 0, 0, End::kSender, 0, 0, 0}, "1 or more"},
      {{NetKind::kFlip, 0, 0, End::kSender, 0, 0, 1, -1}, "negative"},
      {{NetKind::kError, 0, 0, End::kSender, 0, 0, 1, 0}, "no error of NCCL"},
      {{NetKind::kRefuse, 0, 0, End::kSender, 0, 0, 1, 8}, "no error of NCCL"},
      {{NetKind::kDelay, 0, 0, End::kSender, 0, 0, 1, 3'600'000'001}, "more than an hour"},
      {{NetKind::kBackPressure}, "would do nothing"},
      {{NetKind::kShort}, "would do nothing"},
      {{NetKind::kSwap, 0, 0, End::kReceiver}, "sender's end alone"},
      {{NetKind::kShort, 0, 0, End::kReceiver, 0, 0, 1, 1}, "sender's end alone"},
  };
  for (const auto& [fault, why] : wrong) {
    const std::string name = plan_name();
    EXPECT_THAT(error_of(NetPlan::create(name, {fault})), HasSubstr(why));
    EXPECT_THAT(error_of(NetPlan::attach(name)), HasSubstr("No such file")) << "nothing is left";
  }
}

TEST(NetPlan, MoreFaultsThanFitAreRefused) {
  const std::vector<NetFault> many(LOCKSTEP_NET_MAX_FAULTS, {NetKind::kStall});
  EXPECT_TRUE(NetPlan::create(plan_name(), many).has_value());
  std::vector<NetFault> more = many;
  more.push_back({NetKind::kStall});
  EXPECT_THAT(error_of(NetPlan::create(plan_name(), more)), HasSubstr("more than the 64"));
}

TEST(NetPlan, MemoryThatIsTooSmallHoldsNoPlan) {
  const Memory memory(plan_name(), sizeof(lockstep_net_plan) - 1);
  EXPECT_THAT(error_of(NetPlan::attach(memory.name())), HasSubstr("holds no plan"));
}

TEST(NetPlan, MemoryOfSomethingElseIsRefused) {
  Memory memory(plan_name(), sizeof(lockstep_net_plan));
  EXPECT_THAT(error_of(NetPlan::attach(memory.name())), HasSubstr("does not begin like a plan"));
  memory.make_right();
  EXPECT_EQ(error_of(NetPlan::attach(memory.name())), "");
}

TEST(NetPlan, OtherVersionIsRefusedWithBothNumbers) {
  Memory memory(plan_name(), sizeof(lockstep_net_plan));
  memory.make_right();
  memory.plan().version = 1;
  EXPECT_THAT(error_of(NetPlan::attach(memory.name())),
              HasSubstr("has version 1, and this is for 2"));
}

TEST(NetPlan, CountsThatCannotBeAreRefused) {
  Memory memory(plan_name(), sizeof(lockstep_net_plan));
  memory.make_right();
  memory.plan().count = LOCKSTEP_NET_MAX_FAULTS + 1;
  EXPECT_THAT(error_of(NetPlan::attach(memory.name())), HasSubstr("65 faults, which cannot be"));
  memory.make_right();
  memory.plan().count = 0;
  memory.plan().size -= 8;
  EXPECT_THAT(error_of(NetPlan::attach(memory.name())), HasSubstr("which cannot be"));
}

TEST(NetPlan, FaultInMemoryThatMakesNoSenseIsNamed) {
  Memory memory(plan_name(), sizeof(lockstep_net_plan));
  memory.make_right();
  memory.plan().count = 2;
  memory.plan().faults[0].kind = LOCKSTEP_NET_STALL;
  memory.plan().faults[0].messages = 1;
  memory.plan().faults[1].kind = 77;
  EXPECT_THAT(error_of(NetPlan::attach(memory.name())), HasSubstr("no kind 77 (fault 1 of"));
}

}  // namespace
}  // namespace lockstep::faults::net
