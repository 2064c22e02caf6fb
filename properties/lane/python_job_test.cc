#include "properties/lane/python_job.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reference/model.h"

namespace lockstep::properties {
namespace {

using nlohmann::json;

// Two ranks; p1 is p0 again; two steps, of which the second is under no_sync.
Case small_case() {
  Case c;
  c.program.parameters.resize(2);
  c.program.parameters[0].sizes = {2};
  c.program.parameters[1].shared_with = 1;
  c.program.steps.resize(2);
  c.program.steps[1].kind = reference::PassKind::kNoSync;
  normalize(c);
  return c;
}

json job_of(const Case& c, std::uint32_t rank) {
  RankRequest request;
  request.rank = rank;
  request.directory = "folder";
  const Expected expectation(reference::run(c.program, reference::Contract::lockstep()));
  return json::parse(python_job(c, expectation, request, "group"));
}

json report_of(std::size_t steps, const json& gradients) {
  json out = {
      {"construction", nullptr}, {"recovery", nullptr}, {"finished", true}, {"waited_s", 2.5}};
  for (std::size_t s = 0; s < steps; ++s)
    out["steps"].push_back({{"step", s},
                            {"begin_us", 1},
                            {"end_us", 2},
                            {"error", nullptr},
                            {"failed_call", -1},
                            {"gradients", gradients}});
  return out;
}

TEST(PythonJob, HasTheProgramOfTheRankWithItsConstants) {
  const Case c = small_case();
  const json one = job_of(c, 0);
  const json other = job_of(c, 1);
  EXPECT_EQ(one.at("world"), 2);
  EXPECT_EQ(one.at("parameters")[0].at("shape"), json({2}));
  EXPECT_EQ(one.at("parameters")[1].at("same_as"), "p0");
  EXPECT_EQ(one.at("steps")[0].at("kind"), "synced");
  EXPECT_EQ(one.at("steps")[1].at("kind"), "no_sync");
  EXPECT_EQ(one.at("steps")[0].at("forwards")[0].at("nodes")[0],
            json({"use", json::array(), "p0", "c0"}));
  const auto usual =
      R"([["zero_grad", -1, "to none"], ["forward", -1, 0, "synced"], ["backward", 0, [0]]])";
  EXPECT_EQ(one.at("steps")[0].at("calls"), json::parse(usual));
  const json& constant = one.at("steps")[0].at("constants").at("c0");
  EXPECT_EQ(constant.size(), 2u);
  EXPECT_NE(constant, other.at("steps")[0].at("constants").at("c0"));
  EXPECT_EQ(one.at("plan"),
            json({{"recovers_after", json::array()}, {"end", 2}, {"all_ended", true}}));
}

// A forward under no_sync in a synced step, and what a rank does before its last backward.
TEST(PythonJob, HasTheCallsInTheirOrder) {
  Case c = small_case();
  reference::RankPass& pass = c.program.steps[0].variants[0];
  pass.forwards.push_back(pass.forwards[0]);
  pass.forwards[0].local = true;
  pass.backwards.resize(2);
  pass.backwards[0].forwards = 1;
  reference::Backward& last = pass.backwards[1];
  last.roots = {1};
  last.evaluates = last.zeroes = last.updates = last.drops = true;
  normalize(c);
  EXPECT_EQ(job_of(c, 0).at("steps")[0].at("calls"), json::parse(R"([
    ["forward", -1, 0, "no_sync"], ["backward", 0, [0]], ["forward", -1, 1, "synced"],
    ["forward", 1, 0, "no_grad"], ["zero_grad", 1, "to none"], ["optimizer_step", 1],
    ["drop", 1, [0]], ["backward", 1, [1]]])"));
}

TEST(PythonJob, SaysAfterWhichStepsAllRanksRecover) {
  Case c = small_case();
  c.program.parameters[1].shared_with = 0;  // p1 is used by nobody: the first pass is incomplete
  normalize(c);
  EXPECT_EQ(job_of(c, 0).at("plan").at("recovers_after"), json::array({0}));
}

TEST(PythonJob, SaysWhetherAllCollectivesHaveEndedWhenTheProgramHas) {
  const Case c = small_case();
  RankRequest request;
  request.directory = "folder";
  Expected expectation(reference::run(c.program, reference::Contract::lockstep()));
  const auto all_ended = [&] {
    return json::parse(python_job(c, expectation, request, "group")).at("plan").at("all_ended");
  };
  expectation.knowledge = {{.leaves_pass_unfinished = true}};
  EXPECT_EQ(all_ended(), json(false));
  expectation.steps[1].any_error = true;  // The ranks go on in a new group.
  EXPECT_EQ(all_ended(), json(true));
}

TEST(PythonJob, AReportIsReadWithItsBits) {
  const Case c = small_case();
  RankObservation seen;
  // torch's integers are signed.
  const json gradients = {{-1, 1077936128}, nullptr};
  ASSERT_TRUE(read_python_report(report_of(2, gradients).dump(), c.program, seen));
  ASSERT_EQ(seen.steps.size(), 2u);
  EXPECT_TRUE(seen.finished);
  EXPECT_EQ(seen.waited_s, 2.5);  // a rank that was late is run again (rerun.h)
  EXPECT_TRUE(seen.steps[1].gradients[0].defined);
  EXPECT_FALSE(seen.steps[1].gradients[1].defined);
  EXPECT_EQ(seen.bits[seen.steps[1].gradients[0].offset], 0xffffffffu);
  EXPECT_EQ(seen.bits[seen.steps[1].gradients[0].offset + 1], 0x40400000u);
}

TEST(PythonJob, WhatRaisedIsAnErrorOfItsCall) {
  const Case c = small_case();
  json report = report_of(1, json::array());
  report["steps"][0]["error"] = "ValueError: no";
  report["steps"][0]["failed_call"] = 0;
  RankObservation seen;
  ASSERT_TRUE(read_python_report(report.dump(), c.program, seen));
  EXPECT_EQ(seen.steps[0].status.failure().detail, "ValueError: no");
  EXPECT_EQ(seen.steps[0].failed_call, 0);
}

TEST(PythonJob, AReportOfAnotherProgramIsNone) {
  const Case c = small_case();
  const auto is_read = [&c](const std::string& text) {
    RankObservation seen;
    return read_python_report(text, c.program, seen);
  };
  EXPECT_TRUE(is_read(report_of(2, {{1, 2}, {1, 2}}).dump()));
  EXPECT_FALSE(is_read(report_of(3, {{1, 2}, {1, 2}}).dump()));  // one step too many
  EXPECT_FALSE(is_read(report_of(2, {{1, 2}}).dump()));          // a gradient is missing
  EXPECT_FALSE(is_read(report_of(2, {{1}, {1, 2}}).dump()));     // an element is missing
  EXPECT_FALSE(is_read("{}"));
  EXPECT_FALSE(is_read("no report"));
}

}  // namespace
}  // namespace lockstep::properties
