#include "reference/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "reference/model/engine.h"
#include "reference/test_any_program.h"

namespace lockstep::reference {
namespace {

using testing::any_program;

bool equal(const std::vector<Input>& a, const std::vector<Input>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Input& x, const Input& y) {
    return x.back == y.back && x.slot == y.slot;
  });
}

bool equal(const std::vector<Node>& a, const std::vector<Node>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Node& x, const Node& y) {
    return x.key == y.key && x.kind == y.kind && x.parameter == y.parameter &&
           x.factor == y.factor && x.row_major == y.row_major && equal(x.inputs, y.inputs) &&
           equal(x.body, y.body);
  });
}

bool equal(const RankPass& a, const RankPass& b) {
  return a.skip == b.skip && a.keep_outputs == b.keep_outputs && a.hold_outputs == b.hold_outputs &&
         std::equal(a.forwards.begin(), a.forwards.end(), b.forwards.begin(), b.forwards.end(),
                    [](const Forward& x, const Forward& y) {
                      return x.discard == y.discard && x.local == y.local &&
                             equal(x.nodes, y.nodes) && equal(x.outputs, y.outputs);
                    }) &&
         std::equal(a.backwards.begin(), a.backwards.end(), b.backwards.begin(), b.backwards.end(),
                    [](const Backward& x, const Backward& y) {
                      return x.roots == y.roots && x.forwards == y.forwards &&
                             x.evaluates == y.evaluates && x.zeroes == y.zeroes &&
                             x.updates == y.updates && x.drops == y.drops && x.held == y.held &&
                             x.held_synced == y.held_synced;
                    });
}

bool equal(const Parameter& a, const Parameter& b) {
  return a.key == b.key && a.dtype == b.dtype && a.sizes == b.sizes &&
         a.column_major == b.column_major && a.permuted == b.permuted && a.frozen == b.frozen &&
         a.shared_with == b.shared_with && a.device == b.device;
}

bool equal(const Program& a, const Program& b) {
  return a.world == b.world && a.key == b.key && a.values == b.values &&
         a.options.mode == b.options.mode && a.options.order == b.options.order &&
         a.options.first_bucket_bytes == b.options.first_bucket_bytes &&
         a.options.bucket_bytes == b.options.bucket_bytes &&
         std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(),
                    [](const Parameter& x, const Parameter& y) { return equal(x, y); }) &&
         std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                    [](const Step& x, const Step& y) {
                      return x.key == y.key && x.kind == y.kind && x.zero_grad == y.zero_grad &&
                             std::equal(x.variants.begin(), x.variants.end(), y.variants.begin(),
                                        y.variants.end(), [](const RankPass& p, const RankPass& q) {
                                          return equal(p, q);
                                        });
                    });
}

// Counts nodes, and checks each of them.
std::uint32_t check_nodes(const std::vector<Node>& nodes, std::uint32_t depth) {
  EXPECT_LE(depth, kMaxDepth);
  EXPECT_FALSE(nodes.empty());
  std::uint32_t count = 0;
  for (const Node& node : nodes) {
    EXPECT_LE(node.kind, Node::Kind::kCheckpoint);
    EXPECT_GE(node.factor, -2);
    EXPECT_LE(node.factor, 2);
    EXPECT_LE(node.inputs.size(), kMaxInputs);
    EXPECT_EQ(node.kind == Node::Kind::kCheckpoint, !node.body.empty());
    ++count;
    if (!node.body.empty()) count += check_nodes(node.body, depth + 1);
  }
  return count;
}

// The order of forwards and backward calls, and which of them belong to the pass.
void check_order(const RankPass& pass, PassKind kind) {
  bool any_local = false;
  for (const Forward& forward : pass.forwards) any_local = any_local || forward.local;
  EXPECT_TRUE(!any_local || kind == PassKind::kSynced);
  std::uint32_t before = 0;
  bool any_synced = kept_outputs(pass) == 0 || kind == PassKind::kNoSync;
  for (std::uint32_t call = 0; call < call_count(pass); ++call) {
    const bool is_synced = is_synced_call(pass, call);
    any_synced = any_synced || is_synced;
    if (pass.backwards.empty()) continue;
    const std::uint32_t forwards = pass.backwards[call].forwards;
    EXPECT_TRUE(forwards == 0 || (forwards >= before && forwards < pass.forwards.size()));
    EXPECT_TRUE(forwards == 0 || kind == PassKind::kNoSync || !is_synced);
    EXPECT_TRUE(forwards == 0 || call + 1 < call_count(pass));
    before = forwards == 0 ? ~std::uint32_t{0} : forwards;
  }
  EXPECT_TRUE(any_synced);
  EXPECT_TRUE(!any_local || kept_outputs(pass) > 0);
}

