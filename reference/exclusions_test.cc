#include "reference/exclusions.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "reference/test_any_program.h"

namespace lockstep::reference {
namespace {

using testing::any;
using testing::number;

// Any program at all, most of whose options are within their limits, so that rows hold already.
Program any_program(std::uint64_t seed) {
  Program program = testing::any_program(seed);
  testing::Random random(seed);
  Replicated& options = program.options;
  options.transport = static_cast<Transport>(number(random, 3));
  options.order = static_cast<Order>(number(random, 3));
  options.hook = static_cast<Hook>(number(random, 6));
  options.hook_backward = static_cast<HookBackward>(number(random, 4));
  options.launch = static_cast<Launch>(number(random, 2));
  options.join = static_cast<Join>(number(random, 3));
  options.early_termination = number(random, 2) == 0;
  options.repeated_hooks = number(random, 2) == 0;
  options.group_each = number(random, 2) == 0;
  options.two_groups = number(random, 2) == 0;
  options.last_bucket_bytes = any(random);
  program.rejoin_step = any(random);
  program.recreate_before_step = any(random);
  program.buffers.resize(1);
  program.buffers[0].device = any(random);
  for (Parameter& each : program.parameters)
    each.reducer = number(random, 4) == 0 ? any(random) : 0;
  return program;
}

// Calls visit(record) for every record of the program that a row may be about.
template <typename Visit>
void visit_records(const Program& program, const Visit& visit) {
  visit(static_cast<const Job&>(program));
  visit(program.options);
  for (const Parameter& each : program.parameters) visit(each);
  for (const Buffer& each : program.buffers) visit(each);
  for (const Step& step : program.steps)
    for (const RankPass& pass : step.variants) {
      visit(pass);
      for (const Forward& each : pass.forwards) visit(each);
      for (const Backward& each : pass.backwards) visit(each);
    }
}

// Returns the numbers of the fields in the table that have an excluded value in the program.
std::set<int> excluded_values(const Program& program) {
  std::set<int> found;
  visit_records(program, [&](const auto& record) {
    static const std::remove_cvref_t<decltype(record)> simplest{};
    int number = 0;
    for_each_excluded(kExclusions, [&](const auto& row, const auto& field) {
      ++number;
      if (!row.holds(program)) return;
      if constexpr (requires { record.*field; }) {
        if (record.*field != simplest.*field) found.insert(number);
      } else if constexpr (requires { record.*field.field; }) {
        if (record.*field.field == field.value) found.insert(number);
      }
    });
  });
  return found;
}

int size_of_table() {
  int count = 0;
  for_each_excluded(kExclusions, [&](const auto&, const auto&) { ++count; });
  return count;
}

// Every field of every row acts on some program, and on no normalized one.
TEST(Exclusions, NormalizedProgramsHaveNoExcludedValue) {
  std::set<int> before;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Program program = any_program(seed);
    before.merge(excluded_values(program));
    normalize(program);
    ASSERT_EQ(excluded_values(program), std::set<int>{}) << seed;
  }
  EXPECT_EQ(static_cast<int>(before.size()), size_of_table());
}

TEST(Exclusions, WhatNothingExcludesStays) {
  Program program;
  program.parameters.resize(2);
  program.parameters[1].device = program.parameters[1].reducer = 1;
  program.values = Values::kLargest;
  program.headroom = 2;
  program.options.order = Order::kRankOrder;
  program.options.verify = true;
  program.options.hook = Hook::kPowerSgd;
  program.options.power_sgd_rank = 2;
  program.options.launch = Launch::kAfterBackward;
  program.options.own_group = program.options.group_each = program.options.two_groups = true;
  normalize(program);
  EXPECT_EQ(program.parameters[1].device, 1u);
  EXPECT_EQ(program.parameters[1].reducer, 1u);
  EXPECT_EQ(program.headroom, 2u);
  EXPECT_TRUE(program.options.verify);
  EXPECT_EQ(program.options.hook, Hook::kPowerSgd);
  EXPECT_EQ(program.options.power_sgd_rank, 2u);
  EXPECT_TRUE(program.options.own_group && program.options.group_each &&
              program.options.two_groups);
}

// A row may look at a field that a row before it has changed.
TEST(Exclusions, OneExclusionLeadsToAnother) {
  Program program;
  program.parameters.resize(2);
  program.parameters[1].reducer = 1;
  program.options.transport = Transport::kNccl;
  program.options.hook = Hook::kPowerSgd;
  program.options.power_sgd_rank = 2;
  program.options.join = Join::kByAll;
  program.options.group_each = true;
  normalize(program);
  EXPECT_EQ(program.options.hook, Hook::kAllReduce);
  EXPECT_EQ(program.options.power_sgd_rank, 1u);
  EXPECT_EQ(program.parameters[1].reducer, 0u);
  EXPECT_FALSE(program.options.group_each);
}

TEST(Exclusions, AFieldIsExcludedIfItHasOneValueLeft) {
  Program program;
  EXPECT_FALSE(is_excluded(&Forward::local, program));
  EXPECT_TRUE(is_excluded(&Replicated::verify, program));
  program.options.manual_sync = true;
  EXPECT_TRUE(is_excluded(&Forward::local, program));
  program.options.transport = Transport::kNccl;  // that excludes one order, and leaves two
  EXPECT_FALSE(is_excluded(&Replicated::order, program));
}

}  // namespace
}  // namespace lockstep::reference
