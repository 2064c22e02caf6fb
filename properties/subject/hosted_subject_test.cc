// Claims: the host calls a subject from a shared library for forwards, backwards and hooks in the
// order that lockstep_subject.h promises, with the right pass; the functions of the host are
// correct; and the subject's errors reach the caller unchanged. Method: one rank, a subject that
// records its calls, and a ScriptedGroup, which represents two equal ranks.
#include "properties/subject/hosted_subject.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "properties/observe/training.h"
#include "reducer/test_ranks.h"
#include "reference/model.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OneRank final : public RankEnvironment {
 public:
  std::uint32_t rank() const override { return 0; }
  Result<Memberships> connect(const Roster&) override {
    group = std::make_shared<testing::ScriptedGroup>();
    group->limit = std::chrono::seconds(1);
    return Memberships{{group, std::make_shared<HashStore>()}};
  }
  platform::Duration failure_grace() const override { return std::chrono::microseconds(1500); }
  void begin_step(std::uint32_t) override {}
  void visit_node() override {
    if (throws) throw std::runtime_error("planned");
  }
  bool exited() const override { return false; }
  Resume meet(bool finished, std::uint32_t next_step) override {
    return {!finished, next_step, {++generation_, {0}}};
  }

  std::shared_ptr<testing::ScriptedGroup> group;
  bool throws = false;

 private:
  std::uint32_t generation_ = 0;
};

// The subject: writes its calls down, and does at each what the test has planned there.
struct Recorder {
  using Plan = std::function<std::int32_t(lockstep_error*)>;
  std::vector<std::string> calls;
  std::map<std::string, Plan> plans;
  const lockstep_setup* setup = nullptr;
  const lockstep_host* host = nullptr;

  std::int32_t call(const std::string& what, lockstep_error* error) {
    calls.push_back(what);
    const auto plan = plans.find(what);
    return plan == plans.end() ? std::int32_t{LOCKSTEP_OK} : plan->second(error);
  }
};

Recorder* recorder = nullptr;  // the test's

std::string bytes(const std::uint8_t* reachable) {
  if (reachable == nullptr) return "";
  std::string text = " reaches ";
  for (std::uint32_t p = 0; p < recorder->setup->parameter_count; ++p)
    text += reachable[p] ? '1' : '0';
  return text;
}

lockstep_subject make_table() {
  lockstep_subject table{};
  table.size = sizeof table;
  table.abi = LOCKSTEP_ABI;
  table.name = "recorder";
  table.create = [](const lockstep_setup* setup, const lockstep_host* host,
                    lockstep_error* error) -> void* {
    recorder->setup = setup;
    recorder->host = host;
    error->code = recorder->call("create", error);
    return error->code == LOCKSTEP_OK ? recorder : nullptr;
  };
  table.destroy = [](void*) { recorder->call("destroy", nullptr); };
  table.forward_begin = [](void*, std::uint32_t kind, lockstep_error* error) {
    return recorder->call("forward " + std::to_string(kind), error);
  };
  table.forward_end = [](void*, std::uint32_t kind, const std::uint8_t* reachable,
                         lockstep_error* error) {
    return recorder->call("end " + std::to_string(kind) + bytes(reachable), error);
  };
  table.backward_begin = [](void*, std::int64_t pass, std::uint32_t is_first,
                            const std::uint8_t* reachable, lockstep_error* error) {
    return recorder->call(
        "backward " + std::to_string(pass) + (is_first ? " first" : "") + bytes(reachable), error);
  };
  table.gradient_ready = [](void*, std::uint32_t parameter, std::int64_t pass,
                            lockstep_error* error) {
    return recorder->call("hook " + std::to_string(parameter) + " of " + std::to_string(pass),
                          error);
  };
  table.backward_end = [](void*, std::int64_t pass, std::uint32_t left, lockstep_error* error) {
    return recorder->call("done " + std::to_string(pass) + " left " + std::to_string(left), error);
  };
  table.backward_failed = [](void*, std::int64_t pass, lockstep_error* error) {
    return recorder->call("failed " + std::to_string(pass), error);
  };
  table.check_complete = [](void*, lockstep_error* error) {
    return recorder->call("check", error);
  };
  table.abort = [](void*, const lockstep_error*) { recorder->call("abort", nullptr); };
  table.reset = [](void*, const lockstep_setup* setup, lockstep_error* error) {
    recorder->setup = setup;
    return recorder->call("reset", error);
  };
  table.poisoned = [](void*) { return 0; };
  return table;
}

