// Tests of a reducer in your own GoogleTest program:
//
//   #include <lockstep/gtest.h>
//
//   class MyReducer { ... };                // <lockstep/subject.hpp> says what it has to have
//   LOCKSTEP_TEST(MyReducer, sim, gloo)     // the tests MyReducer.sim and MyReducer.gloo
//
//   find_package(lockstep REQUIRED COMPONENTS gtest)
//   target_link_libraries(my_test PRIVATE lockstep::gtest GTest::gtest_main)
//
// Each test runs 200 generated training programs on the reducer, the same ones in every run, and
// compares each gradient of each rank with Lockstep's model. In the lane sim all ranks, their
// schedule and faults are simulated; in the lane gloo ranks are threads over real TCP. The first
// failing case is made small, and printed with a file and as code to paste beside the test:
//
//   LOCKSTEP_CASE(MyReducer, sim, LosesAGradient, R"case({"schema": 2, ...})case")
//
// LOCKSTEP_TEST_VALUES(MyReducer, sim) is for a reducer that adds in another order, divides
// elsewhere, or has buckets of its own: its values alone are judged (`lockstep fuzz --values
// exact`).
//
// The environment changes a run: LOCKSTEP_CASES=5000, LOCKSTEP_SEED=7, LOCKSTEP_OUT=FOLDER for the
// files of failing cases (lockstep-out), LOCKSTEP_CASE=FILE to run that case alone, and with
// LOCKSTEP_IN_PROCESS=1 in the test's own process, for a debugger.
//
// Threads: GoogleTest's main thread, in a program that has no others while the tests run, since
// each case runs in a process that is forked. A reducer that throws, crashes, exits or hangs fails
// its test, with the reason, and harms no other.
#pragma once

#include <gtest/gtest.h>
#include <lockstep/reducer_test.h>

#include <lockstep/subject.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::gtest_detail {

// What a test runs. The names and the case are literals of the macros.
struct ReducerRun {
  const char* reducer = "";
  const lockstep_subject* subject = nullptr;
  bool has_exact_values = false;
  const char* one_case = nullptr;
};

class Fixture : public testing::Test {
 public:
  Fixture(ReducerRun run, std::string lane) : run_(run), lane_(std::move(lane)) {}

  void TestBody() override {
    lockstep_reducer_test test = {};
    test.size = sizeof test;
    test.reducer = run_.reducer;
    test.subject = run_.subject;
    test.lane = lane_.c_str();
    test.exact_values = run_.has_exact_values ? 1 : 0;
    test.one_case = run_.one_case;
    char* report = nullptr;
    const int code = lockstep_run_reducer_test(&test, &report);
    const std::string text = report != nullptr ? report : "";
    lockstep_free_report(report);
    RecordProperty("lockstep_exit_code", code);
    if (code != 0) ADD_FAILURE() << text;
  }

 private:
  const ReducerRun run_;
  const std::string lane_;
};

inline bool add_test(const ReducerRun& run, const std::string& lane, const std::string& test,
                     const char* file, int line) {
  testing::RegisterTest(run.reducer, test.c_str(), nullptr, nullptr, file, line,
                        [run, lane]() -> testing::Test* { return new Fixture(run, lane); });
  return true;
}

// `lanes` is what the macro was given: "sim, gloo".
inline bool add_tests(const ReducerRun& run, std::string_view lanes, const char* file, int line) {
  while (!lanes.empty()) {
    const std::size_t end = lanes.find(',');
    std::string lane(lanes.substr(0, end));
    lanes = end == std::string_view::npos ? std::string_view() : lanes.substr(end + 1);
    const std::size_t first = lane.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    lane = lane.substr(first, lane.find_last_not_of(' ') - first + 1);
    add_test(run, lane, run.has_exact_values ? lane + "_values" : lane, file, line);
  }
  return true;
}

}  // namespace lockstep::gtest_detail

#define LOCKSTEP_TEST(Reducer, ...) \
  LOCKSTEP_ADD_TESTS_(Reducer, lockstep_tests_of_##Reducer, false, #__VA_ARGS__)
#define LOCKSTEP_TEST_VALUES(Reducer, ...) \
  LOCKSTEP_ADD_TESTS_(Reducer, lockstep_values_of_##Reducer, true, #__VA_ARGS__)

#define LOCKSTEP_ADD_TESTS_(Reducer, variable, has_exact_values, lanes)                        \
  [[maybe_unused]] static const bool variable = ::lockstep::gtest_detail::add_tests(           \
      {#Reducer, ::lockstep::subject_of<Reducer>(#Reducer), has_exact_values, nullptr}, lanes, \
      __FILE__, __LINE__);

// Runs one case, as a failing test has printed it. Lane: sim or gloo. Name: an identifier.
#define LOCKSTEP_CASE(Reducer, lane, Name, json) \
  LOCKSTEP_ADD_CASE_(Reducer, lane, Name, false, json)
#define LOCKSTEP_CASE_VALUES(Reducer, lane, Name, json) \
  LOCKSTEP_ADD_CASE_(Reducer, lane, Name, true, json)

#define LOCKSTEP_ADD_CASE_(Reducer, lane, Name, has_exact_values, json)                         \
  [[maybe_unused]] static const bool lockstep_case_##Reducer##_##Name =                         \
      ::lockstep::gtest_detail::add_test(                                                       \
          {#Reducer, ::lockstep::subject_of<Reducer>(#Reducer), has_exact_values, json}, #lane, \
          #lane "_" #Name, __FILE__, __LINE__);