void check_pass(const RankPass& pass, PassKind kind) {
  EXPECT_TRUE(kind == PassKind::kNoGrad || !pass.skip);
  EXPECT_GE(pass.forwards.size(), 1U);
  EXPECT_LE(pass.forwards.size(), kMaxForwards);
  for (const Forward& forward : pass.forwards) {
    EXPECT_LE(check_nodes(forward.nodes, 0), kMaxNodes);
    EXPECT_GE(forward.outputs.size(), 1U);
    EXPECT_LE(forward.outputs.size(), kMaxOutputs);
  }
  EXPECT_LE(pass.backwards.size(), kMaxBackwards);
  for (const Backward& backward : pass.backwards) EXPECT_LE(backward.roots.size(), kMaxRoots);
  check_order(pass, kind);
}

void check_program(const Program& program) {
  EXPECT_GE(program.world, 1U);
  EXPECT_LE(program.world, kMaxWorld);
  EXPECT_LE(program.options.mode, Mode::kStatic);
  EXPECT_GE(program.parameters.size(), 1U);
  EXPECT_LE(program.parameters.size(), kMaxParameters);
  EXPECT_LE(program.bad_number.kind, BadNumber::Kind::kNaN);
  EXPECT_LT(program.bad_number.rank, program.world);
  EXPECT_LT(program.bad_number.parameter, program.parameters.size());
  EXPECT_LE(program.bad_number.step, program.steps.size());
  for (std::uint32_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    EXPECT_LE(parameter.dtype, DType::kComplex64);
    EXPECT_LE(parameter.sizes.size(), kMaxDims);
    for (const std::uint32_t size : parameter.sizes) EXPECT_LE(size, kMaxSize);
    EXPECT_LE(element_count(parameter), kMaxElements);
    EXPECT_LE(parameter.shared_with, i);
    EXPECT_LT(parameter.device, kMaxDevices);
    Parameter owner = program.parameters[owner_of(program, i)];
    EXPECT_EQ(owner.shared_with, 0U);
    owner.shared_with = parameter.shared_with;
    EXPECT_TRUE(equal(owner, parameter));
  }
  EXPECT_LE(program.steps.size(), kMaxSteps);
  for (const Step& step : program.steps) {
    EXPECT_GE(step.variants.size(), 1U);
    EXPECT_LE(step.variants.size(), program.world);
    std::size_t keeping = 0;
    for (const RankPass& pass : step.variants) {
      EXPECT_TRUE(!pass.absent || step.kind == PassKind::kSynced);
      check_pass(pass, kind_of(step, pass));
      keeping += keeps_a_forward(pass) || pass.absent ? 1 : 0;
    }
    if (step.kind == PassKind::kSynced) {
      EXPECT_TRUE(keeping == 0 || keeping == step.variants.size());
    }
  }
}

TEST(Program, NormalizingMakesAnythingLegalAndDoesNothingTheSecondTime) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Program program = any_program(seed);
    normalize(program);
    check_program(program);
    Program again = program;
    normalize(again);
    ASSERT_TRUE(equal(again, program)) << seed;
  }
}

TEST(Program, NormalizingAnEmptyProgramGivesTheSimplestOne) {
  Program program;
  program.world = 0;
  program.steps.resize(1);
  normalize(program);
  EXPECT_EQ(program.world, 1U);
  ASSERT_EQ(program.parameters.size(), 1U);
  EXPECT_EQ(element_count(program.parameters[0]), 1U);
  ASSERT_EQ(program.steps[0].variants.size(), 1U);
  ASSERT_EQ(program.steps[0].variants[0].forwards.size(), 1U);
  EXPECT_EQ(program.steps[0].variants[0].forwards[0].nodes.size(), 1U);
  EXPECT_EQ(program.steps[0].variants[0].forwards[0].outputs.size(), 1U);
}