reference::Node use(std::uint32_t parameter, std::vector<reference::Input> inputs = {}) {
  reference::Node node;
  node.key = parameter + 1;
  node.parameter = parameter;
  node.inputs = std::move(inputs);
  return node;
}

reference::Step step_of(reference::PassKind kind, std::vector<reference::Forward> forwards) {
  reference::Step step;
  step.kind = kind;
  step.variants.resize(1);
  step.variants[0].forwards = std::move(forwards);
  return step;
}

class HostedSubjectTest : public ::testing::Test {
 protected:
  HostedSubjectTest() {
    recorder = &recorder_;
    add_parameter(3);
    add_parameter(2);
    program_.world = 1;
  }

  reference::Parameter& add_parameter(std::uint32_t elements) {
    reference::Parameter& parameter = program_.parameters.emplace_back();
    parameter.key = static_cast<std::uint32_t>(program_.parameters.size());
    parameter.sizes = {elements};
    return parameter;
  }

  // A chain of uses: the last one is the output.
  static reference::Forward chain(const std::vector<std::uint32_t>& parameters) {
    reference::Forward forward;
    for (const std::uint32_t parameter : parameters)
      forward.nodes.push_back(use(parameter, {reference::Input{}}));
    return forward;
  }

  void add(reference::PassKind kind, std::vector<reference::Forward> forwards) {
    program_.steps.push_back(step_of(kind, std::move(forwards)));
  }

  void plan(const std::string& call, Recorder::Plan plan) {
    recorder_.plans[call] = std::move(plan);
  }

  properties::RankObservation train_it() {
    reference::normalize(program_);
    properties::RankObservation observation;
    std::vector<std::unique_ptr<HostDevice>> devices;
    const auto expectation = reference::run(program_, reference::Contract::lockstep());
    properties::ExpectedErrors errors(program_, expectation);
    train(
        program_, errors, [this] { return make_hosted_subject(&table_); }, environment_, devices,
        observation);
    return observation;
  }

  lockstep_subject table_ = make_table();
  Recorder recorder_;
  OneRank environment_;
  reference::Program program_;
};

using reference::PassKind;

TEST_F(HostedSubjectTest, TellsOfEveryCallInOrder) {
  add(PassKind::kNoGrad, {chain({0})});
  add(PassKind::kNoSync, {chain({0})});
  add(PassKind::kSynced, {chain({0, 1}), chain({1})});
  EXPECT_TRUE(train_it().finished);
  EXPECT_THAT(recorder_.calls,
              ElementsAre("create", "forward 2", "end 2", "forward 1", "end 1", "hook 0 of -1",
                          "forward 0", "end 0", "forward 0", "end 0", "backward 0 first",
                          "hook 1 of 0", "hook 0 of 0", "done 0 left 0", "destroy"));
}

TEST_F(HostedSubjectTest, ADiscardedForwardHasNoBackwardAndNoNumber) {
  add(PassKind::kSynced, {chain({0, 1})});
  program_.steps[0].variants[0].forwards[0].discard = true;
  add(PassKind::kSynced, {chain({0, 1})});
  add(PassKind::kSynced, {chain({0, 1})});
  EXPECT_TRUE(train_it().finished);
  EXPECT_THAT(
      recorder_.calls,
      ElementsAre("create", "forward 0", "end 0", "forward 0", "end 0", "backward 0 first",
                  "hook 1 of 0", "hook 0 of 0", "done 0 left 0", "forward 0", "end 0",
                  "backward 1 first", "hook 1 of 1", "hook 0 of 1", "done 1 left 0", "destroy"));
}

