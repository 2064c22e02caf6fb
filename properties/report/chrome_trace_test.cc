// What a viewer needs of the trace of a run: names, slices that nest, arrows with two ends.
#include "properties/report/chrome_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "faults/sim/scheduler/test_leaks.h"
#include "properties/case/case_json.h"
#include "properties/generate/generate.h"
#include "properties/run/case_runner.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::json;
using Track = std::pair<std::uint32_t, std::uint32_t>;  // process and thread
using Slice = std::pair<std::uint64_t, std::uint64_t>;  // begin and end

// What is wrong with the trace; empty if nothing is.
std::string fault_of(const std::string& text) {
  const Json trace = Json::parse(text, nullptr, false);
  if (trace.is_discarded() || !trace.contains("traceEvents")) return "no trace";
  std::set<std::uint32_t> processes;
  std::set<Track> threads;
  std::map<Track, std::vector<Slice>> slices;
  std::map<std::int64_t, std::map<std::string, Json>> arrows;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event.at("ph");
    const Track track{event.at("pid"), event.at("tid")};
    if (phase == "M") {
      if (event.at("name") == "process_name") processes.insert(track.first);
      if (event.at("name") == "thread_name") threads.insert(track);
    } else if (phase == "X") {
      if (event.at("name").get<std::string>().empty()) return "a slice without a name";
      const std::uint64_t begin = event.at("ts");
      slices[track].push_back({begin, begin + event.at("dur").get<std::uint64_t>()});
    } else {
      if (!arrows[event.at("id")].emplace(phase, event).second) return "an arrow with two starts";
    }
  }
  for (const auto& [track, list] : slices) {
    if (!processes.contains(track.first)) return "a process without a name";
    if (!threads.contains(track)) return "a thread without a name";
    for (const Slice& a : list)
      for (const Slice& b : list)
        if (a.first < b.first && b.first < a.second && a.second < b.second)
          return "slices of one thread that overlap";
  }
  for (const auto& [id, ends] : arrows) {
    if (!ends.contains("s") || !ends.contains("f")) return "an arrow with one end";
    if (ends.at("s").at("ts") > ends.at("f").at("ts")) return "an arrow back in time";
    for (const auto& [phase, end] : ends) {
      const auto& here = slices[{end.at("pid"), end.at("tid")}];
      const std::uint64_t at = end.at("ts");
      if (std::none_of(here.begin(), here.end(),
                       [at](const Slice& s) { return s.first <= at && at <= s.second; }))
        return "an arrow that hangs in the air";
    }
  }
  return {};
}

Outcome outcome_with(std::vector<TraceEvent> events) {
  Outcome outcome;
  outcome.events = std::move(events);
  return outcome;
}

TEST(ChromeTrace, CollectivesThatOverlapLieOnDifferentThreads) {
  const Outcome outcome = outcome_with({{0, 0, "step 0", 0, 100, kNone, 0},
                                        {0, 0, "all_reduce bucket 0", 10, 50, 0, 0},
                                        {0, 0, "all_reduce bucket 1", 20, 70, 1, 0},
                                        {0, 0, "all_reduce bucket 2", 50, 60, 2, 0},
                                        {1, 0, "step 0", 5, 90, kNone, 0},
                                        {1, 0, "all_reduce bucket 0", 8, 50, 0, 0}});
  const std::string text = chrome_trace(outcome);
  EXPECT_EQ(fault_of(text), "");
  const Json trace = Json::parse(text);
  std::map<std::string, int> phases;
  std::set<std::uint32_t> threads;
  for (const Json& event : trace["traceEvents"]) {
    ++phases[event.at("ph")];
    if (event.at("ph") == "X" && event.at("pid") == 0)
      threads.insert(event.at("tid").get<std::uint32_t>());
  }
  EXPECT_EQ(phases["X"], 6);
  EXPECT_EQ(phases["s"], 1);  // from rank 1, which was first, to rank 0
  EXPECT_EQ(threads, (std::set<std::uint32_t>{0, 1, 2}));
}

