// The switch and its counters, on the patched reducer itself. That each bug is found is for the
// fuzzer to show (`lockstep fuzz --subject seeded:ID`); that a patch which does not apply fails the
// build is in apply_test.
#include "faults/seeded/seeded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "reducer/comm/mirror_peer_group.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
namespace {

// Sends ones to a parameter.
class Use final : public Node {
 public:
  Use(Engine& engine, const Ref<Parameter>& parameter)
      : Node(engine.next_sequence(), 1, 0), parameter_(parameter) {
    edges_.push_back({parameter, 0});
  }
  Status apply(std::span<const Tensor>, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    Result<Tensor> ones =
        Tensor::empty(parameter_->device(), parameter_->dtype(), parameter_->shape());
    if (!ones) return ones.error();
    auto* values = reinterpret_cast<float*>(ones->data());
    std::fill(values, values + ones->elements(), 1.0f);
    outgoing[0] = std::move(*ones);
    return {};
  }

 private:
  Ref<Parameter> parameter_;
};

// One rank with two parameters, which trains on the first: the second stays unused.
class Rank {
 public:
  Rank() {
    const std::int64_t sizes[] = {3};
    for (const char* name : {"p0", "p1"})
      parameters_.push_back(make_ref<Parameter>(
          name, device_, DType::kFloat32, Shape::row_major(sizes), true, engine_.next_sequence()));
    ReducerOptions options;
    options.find_unused_parameters = true;
    auto made = DataParallel::create(
        parameters_, engine_, options,
        Membership{std::make_shared<MirrorPeerGroup>(1), std::make_shared<HashStore>()});
    EXPECT_TRUE(made.has_value());
    if (made) parallel_ = std::move(*made);
  }

  Status forward(std::vector<Edge>& outputs) {
    const auto module = [this](std::vector<Edge>& out) {
      out.push_back({Ref<Node>(new Use(engine_, parameters_[0])), 0});
      return Status();
    };
    return parallel_->forward(module, outputs);
  }

  Status step() {
    std::vector<Edge> outputs;
    LOCKSTEP_RETURN_IF_ERROR(forward(outputs));
    const std::vector<Tensor> gradients(outputs.size());
    return engine_.backward(outputs, gradients, false);
  }

  // A forward whose output is dropped, then a step.
  Status dropped_forward_and_step() {
    std::vector<Edge> dropped;
    LOCKSTEP_RETURN_IF_ERROR(forward(dropped));
    dropped.clear();
    return step();
  }

  const Tensor& gradient(std::size_t index) const { return parameters_[index]->grad(); }

 private:
  HostDevice device_{0};
  Engine engine_{0};
  std::vector<Ref<Parameter>> parameters_;
  std::unique_ptr<DataParallel> parallel_;
};

class Seeded : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(seeded::select("")); }
};

TEST_F(Seeded, ListIsThatOfThePatchesAndSorted) {
  std::vector<std::string> expected;
  std::ifstream patches(LOCKSTEP_SEEDED_PATCHES);
  for (std::string file; std::getline(patches, file);) {
    std::ifstream patch(file);
    std::string line;
    while (std::getline(patch, line) && line.rfind("id: ", 0) != 0) continue;
    expected.push_back(line.substr(std::min<std::size_t>(4, line.size())));
  }
  std::sort(expected.begin(), expected.end());
  std::vector<std::string> listed;
  for (const seeded::Bug& bug : seeded::bugs()) {
    listed.emplace_back(bug.id);
    EXPECT_FALSE(bug.source.empty()) << bug.id;
    EXPECT_FALSE(bug.oracle.empty()) << bug.id;
    EXPECT_FALSE(bug.what.empty()) << bug.id;
  }
  EXPECT_FALSE(listed.empty());
  EXPECT_EQ(listed, expected);
}

TEST_F(Seeded, EveryListedBugCanBeSelected) {
  for (const seeded::Bug& bug : seeded::bugs()) {
    EXPECT_TRUE(seeded::select(bug.id));
    EXPECT_EQ(seeded::selected(), bug.id);
  }
  EXPECT_TRUE(seeded::select(""));
  EXPECT_EQ(seeded::selected(), "");
}

TEST_F(Seeded, UnknownIdIsRefusedAndChangesNothing) {
  ASSERT_TRUE(seeded::select("R04"));
  for (const char* id : {"R", "R0", "R044", "r04", "R04 ", "no such bug"}) {
    EXPECT_FALSE(seeded::select(id)) << id;
    EXPECT_EQ(seeded::selected(), "R04");
  }
}

TEST_F(Seeded, NothingSelectedReachesAndTriggersNothing) {
  ASSERT_TRUE(seeded::select(""));
  Rank rank;
  for (int i = 0; i < 3; ++i) {
    const Status status = rank.dropped_forward_and_step();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_FALSE(rank.gradient(1).defined());  // nobody used it
  EXPECT_EQ(seeded::reached(), 0u);
  EXPECT_EQ(seeded::triggered(), 0u);
}

TEST_F(Seeded, SelectedBugActsAndIsCounted) {
  ASSERT_TRUE(seeded::select("R04"));
  Rank rank;
  EXPECT_TRUE(rank.step().ok());
  EXPECT_EQ(seeded::triggered(), 0u);  // no output was dropped yet
  EXPECT_EQ(rank.dropped_forward_and_step().code(), Code::kIncomplete);
  EXPECT_EQ(seeded::reached(), 1u);
  EXPECT_EQ(seeded::triggered(), 1u);
}

TEST_F(Seeded, SelectionCanChangeBetweenRunsAndCountsAnew) {
  ASSERT_TRUE(seeded::select("R09"));
  Rank first;
  EXPECT_TRUE(first.step().ok());
  EXPECT_TRUE(first.gradient(1).defined());
  EXPECT_GT(seeded::triggered(), 0u);
  ASSERT_TRUE(seeded::select(""));
  EXPECT_EQ(seeded::reached(), 0u);
  EXPECT_EQ(seeded::triggered(), 0u);
  Rank second;
  EXPECT_TRUE(second.step().ok());
  EXPECT_FALSE(second.gradient(1).defined());
}

}  // namespace
}  // namespace lockstep