TEST_F(HostedSubjectTest, SeveralBackwardsOfOnePassAreToldApart) {
  add(PassKind::kSynced, {chain({0}), chain({1})});
  reference::RankPass& pass = program_.steps[0].variants[0];
  pass.backwards.resize(2);
  pass.backwards[0].roots = {0};
  pass.backwards[1].roots = {1};
  pass.keep_outputs = true;
  EXPECT_TRUE(train_it().finished);
  EXPECT_THAT(recorder_.calls,
              ElementsAre("create", "forward 0", "end 0", "forward 0", "end 0", "backward 0 first",
                          "hook 0 of 0", "done 0 left 1", "backward 0", "hook 1 of 0",
                          "done 0 left 0", "check", "destroy"));
}

// P5. The first backward leaves a constant, and an output that leads to what has come.
TEST_F(HostedSubjectTest, OutputsThatLeadToNothingMissingAreNotLeft) {
  add(PassKind::kSynced, {chain({0})});
  reference::RankPass& pass = program_.steps[0].variants[0];
  pass.forwards[0].outputs = {{0, 0}, {0, 0}};
  pass.forwards[0].nodes.push_back(use(0));
  pass.forwards[0].outputs[1].back = 1;
  pass.forwards[0].constants = 1;
  pass.backwards.resize(1);
  pass.backwards[0].roots = {0};
  pass.keep_outputs = pass.hold_outputs = true;
  EXPECT_TRUE(train_it().finished);
  // Parameter 1 is missing: the model expects the error that this subject does not raise.
  EXPECT_THAT(recorder_.calls,
              ElementsAre("create", "forward 0", "end 0", "backward 0 first", "hook 0 of 0",
                          "done 0 left 0", "check", "reset", "destroy"));
}

TEST_F(HostedSubjectTest, HooksOfANestedBackwardBelongToTheOuterPass) {
  add(PassKind::kSynced, {chain({0})});
  reference::Node checkpoint;
  checkpoint.kind = reference::Node::Kind::kCheckpoint;
  checkpoint.inputs = {reference::Input{}};
  checkpoint.body = {use(1)};
  program_.steps[0].variants[0].forwards[0].nodes.push_back(checkpoint);
  EXPECT_TRUE(train_it().finished);
  EXPECT_THAT(recorder_.calls,
              ElementsAre("create", "forward 0", "end 0", "backward 0 first", "hook 1 of 0",
                          "hook 0 of 0", "done 0 left 0", "destroy"));
}

TEST_F(HostedSubjectTest, DynamicModeTellsWhatCanBeReached) {
  program_.options.mode = reference::Mode::kDynamic;
  add(PassKind::kSynced, {chain({0}), chain({1})});
  program_.steps[0].variants[0].forwards[1].discard = true;
  EXPECT_TRUE(train_it().finished);
  EXPECT_THAT(recorder_.calls, ElementsAre("create", "forward 0", "end 0 reaches 10", "forward 0",
                                           "end 0 reaches 01", "backward 0 first reaches 10",
                                           "hook 0 of 0", "done 0 left 0", "destroy"));
}