TEST(ChromeTrace, TheSameNumberInAnotherGroupIsAnotherCollective) {
  const Outcome outcome = outcome_with(
      {{0, 0, "all_reduce bucket 0", 1, 2, 0, 0}, {1, 1, "all_reduce bucket 0", 8, 9, 0, 1}});
  EXPECT_EQ(chrome_trace(outcome).find("\"s\""), std::string::npos);
}

// In a run without latency no virtual time passes: then events have the times of a clock that
// counts them, and hooks lie before the collectives that they launch.
TEST(ChromeTrace, ARunThatTakesNoTimeIsDrawnInTheOrderOfItsEvents) {
  const std::string step = R"({"variants": [{"forwards": [
      {"nodes": [{}, {"parameter": 1}], "outputs": [{}, {"back": 1}]}]}]})";
  const Result<Case> c = from_json(
      R"({"schema": 3, "program": {"world": 2, "parameters": [{}, {}],
          "options": {"first_bucket_bytes": 1, "bucket_bytes": 1}, "steps": [)" +
          step + ", " + step + "]}}",
      "two steps");
  ASSERT_TRUE(c) << c.error().to_string();
  CaseRunner runner(LaneKind::kSim, Subject());
  const Verdict verdict = runner.run(*c);
  ASSERT_TRUE(verdict.ok()) << verdict.message;
  const std::string text = chrome_trace(outcome_of(verdict, runner.observation(), true));
  EXPECT_EQ(fault_of(text), "");
  const Json trace = Json::parse(text);
  std::map<std::string, int> kinds;
  std::set<std::uint64_t> times;
  for (const Json& event : trace["traceEvents"]) {
    if (event.at("ph") != "X") continue;
    ++kinds[event.at("cat")];
    times.insert(event.at("ts").get<std::uint64_t>());
    EXPECT_GT(event.at("dur").get<std::uint64_t>(), 0u) << event;
  }
  EXPECT_EQ(kinds["step"], 4);
  EXPECT_GE(kinds["hook"], 4);
  EXPECT_GE(kinds["collective"], 4);
  EXPECT_GE(times.size(), 8u);
  EXPECT_NE(text.find("times count events"), std::string::npos);
}

// The check itself can fail.
TEST(ChromeTrace, FaultsOfATraceAreSeen) {
  const std::string names = R"({"traceEvents": [{"ph":"M","name":"process_name","pid":0,"tid":0},)"
                            R"({"ph":"M","name":"thread_name","pid":0,"tid":0})";
  const std::string slice = R"(,{"ph":"X","name":"a","pid":0,"tid":0,"ts":0,"dur":10})";
  EXPECT_EQ(fault_of(names + slice + "]}"), "");
  EXPECT_EQ(fault_of("{"), "no trace");
  EXPECT_EQ(fault_of(names + slice + R"(,{"ph":"X","name":"b","pid":0,"tid":0,"ts":5,"dur":9}]})"),
            "slices of one thread that overlap");
  EXPECT_EQ(fault_of(names + R"(,{"ph":"X","name":"a","pid":1,"tid":0,"ts":0,"dur":1}]})"),
            "a process without a name");
  EXPECT_EQ(fault_of(names + slice + R"(,{"ph":"s","id":1,"pid":0,"tid":0,"ts":1}]})"),
            "an arrow with one end");
}

// Also of runs that fail, stand still, or recover.
TEST(ChromeTrace, TracesOfGeneratedCasesHaveNoFault) {
  const simulation::MayLeak deadlocks;
  for (const char* name : {"reducer", "seeded:R15", "seeded:R12"}) {
    const Result<Subject> subject = parse_subject(name);
    ASSERT_TRUE(subject.has_value());
    CaseRunner runner(LaneKind::kSim, *subject);
    runner.set_detailed(true);
    for (std::uint64_t i = 0; i < 200; ++i) {
      const Verdict verdict = runner.run(generate(21, i));
      const Outcome outcome = outcome_of(verdict, runner.observation(), true);
      ASSERT_EQ(fault_of(chrome_trace(outcome)), "") << name << ", case " << i;
    }
  }
  (void)parse_subject("seeded:R12");
}

}  // namespace
}  // namespace lockstep::properties
