#include "properties/case/environment.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "properties/case/case_json.h"
#include "properties/case/describe.h"
#include "properties/case/fields.h"
#include "properties/case/schema_1.h"

namespace lockstep::properties {
namespace {

using reference::Transport;

// Three ranks that train one step on this transport; with a fault, if asked.
Case three_ranks(Transport transport, bool has_fault) {
  Case value;
  value.program.world = 3;
  value.program.options.transport = transport;
  value.program.parameters.resize(1);
  value.program.steps.resize(1);
  if (has_fault) value.faults.faults.push_back({faults::Kind::kOperationError, 0, 0, 0, 0});
  normalize(value);
  return value;
}

// Every field has another value than its default.
Environment all_set() {
  Environment all;
  fields::for_each<Environment>([&](const auto& field) {
    field.get(all) = static_cast<std::remove_cvref_t<decltype(field.get(all))>>(1);
  });
  return all;
}

std::set<std::string> fields_set(Case value) {
  normalize(value);
  std::set<std::string> names;
  fields::for_each<Environment>([&](const auto& field) {
    if (fields::is_set(field, value.environment)) names.insert(field.name);
  });
  return names;
}

TEST(Environment, WhatMeansNothingInACaseIsItsDefault) {
  const std::set<std::string> everywhere = {
      "latency",         "latency_seed", "hook_seed",      "processes",          "times",
      "rosters",         "records",      "asks_diagnosis", "asks_after_failure", "reads_layouts",
      "uses_ended_group"};
  const std::set<std::string> of_join = {"unlike_join", "unlike_rank", "unlike_terminates",
                                         "unlike_divides_active"};
  const std::set<std::string> of_gloo = {"shares_memory"};
  const std::set<std::string> of_leaving = {"leaves_at_once"};
  const std::set<std::string> of_nccl = {
      "nccl", "shrinks", "keeps", "scales_down", "late_peer", "excludes_twice", "lacks_shrink"};
  const std::set<std::string> of_calls = {"shrink_fails_on", "revoke_fails_on",
                                          "revoke_fails_late"};
  bool leaves_at_once = false;
  const auto check = [&](Transport transport, bool has_fault,
                         const std::vector<std::set<std::string>>& parts) {
    std::set<std::string> expected = everywhere;
    for (const auto& part : parts) expected.insert(part.begin(), part.end());
    Case value = three_ranks(transport, has_fault);
    value.environment = all_set();
    value.environment.leaves_at_once = leaves_at_once;
    EXPECT_EQ(fields_set(value), expected);
  };
  check(Transport::kHost, false, {of_gloo, of_join});
  check(Transport::kHost, true, {of_gloo});
  check(Transport::kStaged, false, {of_gloo, of_join});
  leaves_at_once = true;
  check(Transport::kHost, false, {of_gloo, of_leaving});
  check(Transport::kHost, true, {of_gloo});
  check(Transport::kStaged, false, {of_gloo, of_leaving});
  check(Transport::kNccl, false, {of_nccl});
  check(Transport::kNccl, true, {of_nccl, of_calls});
}

TEST(Environment, DependentFieldsGoWithTheOnesThatTheyDependOn) {
  Case value = three_ranks(Transport::kNccl, true);
  value.environment.latency_seed = 5;
  value.environment.late_peer = true;
  value.environment.revoke_fails_late = true;
  EXPECT_TRUE(fields_set(value).empty());
}

TEST(Environment, NumbersAndEnumsAreBroughtWithinTheirLimits) {
  Case value = three_ranks(Transport::kNccl, true);
  value.environment.shrink_fails_on = 3;
  value.environment.revoke_fails_on = 5;
  value.environment.nccl = static_cast<Environment::NcclRelease>(200);
  value.environment.records = static_cast<Environment::Records>(77);
  normalize(value);
  EXPECT_EQ(value.environment.shrink_fails_on, 3u);
  EXPECT_EQ(value.environment.revoke_fails_on, 2u);
  EXPECT_EQ(value.environment.nccl, static_cast<Environment::NcclRelease>(200 % 4));
  EXPECT_EQ(value.environment.records, static_cast<Environment::Records>(77 % 4));
}

TEST(Environment, ADescriptionNamesWhatIsSetAndNothingElse) {
  Case value = three_ranks(Transport::kNccl, true);
  EXPECT_EQ(describe(value).find("environment"), std::string::npos);
  value.environment.nccl = Environment::NcclRelease::k2_23;
  value.environment.shrink_fails_on = 2;
  const std::string text = describe(value);
  EXPECT_NE(text.find("environment: NCCL 2.23; ncclCommShrink fails on rank 1\n"),
            std::string::npos)
      << text;
}

TEST(Environment, EveryFieldHasAPhraseAndAChangeOfItsOwn) {
  const Environment simplest;
  std::set<std::string> changes;
  int rows = 0;
  fields::for_each<Environment>([&](const auto& field) {
    ++rows;
    ASSERT_NE(field.row.change, nullptr) << field.name;
    EXPECT_TRUE(changes.insert(field.row.change).second) << field.name;
    EXPECT_GT(field.row.percent, 0) << field.name << " is never drawn";
    Case value = three_ranks(Transport::kNccl, true);
    value.environment = all_set();
    Case host = three_ranks(Transport::kHost, false);
    host.environment = all_set();
    Case staying = host;  // in which a last join may differ
    staying.environment.leaves_at_once = false;
    const std::string with = describe(value) + describe(host) + describe(staying);
    for (Case* each : {&value, &host, &staying}) field.get(each->environment) = field.get(simplest);
    EXPECT_NE(describe(value) + describe(host) + describe(staying), with) << field.name;
  });
  EXPECT_GE(rows, 20);
}

TEST(Environment, AnUnknownNameListsThoseThatExist) {
  const auto refused =
      from_json(R"({"schema": 2, "environment": {"latencys": "none"}})", "case.json");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().failure().detail,
            "case.json: environment.latencys: unknown field; did you mean \"latency\"?");
  const auto far = from_json(R"({"schema": 2, "environment": {"zzz": 1}})", "case.json");
  ASSERT_FALSE(far.has_value());
  fields::for_each<Environment>([&](const auto& field) {
    EXPECT_NE(far.error().failure().detail.find(field.name), std::string::npos) << field.name;
  });
  const auto value = from_json(R"({"schema": 2, "environment": {"nccl": "2.24"}})", "case.json");
  ASSERT_FALSE(value.has_value());
  EXPECT_NE(value.error().failure().detail.find("2.23"), std::string::npos);
}

Case read_schema_1(const Case& value, std::uint32_t key) {
  Case with_key = value;
  with_key.program.key = key;
  std::string text = to_json(with_key);
  text.replace(text.find("\"schema\": 4"), 11, "\"schema\": 1");
  if (const auto name = text.find("disagreement"); name != std::string::npos)
    text.replace(name, std::string("disagreement").size(), "misfit");
  const auto back = from_json(text, "old");
  EXPECT_TRUE(back.has_value());
  return *back;
}

// What key 0 chose, which every shrunk case has.
TEST(Schema1, AKeyOfZeroGivesWhatItAlwaysDid) {
  const Case value = read_schema_1(three_ranks(Transport::kHost, false), 0);
  EXPECT_EQ(fields_set(value), (std::set<std::string>{"processes", "times", "records"}));
  EXPECT_EQ(value.environment.records, Environment::Records::kOfAll);
  const Case over_nccl = read_schema_1(three_ranks(Transport::kNccl, true), 0);
  EXPECT_EQ(fields_set(over_nccl), (std::set<std::string>{"processes", "times", "records",
                                                          "shrink_fails_on", "revoke_fails_on"}));
  EXPECT_EQ(over_nccl.environment.shrink_fails_on, 1u);
  EXPECT_EQ(over_nccl.environment.revoke_fails_on, 1u);
}

TEST(Schema1, EveryChoiceComesFromItsOwnBits) {
  const Case host = three_ranks(Transport::kHost, false);
  const Case nccl = three_ranks(Transport::kNccl, true);
  const auto on_host = [&](std::uint32_t key) { return read_schema_1(host, key).environment; };
  const auto over_nccl = [&](std::uint32_t key) { return read_schema_1(nccl, key).environment; };
  EXPECT_EQ(on_host(7).latency, Environment::Latency::kShort);
  EXPECT_EQ(on_host(8).latency, Environment::Latency::kLong);
  EXPECT_EQ(on_host(8).latency_seed, 8u);
  EXPECT_EQ(on_host(9).hook_seed, 9u);
  EXPECT_FALSE(on_host(4).processes);
  EXPECT_TRUE(on_host(24).processes);
  EXPECT_EQ(on_host(24).records, Environment::Records::kWithTraces);
  EXPECT_EQ(on_host(4).records, Environment::Records::kOfFailures);
  EXPECT_EQ(on_host(5).records, Environment::Records::kNone);
  EXPECT_FALSE(on_host(1u << 5).times);
  EXPECT_TRUE(on_host(3u << 7).rosters);
  EXPECT_FALSE(on_host(1u << 7).rosters);
  EXPECT_TRUE(on_host(5).reads_layouts);
  EXPECT_FALSE(on_host(7).reads_layouts);
  EXPECT_TRUE(on_host(1u << 18).asks_diagnosis);
  EXPECT_FALSE(on_host(3u << 18).asks_diagnosis);
  EXPECT_TRUE(on_host(1u << 14).asks_after_failure);
  EXPECT_TRUE(on_host(1u << 23).uses_ended_group);
  const Environment join = on_host(1u << 11 | 2u << 14 | 1u << 22 | 1u << 24);
  EXPECT_EQ(join.unlike_join, Environment::UnlikeJoin::kTermination);
  EXPECT_EQ(join.unlike_rank, 2u | 1u << 8 | 1u << 10);
  EXPECT_TRUE(join.unlike_terminates);
  EXPECT_FALSE(join.unlike_divides_active);
  EXPECT_EQ(on_host(1u << 11).unlike_join, Environment::UnlikeJoin::kDivisor);
  EXPECT_EQ(over_nccl(11u << 16).nccl, Environment::NcclRelease::k2_23);
  EXPECT_EQ(over_nccl(12u << 16).nccl, Environment::NcclRelease::k2_27);
  EXPECT_EQ(over_nccl(13u << 16).nccl, Environment::NcclRelease::k2_32);
  EXPECT_EQ(over_nccl(15u << 16).nccl, Environment::NcclRelease::kDefault);
  EXPECT_EQ(over_nccl(5).shrink_fails_on, 3u);
  EXPECT_EQ(over_nccl(1u << 12).shrink_fails_on, 0u);
  EXPECT_EQ(over_nccl(1u << 22).revoke_fails_on, 2u);
  EXPECT_EQ(over_nccl(1u << 19).revoke_fails_on, 0u);
  EXPECT_TRUE(over_nccl(1u << 21).revoke_fails_late);
  EXPECT_TRUE(over_nccl(1u << 8).shrinks);
  EXPECT_EQ(over_nccl(1u << 9).keeps, Environment::Keeps::kEvenRanks);
  EXPECT_EQ(over_nccl(1u << 9 | 1u << 11).keeps, Environment::Keeps::kAllRanks);
  EXPECT_FALSE(over_nccl(1u << 10).late_peer);
  EXPECT_TRUE(over_nccl(1u << 10 | 1u << 23).late_peer);
  EXPECT_TRUE(over_nccl(1u << 24).excludes_twice);
  EXPECT_TRUE(over_nccl(1u << 25).lacks_shrink);
  EXPECT_FALSE(over_nccl(3u << 25).lacks_shrink);
}

TEST(Schema1, PowerSgdAndDisagreementsKeepTheirWays) {
  Case value = three_ranks(Transport::kHost, false);
  value.program.options.hook = reference::Hook::kPowerSgd;
  EXPECT_EQ(read_schema_1(value, 5).program.options.power_sgd_rank, 1u);
  EXPECT_EQ(read_schema_1(value, 4).program.options.power_sgd_rank, 2u);
  value.program.disagreement = {reference::disagreement_named("null_buffer"), 1, false, 2};
  EXPECT_EQ(read_schema_1(value, 61u << 4).program.disagreement.variant, 3u);
  EXPECT_EQ(read_schema_1(value, 61u << 4).program.disagreement.pick, 2u);
}

TEST(Schema1, FieldsThatItDoesNotHaveAreRefused) {
  const auto refusal = [](const char* text) {
    const auto read = from_json(text, "old.json");
    EXPECT_FALSE(read.has_value());
    return read.has_value() ? std::string() : read.error().failure().detail;
  };
  EXPECT_EQ(refusal(R"({"schema": 1, "environment": {"latency": "none"}})"),
            "old.json: environment: schema 1 has no such field; write \"schema\": 4, or leave it "
            "out");
  EXPECT_NE(refusal(R"({"schema": 1, "program": {"misfit": {"variant": 1}}})").find("variant"),
            std::string::npos);
}

// A case of schema 1 that is written and read again is the same case, in the new schema.
TEST(Schema1, AConvertedCaseStaysAsItIs) {
  for (std::uint32_t key = 0; key < 4000; key += 37) {
    const Case old = read_schema_1(three_ranks(Transport::kNccl, true), key << 15 | key);
    const auto again = from_json(to_json(old), "new");
    ASSERT_TRUE(again.has_value());
    ASSERT_TRUE(equal(*again, old)) << key;
  }
}

// The key hashes values, and nothing else: two cases that differ in it alone have one environment.
TEST(Schema2, TheKeyChoosesNothing) {
  for (const std::uint32_t key : {0u, 1u, 0xffffffffu}) {
    Case value = three_ranks(Transport::kNccl, true);
    value.program.key = key;
    const auto back = from_json(to_json(value), "new");
    ASSERT_TRUE(back.has_value());
    EXPECT_TRUE(fields_set(*back).empty()) << key;
  }
}

}  // namespace
}  // namespace lockstep::properties