TEST_F(HostedSubjectTest, TheSetupHasTheGroupAndTheLayout) {
  program_.parameters.clear();
  add_parameter(3);
  add_parameter(5);
  add_parameter(7).frozen = true;
  add_parameter(1).shared_with = 2;  // the second one's
  add_parameter(4).dtype = reference::DType::kFloat64;
  program_.options.first_bucket_bytes = 1000;
  bool is_called = false;
  plan("create", [&](lockstep_error*) {
    is_called = true;
    const lockstep_setup& setup = *recorder_.setup;
    EXPECT_EQ(setup.size, sizeof(lockstep_setup));
    EXPECT_EQ(setup.rank, 0u);
    EXPECT_EQ(setup.world, 2u);
    EXPECT_EQ(setup.mode, std::uint32_t{LOCKSTEP_PLAIN});
    EXPECT_EQ(setup.timeout_ms, 1000u);
    EXPECT_EQ(setup.grace_ms, 2u);  // rounded up
    EXPECT_EQ(setup.parameter_count, 4u);
    EXPECT_STREQ(setup.parameters[1].name, "p1");
    EXPECT_EQ(setup.parameters[1].count, 5u);
    EXPECT_EQ(setup.parameters[1].requires_grad, 1u);
    EXPECT_EQ(setup.parameters[2].requires_grad, 0u);
    EXPECT_EQ(setup.parameters[3].dtype, std::uint32_t{LOCKSTEP_FLOAT64});
    EXPECT_EQ(setup.bucket_count, 2u);
    const lockstep_bucket& first = setup.buckets[0];  // launch order: the last one first
    EXPECT_EQ(first.dtype, std::uint32_t{LOCKSTEP_FLOAT64});
    EXPECT_EQ(first.count, 4u);
    EXPECT_EQ(first.members[0].parameter, 3u);
    const lockstep_bucket& second = setup.buckets[1];
    EXPECT_EQ(second.member_count, 2u);
    EXPECT_EQ(second.members[1].parameter, 1u);
    EXPECT_EQ(second.members[1].offset, 16u);  // 64 bytes
    EXPECT_EQ(second.members[1].count, 5u);
    EXPECT_EQ(second.count, 21u);
    return std::int32_t{LOCKSTEP_OK};
  });
  train_it();
  EXPECT_TRUE(is_called);
}

// What is between create and the end of the pass, with the host at hand.
class HostedCallsTest : public HostedSubjectTest {
 protected:
  // Dynamic, so that p1 may be left out.
  HostedCallsTest() {
    program_.options.mode = reference::Mode::kDynamic;
    add(PassKind::kSynced, {chain({0})});
  }

  // Runs `test` as backward_end.
  properties::RankObservation at_the_end(std::function<void(const lockstep_host*)> test) {
    bool is_called = false;
    plan("done 0 left 0", [&](lockstep_error*) {
      is_called = true;
      test(recorder_.host);
      return std::int32_t{LOCKSTEP_OK};
    });
    properties::RankObservation observation = train_it();
    EXPECT_TRUE(is_called);
    return observation;
  }

  static lockstep_collective sum_of(std::vector<float>& data) {
    lockstep_collective sum{};
    sum.data = data.data();
    sum.count = data.size();
    sum.op = LOCKSTEP_ALL_REDUCE_SUM;
    sum.dtype = LOCKSTEP_FLOAT32;
    return sum;
  }
};

TEST_F(HostedCallsTest, ACollectiveRunsOnTheGroupAndIsInTheTrace) {
  std::vector<float> data{1, 2, 3};
  const auto observation = at_the_end([&](const lockstep_host* host) {
    const lockstep_collective sum = sum_of(data);
    std::uint64_t ticket = 0;
    ASSERT_EQ(host->start(host, &sum, &ticket, nullptr), LOCKSTEP_OK);
    ASSERT_EQ(host->wait(host, ticket, nullptr), LOCKSTEP_OK);
  });
  EXPECT_THAT(data, ElementsAre(2, 4, 6));
  ASSERT_EQ(observation.steps[0].collectives.size(), 1u);
  const properties::ObservedCollective& seen = observation.steps[0].collectives[0];
  EXPECT_EQ(seen.op, properties::ObservedCollective::Op::kAllReduceBucket);
  EXPECT_EQ(seen.bucket, 0);
  EXPECT_EQ(seen.count, 3u);
  EXPECT_EQ(seen.dtype, DType::kFloat32);
  EXPECT_EQ(environment_.group->started[0].collective.pass, 0);
}

TEST_F(HostedCallsTest, CollectivesOutsideOfAPassAreNotInTheTrace) {
  std::vector<float> data{1};
  plan("create", [&](lockstep_error* error) {
    lockstep_collective sum = sum_of(data);
    sum.bucket = LOCKSTEP_OTHER;
    std::uint64_t ticket = 0;
    const lockstep_host* host = recorder_.host;
    EXPECT_EQ(host->start(host, &sum, &ticket, error), LOCKSTEP_OK);
    return host->wait(host, ticket, error);
  });
  const auto observation = train_it();
  EXPECT_THAT(data, ElementsAre(2));
  EXPECT_TRUE(observation.steps[0].collectives.empty());
  EXPECT_EQ(environment_.group->started[0].collective.pass, kNone);
}