TEST(Program, TheFirstStepsKeepNoSecondJoinAndNoNewReducersThatComeLater) {
  Program program;
  program.steps.resize(5);
  program.options.join = Join::kByAll;
  program.rejoin_step = 3;
  normalize(program);
  Program first = program;
  keep_first_steps(first, 4);
  EXPECT_EQ(first.steps.size(), 4U);
  EXPECT_EQ(first.rejoin_step, 3U);
  keep_first_steps(first, 3);
  EXPECT_EQ(first.rejoin_step, 0U);
  program.options.join = Join::kNone;
  program.recreate_before_step = 3;
  program.bad_number = {BadNumber::Kind::kNaN, 0, 3, 0, 1};
  first = program;
  keep_first_steps(first, 4);
  EXPECT_EQ(first.recreate_before_step, 3U);
  EXPECT_EQ(first.bad_number.step, 3U);
  keep_first_steps(first, 3);
  EXPECT_EQ(first.recreate_before_step, 0U);
  EXPECT_EQ(first.bad_number.kind, BadNumber::Kind::kNone);
}

TEST(Program, NormalizingLeavesIndicesKeysAndLegalSizesAlone) {
  Program program;
  program.parameters.resize(1);
  program.parameters[0].sizes = {16, 4096, 0, 9};  // without elements, whatever the others are
  program.steps.resize(1);
  program.steps[0].variants.resize(2);
  for (RankPass& pass : program.steps[0].variants) {
    pass.forwards.resize(1);
    pass.forwards[0].nodes.resize(3);
    pass.forwards[0].nodes[2].parameter = 4'000'000'000;
    pass.forwards[0].nodes[2].inputs = {{4'000'000'000, 7}};
    pass.forwards[0].outputs = {{4'000'000'000, 5}};
    pass.backwards.resize(1);
    pass.backwards[0].roots = {4'000'000'000, 3};
  }
  Program before = program;
  normalize(program);
  EXPECT_TRUE(equal(program, before));
}

TEST(Program, SizesShrinkUntilTheElementsFit) {
  Program program;
  program.parameters.resize(2);
  program.parameters[0].sizes = {4096, 4096, 3};
  program.parameters[1].sizes = {9999, 5, 7, 2, 8};
  normalize(program);
  EXPECT_EQ(program.parameters[0].sizes, (std::vector<std::uint32_t>{4096, 16, 1}));
  EXPECT_EQ(program.parameters[1].sizes, (std::vector<std::uint32_t>{4096, 5, 3, 1}));
}

TEST(Program, ASharedEntryTakesOverItsOwnersFieldsThroughChains) {
  Program program;
  program.parameters.resize(4);
  program.parameters[0].shared_with = 1;  // there is none before
  program.parameters[1].key = 8;
  program.parameters[1].dtype = DType::kFloat16;
  program.parameters[1].sizes = {3};
  program.parameters[1].frozen = true;
  program.parameters[2].shared_with = 1;
  program.parameters[2].sizes = {5};
  program.parameters[3].shared_with = 1;
  normalize(program);
  EXPECT_EQ(program.parameters[0].shared_with, 0U);
  EXPECT_EQ(owner_of(program, 0), 0U);
  EXPECT_EQ(owner_of(program, 2), 1U);
  EXPECT_EQ(owner_of(program, 3), 1U);
  EXPECT_EQ(program.parameters[3].key, 8U);
  EXPECT_EQ(program.parameters[3].dtype, DType::kFloat16);
  EXPECT_EQ(program.parameters[3].sizes, std::vector<std::uint32_t>{3});
  EXPECT_TRUE(program.parameters[3].frozen);
}

TEST(Program, SyncedStepsKeepAForwardOnAllRanksOrOnNone) {
  for (const bool one_is_kept : {false, true}) {
    for (const PassKind kind : {PassKind::kSynced, PassKind::kNoSync}) {
      Program program;
      program.steps.resize(1);
      program.steps[0].kind = kind;
      program.steps[0].variants.resize(2);
      for (RankPass& pass : program.steps[0].variants) {
        pass.forwards.resize(2);
        pass.forwards[0].discard = pass.forwards[1].discard = true;
      }
      program.steps[0].variants[1].forwards[0].discard = !one_is_kept;
      normalize(program);
      const std::vector<Forward>& first = program.steps[0].variants[0].forwards;
      EXPECT_TRUE(first[0].discard);
      EXPECT_EQ(first[1].discard, !one_is_kept || kind != PassKind::kSynced);
      EXPECT_TRUE(program.steps[0].variants[1].forwards[1].discard);
    }
  }
}

// Returns which variants of a step of these ranks are absent, if all are marked that `marked` says.
std::vector<bool> absent_of(std::uint32_t world, const std::vector<bool>& marked,
                            const std::function<void(Program&)>& change = {}) {
  Program program;
  program.world = world;
  program.steps.resize(1);
  program.steps[0].variants.resize(marked.size());
  for (std::size_t v = 0; v < marked.size(); ++v) program.steps[0].variants[v].absent = marked[v];
  if (change) change(program);
  normalize(program);
  std::vector<bool> absent;
  for (const RankPass& pass : program.steps[0].variants) absent.push_back(pass.absent);
  return absent;
}

TEST(Program, OneRankThatHasPeersMayBeAbsent) {
  using Marks = std::vector<bool>;
  EXPECT_EQ(absent_of(2, {false, true}), (Marks{false, true}));
  EXPECT_EQ(absent_of(3, {true, true, false}), (Marks{true, false, false}));
  EXPECT_EQ(absent_of(3, {true, false}), (Marks{false, false}));  // ranks 0 and 2 are alike
  EXPECT_EQ(absent_of(3, {false, true}), (Marks{false, true}));
  EXPECT_EQ(absent_of(2, {true}), (Marks{false}));
  const auto two_groups = [](Program& program) { program.options.two_groups = true; };
  EXPECT_EQ(absent_of(2, {false, true}, two_groups), (Marks{false, false}));
  EXPECT_EQ(absent_of(3, {true, false, false}, two_groups), (Marks{true, false, false}));
  for (const PassKind kind : {PassKind::kNoSync, PassKind::kNoGrad})
    EXPECT_EQ(absent_of(2, {false, true}, [&](Program& p) { p.steps[0].kind = kind; }),
              (Marks{false, false}));
  EXPECT_EQ(absent_of(2, {false, true}, [](Program& p) { p.options.join = Join::kByAll; }),
            (Marks{false, false}));
  const auto drop = [](Program& program) {
    for (RankPass& pass : program.steps[0].variants)
      pass.forwards.resize(1), pass.forwards[0].discard = true;
  };
  EXPECT_EQ(absent_of(2, {false, true}, drop), (Marks{false, false}));  // nobody waits for it
}

TEST(Program, ARankThatTrainsStartsACallFromASyncedForward) {
  Program program;
  program.steps.resize(1);
  program.steps[0].variants.resize(1);
  RankPass& pass = program.steps[0].variants[0];
  pass.forwards.resize(3);
  pass.forwards[0].local = true;
  pass.forwards[1].local = true;
  pass.backwards.resize(3);
  pass.backwards[0].forwards = 1;  // of all outputs by then
  pass.backwards[1] = {{5}, 2};    // of output 1
  pass.backwards[2] = {{2}, 0};
  normalize(program);
  EXPECT_TRUE(pass.forwards[0].local && pass.forwards[1].local);
  EXPECT_EQ(pass.backwards[0].forwards, 1U);
  EXPECT_EQ(pass.backwards[0].roots, std::vector<std::uint32_t>{0});
  EXPECT_EQ(pass.backwards[1].forwards, 2U);
  EXPECT_EQ(pass.backwards[1].roots, std::vector<std::uint32_t>{1});
  pass.forwards[1].local = false;  // no forward comes after a call of the pass
  normalize(program);
  EXPECT_EQ(pass.backwards[0].forwards, 1U);
  EXPECT_EQ(pass.backwards[1].forwards, 0U);
  pass.backwards.resize(1);  // it would be the last call, of a local forward alone
  pass.backwards[0].roots = {0};
  normalize(program);
  EXPECT_FALSE(pass.forwards[0].local);
  EXPECT_EQ(pass.backwards[0].forwards, 0U);
}

TEST(Program, EqualOutputsOfAForwardCountOnce) {
  Program program;
  program.steps.resize(1);
  program.steps[0].variants.resize(1);
  program.steps[0].variants[0].forwards.resize(1);
  Forward& forward = program.steps[0].variants[0].forwards[0];
  forward.nodes.resize(2);
  forward.nodes[1].kind = Node::Kind::kSplit;
  forward.outputs = {{0, 0}, {2, 1}, {1, 0}, {4, 2}, {3, 9}};
  normalize(program);
  EXPECT_TRUE(equal(forward.outputs, {{0, 0}, {2, 1}, {1, 0}}));
}

TEST(Program, PermutedDimensionsLieInMemoryInTheOrderOfTheirNumber) {
  Parameter parameter;
  parameter.sizes = {2, 3, 4};
  std::set<std::vector<std::uint32_t>> orders;
  for (parameter.permuted = 0; parameter.permuted < 6; ++parameter.permuted) {
    const std::vector<std::uint32_t> order = dimensions_in_memory(parameter);
    EXPECT_TRUE(orders.insert(order).second);
    std::set<std::uint64_t> places;
    for (std::uint64_t e = 0; e < 24; ++e) places.insert(row_major_to_memory(parameter, e));
    EXPECT_EQ(places.size(), 24U);
    EXPECT_EQ(*places.rbegin(), 23U);
  }
  parameter.permuted = 3;
  EXPECT_EQ(dimensions_in_memory(parameter), (std::vector<std::uint32_t>{1, 2, 0}));
  for (std::uint64_t i = 0; i < 2; ++i)
    for (std::uint64_t j = 0; j < 3; ++j)
      for (std::uint64_t k = 0; k < 4; ++k)
        EXPECT_EQ(row_major_to_memory(parameter, i * 12 + j * 4 + k), j * 8 + k * 2 + i);
  parameter.permuted = 5;
  Parameter columns = parameter;
  columns.permuted = 0;
  columns.column_major = true;
  for (std::uint64_t e = 0; e < 24; ++e)
    EXPECT_EQ(row_major_to_memory(parameter, e), row_major_to_memory(columns, e));
}

TEST(Program, AnOrderOfDimensionsIsLimitedToThoseThatExist) {
  Program program;
  program.parameters.resize(4);
  program.parameters[0].sizes = {2, 3, 4};
  program.parameters[1].sizes = {5};
  program.parameters[2].sizes = {2, 3, 4};
  program.parameters[2].column_major = true;
  program.parameters[3].sizes = {2, 3, 4};
  program.parameters[3].sparse = true;
  for (Parameter& parameter : program.parameters) parameter.permuted = 7;
  program.headroom = 5;
  normalize(program);
  EXPECT_EQ(program.parameters[0].permuted, 1U);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(program.parameters[i].permuted, 0U);
  EXPECT_EQ(program.headroom, 0U);  // only Values::kLargest has headroom
}

TEST(Program, ColumnMajorMemoryRunsAlongTheFirstDimension) {
  Parameter parameter;
  parameter.sizes = {2, 3};
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(row_major_to_memory(parameter, i), i);
  parameter.column_major = true;
  const std::uint64_t expected[] = {0, 2, 4, 1, 3, 5};
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(row_major_to_memory(parameter, i), expected[i]);

  parameter.sizes = {2, 3, 4};
  for (std::uint64_t i = 0; i < 2; ++i) {
    for (std::uint64_t j = 0; j < 3; ++j) {
      for (std::uint64_t k = 0; k < 4; ++k) {
        EXPECT_EQ(row_major_to_memory(parameter, i * 12 + j * 4 + k), i + j * 2 + k * 6);
      }
    }
  }
  parameter.sizes.clear();
  EXPECT_EQ(row_major_to_memory(parameter, 0), 0U);
}

}  // namespace
}  // namespace lockstep::reference