TEST_F(HostedCallsTest, WrongArgumentsAreRefusedAndToldInTheError) {
  std::vector<float> data{1};
  at_the_end([&](const lockstep_host* host) {
    const auto refused = [&](auto change) {
      lockstep_collective sum = sum_of(data);
      change(sum);
      std::uint64_t ticket = 0;
      lockstep_error error{};
      EXPECT_EQ(host->start(host, &sum, &ticket, &error), LOCKSTEP_INVALID_ARGUMENT);
      return std::string(error.detail);
    };
    EXPECT_THAT(refused([](auto& c) { c.dtype = 9; }), HasSubstr("no dtype 9"));
    EXPECT_THAT(refused([](auto& c) { c.dtype = LOCKSTEP_BYTE; }), HasSubstr("cannot be summed"));
    EXPECT_THAT(refused([](auto& c) { c.op = 5; }), HasSubstr("no collective 5"));
    EXPECT_THAT(refused([](auto& c) { c.data = nullptr; }), HasSubstr("NULL"));
    EXPECT_THAT(refused([](auto& c) { c.bucket = 1; }), HasSubstr("no bucket 1"));
    EXPECT_THAT(refused([](auto& c) { c.bucket = -3; }), HasSubstr("no bucket -3"));
    EXPECT_THAT(refused([](auto& c) {
                  c.op = LOCKSTEP_BROADCAST;
                  c.root = 2;
                }),
                HasSubstr("no rank 2"));
  });
  EXPECT_TRUE(environment_.group->started.empty());
}

TEST_F(HostedCallsTest, ATicketIsGoodForOneWait) {
  std::vector<float> data{1};
  at_the_end([&](const lockstep_host* host) {
    const lockstep_collective sum = sum_of(data);
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    lockstep_error error{};
    ASSERT_EQ(host->start(host, &sum, &first, nullptr), LOCKSTEP_OK);
    EXPECT_EQ(host->wait(host, first, nullptr), LOCKSTEP_OK);
    EXPECT_EQ(host->wait(host, first, &error), LOCKSTEP_INVALID_ARGUMENT);
    EXPECT_THAT(error.detail, HasSubstr("was waited for"));
    ASSERT_EQ(host->start(host, &sum, &second, nullptr), LOCKSTEP_OK);
    EXPECT_NE(second, first);
    EXPECT_EQ(host->wait(host, first, nullptr), LOCKSTEP_INVALID_ARGUMENT);
    EXPECT_EQ(host->wait(host, second, nullptr), LOCKSTEP_OK);
    EXPECT_EQ(host->wait(host, ~std::uint64_t{0}, nullptr), LOCKSTEP_INVALID_ARGUMENT);
  });
}

TEST_F(HostedCallsTest, AFailureOfTheGroupNamesPassBucketAndParameters) {
  std::vector<float> data{1};
  lockstep_error error{};
  at_the_end([&](const lockstep_host* host) {
    const lockstep_collective sum = sum_of(data);
    Failure failure;
    failure.code = Code::kPeerLost;
    failure.suspect = 1;
    failure.collective = "all_reduce";
    environment_.group->failure = failure;
    std::uint64_t ticket = 0;
    EXPECT_EQ(host->start(host, &sum, &ticket, &error), LOCKSTEP_PEER_LOST);
  });
  EXPECT_EQ(error.code, LOCKSTEP_PEER_LOST);
  EXPECT_EQ(error.suspect, 1);
  EXPECT_EQ(error.pass, 0);
  EXPECT_EQ(error.bucket, 0);
  EXPECT_EQ(error.collective, LOCKSTEP_ALL_REDUCE_SUM);
  ASSERT_EQ(error.parameter_count, 2u);
  EXPECT_EQ(error.parameters[1], 1u);
}

TEST_F(HostedCallsTest, GradientsAreReadAndResultsWritten) {
  const auto observation = at_the_end([&](const lockstep_host* host) {
    std::uint32_t used = 7;
    const void* there = host->gradient(host, 0, &used);
    EXPECT_NE(there, nullptr);
    EXPECT_EQ(used, 1u);
    EXPECT_EQ(host->gradient(host, 1, &used), nullptr);
    EXPECT_EQ(used, 0u);
    EXPECT_EQ(host->result(host, 0, nullptr), there);  // in place
    host->gradient(host, 0, &used);
    EXPECT_EQ(used, 0u);  // reduced
    auto* fresh = static_cast<float*>(host->result(host, 1, nullptr));
    ASSERT_NE(fresh, nullptr);
    EXPECT_EQ(host->gradient(host, 1, nullptr), fresh);
    fresh[0] = 1.0f;
    fresh[1] = 2.0f;
  });
  const auto& gradients = observation.steps[0].gradients;
  ASSERT_TRUE(gradients[1].defined);
  EXPECT_EQ(observation.bits[gradients[1].offset + 1], 0x40000000u);
}

TEST_F(HostedCallsTest, AGradientWithoutElementsIsDefinedAllTheSame) {
  program_.parameters[0].sizes = {0};
  at_the_end([&](const lockstep_host* host) {
    EXPECT_NE(host->gradient(host, 0, nullptr), nullptr);
    EXPECT_EQ(host->gradient(host, 1, nullptr), nullptr);
  });
}

TEST_F(HostedCallsTest, TheStoreKeepsTheFirstValueAndItsWaitsEnd) {
  at_the_end([&](const lockstep_host* host) {
    lockstep_error error{};
    EXPECT_EQ(host->store_set(host, "who", "me", 2, &error), LOCKSTEP_OK);
    EXPECT_EQ(host->store_set(host, "who", "you", 3, &error), LOCKSTEP_OK);
    char value[2];
    std::uint64_t length = 0;
    EXPECT_EQ(host->store_get(host, "who", value, sizeof value, &length, 10, &error), LOCKSTEP_OK);
    EXPECT_EQ(std::string(value, length), "me");
    EXPECT_EQ(host->store_get(host, "who", value, 1, &length, 10, &error),
              LOCKSTEP_INVALID_ARGUMENT);
    EXPECT_EQ(length, 2u);
    EXPECT_EQ(host->store_get(host, "what", value, sizeof value, nullptr, 1, &error),
              LOCKSTEP_TIMEOUT);
  });
}

TEST_F(HostedCallsTest, TheLockKeepsOthersOut) {
  at_the_end([&](const lockstep_host* host) {
    int count = 0;
    const auto add = [&] {
      for (int i = 0; i < 10000; ++i) {
        host->lock(host);
        ++count;
        host->unlock(host);
      }
    };
    platform::Thread other("other", add);
    add();
    other.join();
    EXPECT_EQ(count, 20000);
  });
}

TEST_F(HostedCallsTest, WhatIsUnfinishedIsEndedBeforeDestroy) {
  std::vector<float> data{1};
  bool was_aborted = false;
  plan("destroy", [&](lockstep_error*) {
    was_aborted = environment_.group->aborted;
    return std::int32_t{LOCKSTEP_OK};
  });
  at_the_end([&](const lockstep_host* host) {
    environment_.group->stalls = true;
    const lockstep_collective sum = sum_of(data);
    std::uint64_t ticket = 0;
    EXPECT_EQ(host->start(host, &sum, &ticket, nullptr), LOCKSTEP_OK);
  });
  EXPECT_TRUE(was_aborted);
}

TEST_F(HostedCallsTest, NothingUnfinishedLeavesTheGroupAlone) {
  at_the_end([](const lockstep_host*) {});
  EXPECT_FALSE(environment_.group->aborted);
}

TEST_F(HostedSubjectTest, AnErrorOfAHookEndsTheStepAsTheSubjectTellsIt) {
  add(PassKind::kSynced, {chain({0, 1})});
  plan("hook 1 of 0", [](lockstep_error* error) {
    EXPECT_EQ(error->pass, 0);
    EXPECT_EQ(error->rank, -1);
    error->rank = 0;
    error->definite = 1;
    error->parameter_count = 1;
    error->parameters[0] = 1;
    return std::int32_t{LOCKSTEP_READY_TWICE};
  });
  plan("reset", [this](lockstep_error*) {
    recorder_.plans.clear();
    return std::int32_t{LOCKSTEP_OK};
  });
  add(PassKind::kSynced, {chain({0, 1})});
  const properties::RankObservation observation = train_it();
  const Failure& failure = observation.steps[0].status.failure();
  EXPECT_EQ(failure.code, Code::kReadyTwice);
  EXPECT_EQ(failure.pass, 0);
  EXPECT_EQ(failure.reported_by, 0);
  EXPECT_TRUE(failure.definite);
  EXPECT_THAT(failure.parameters, ElementsAre("p1"));
  EXPECT_THAT(recorder_.calls,
              ElementsAre("create", "forward 0", "end 0", "backward 0 first", "hook 1 of 0",
                          "failed 0", "abort", "reset", "forward 0", "end 0", "backward 0 first",
                          "hook 1 of 0", "hook 0 of 0", "done 0 left 0", "destroy"));
}

TEST_F(HostedSubjectTest, WithoutResetANewSubjectTakesOver) {
  table_.reset = nullptr;
  add(PassKind::kSynced, {chain({0, 1})});
  add(PassKind::kSynced, {chain({0, 1})});
  plan("backward 0 first", [this](lockstep_error*) {
    recorder_.plans.clear();
    return std::int32_t{LOCKSTEP_SECOND_BACKWARD};
  });
  const properties::RankObservation observation = train_it();
  EXPECT_EQ(observation.steps[0].status.code(), Code::kSecondBackward);
  EXPECT_THAT(recorder_.calls,
              ElementsAre("create", "forward 0", "end 0", "backward 0 first", "abort", "destroy",
                          "create", "forward 0", "end 0", "backward 0 first", "hook 1 of 0",
                          "hook 0 of 0", "done 0 left 0", "destroy"));
}

TEST_F(HostedSubjectTest, AFailingNodeReachesTheSubjectWhichMayAddToIt) {
  add(PassKind::kSynced, {chain({0})});
  environment_.throws = true;
  plan("failed 0", [](lockstep_error* error) {
    EXPECT_EQ(error->code, LOCKSTEP_USER_FAILURE);
    EXPECT_EQ(error->pass, 0);
    EXPECT_THAT(error->detail, HasSubstr("planned"));
    error->rank = 0;
    return error->code;
  });
  const properties::RankObservation observation = train_it();
  const Failure& failure = observation.steps[0].status.failure();
  EXPECT_EQ(failure.code, Code::kUserFailure);
  EXPECT_EQ(failure.rank, 0);
  EXPECT_THAT(failure.detail, HasSubstr("planned"));
}

TEST_F(HostedSubjectTest, ARefusedForwardIsNotRun) {
  add(PassKind::kSynced, {chain({0})});
  plan("forward 0", [](lockstep_error*) { return std::int32_t{LOCKSTEP_INCOMPLETE}; });
  const properties::RankObservation observation = train_it();
  EXPECT_EQ(observation.steps[0].status.code(), Code::kIncomplete);
  EXPECT_THAT(recorder_.calls, ElementsAre("create", "forward 0", "abort", "reset", "destroy"));
}

TEST_F(HostedSubjectTest, ASubjectThatCannotBeCreatedIsTold) {
  plan("create", [](lockstep_error* error) {
    error->detail[0] = 'x';
    return std::int32_t{LOCKSTEP_DISAGREEMENT};
  });
  const properties::RankObservation observation = train_it();
  EXPECT_EQ(observation.construction.code(), Code::kDisagreement);
  // Everyone meets and tries again, a few times: a peer may have been in the middle of an error.
  EXPECT_THAT(recorder_.calls, ElementsAre("create", "create", "create", "create"));
  EXPECT_EQ(observation.failed_joins.size(), 3u);
}

}  // namespace
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
