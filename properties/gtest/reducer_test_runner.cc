// The library behind <lockstep/gtest.h>: runs generated cases, or one case, on a reducer that is a
// part of this program, and puts what came of it into words.
#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "properties/case/case_json.h"
#include "properties/cli/earlier_failures.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/output.h"
#include "properties/cli/server.h"
#include "properties/gtest/lockstep/reducer_test.h"
#include "properties/process/shell_word.h"
#include "properties/report/failure_report.h"
#include "properties/subject/declared_sums.h"
#include "properties/subject/loader.h"

namespace lockstep::properties {
namespace {

constexpr std::uint64_t kUsualCases = 200;
constexpr std::uint64_t kUsualSeed = 1;

struct TestResult {
  int code = 0;
  std::string report;
};

std::string of_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<std::uint64_t> number_of(std::uint64_t given, const char* name, std::uint64_t usual) {
  const std::string text = of_environment(name);
  if (given != 0) return given;
  if (text.empty()) return usual;
  const bool is_number = text.size() < 20 && text.find_first_not_of("0123456789") == text.npos;
  if (is_number && std::stoull(text) > 0) return std::stoull(text);
  return failed(Status(Code::kInvalidArgument,
                       fmt::format("{}={}: give a whole number above 0", name, text)));
}

class ReducerTest {
 public:
  explicit ReducerTest(const lockstep_reducer_test& test) : test_(test) {}

  TestResult run() {
    if (Status status = find_subject(); !status.ok()) return {kUsage, status.failure().detail};
    const std::string file = of_environment("LOCKSTEP_CASE");
    if (!file.empty()) {
      const Result<Case> c = read_case(file);
      return c ? run_case(*c, file) : TestResult{kUsage, c.error().failure().detail};
    }
    if (test_.one_case == nullptr) return fuzz();
    const Result<Case> c = from_json(test_.one_case, test_.reducer);
    return c ? run_case(*c, "") : TestResult{kUsage, c.error().failure().detail};
  }

 private:
  Status find_subject() {
    const std::string lane = test_.lane;
    if (lane != "sim" && lane != "gloo")
      return {Code::kInvalidArgument,
              fmt::format("LOCKSTEP_TEST({0}, {1}): there is no lane '{1}' in a test: give sim, or "
                          "gloo, or both",
                          test_.reducer, lane)};
    lane_ = lane == "sim" ? LaneKind::kSim : LaneKind::kGloo;
    Result<LoadedSubject> loaded = check_subject(test_.subject, test_.reducer);
    if (!loaded) return loaded.error();
    subject_.kind = Subject::Kind::kHosted;
    subject_.id = test_.reducer;
    subject_.table = loaded->table;
    subject_.capabilities = loaded->capabilities;
    subject_.profile.sums = *declared_sums({}, loaded->scale);
    subject_.is_in_this_program = true;
    if (test_.exact_values != 0) hold_to_values_alone(subject_);
    return {};
  }

  TestResult fuzz() const {
    FuzzOptions options;
    options.subject = subject_;
    const auto cases = number_of(test_.cases, "LOCKSTEP_CASES", kUsualCases);
    if (!cases) return {kUsage, cases.error().failure().detail};
    const auto seed = number_of(test_.seed, "LOCKSTEP_SEED", kUsualSeed);
    if (!seed) return {kUsage, seed.error().failure().detail};
    options.cases = *cases;
    options.seed = *seed;
    options.is_quiet = options.is_fresh = true;
    if (const std::string out = of_environment("LOCKSTEP_OUT"); !out.empty()) options.out = out;
    // Over sockets many faults end the process of a rank, which here is the test's.
    if (lane_ == LaneKind::kGloo) options.generate.faults = GenerateOptions::Faults::kNone;
    const Result<RunReport> report = fuzz_lane(options, lane_);
    if (!report) return {kInconclusive, report.error().failure().detail};
    if (!report->failures.empty()) return told_of(report->failures.front());
    return {report->is_green() ? 0 : kInconclusive, whole_summary(*report)};
  }

  TestResult run_case(const Case& c, const std::string& file) const {
    const std::string lacks = missing_message(c, subject_.capabilities, subject_.id);
    if (!lacks.empty()) return {kUsage, lacks};
    const CaseServer::Request request{lane_ == LaneKind::kSim, false, true};
    FailureReport report;
    report.value = c;
    if (of_environment("LOCKSTEP_IN_PROCESS").empty()) {
      CaseServer server(lane_, subject_);
      report.outcome = server.run(c, request);
    } else {
      report.outcome = run_in_this_process(c, request, lane_, subject_);
    }
    const Verdict& verdict = report.outcome.verdict;
    if (verdict.ok()) return {};
    if (verdict.failing == Failing::kInconclusive) return {kInconclusive, verdict.message};
    report.lane = name_of(lane_);
    report.subject = subject_.id;
    report.commit = kCommit;
    report.case_file = file;
    return told_of(std::move(report));
  }

  // The failure block, with how to run the case again, and the code that keeps it.
  TestResult told_of(FailureReport report) const {
    report.replay = fmt::format("LOCKSTEP_CASE={} {} --gtest_filter={}.{}",
                                shell_word(report.case_file), program(), test_.reducer, test_.lane);
    const bool is_exact = test_.exact_values != 0;
    if (is_exact) report.replay += "_values";
    std::string text = failure_block(report);
    if (test_.one_case == nullptr) {
      text += "        and with LOCKSTEP_IN_PROCESS=1 in this process, for a debugger\n";
      text += fmt::format(
          "\nto keep the case, paste this beside the test:\n\n{}({}, {}, {}, R\"case({})case\")\n",
          is_exact ? "LOCKSTEP_CASE_VALUES" : "LOCKSTEP_CASE", test_.reducer, test_.lane,
          name_of_case(report), trimmed(to_json(report.value)));
    }
    return {static_cast<int>(report.outcome.verdict.failing), text};
  }

  static std::string trimmed(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }

  static std::string name_of_case(const FailureReport& report) {
    return fmt::format("Seed{}Case{}", report.seed, report.index);
  }

  static std::string program() {
    char path[4096];
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
    return length > 0 ? shell_word(std::string(path, static_cast<std::size_t>(length)))
                      : "the test";
  }

  const lockstep_reducer_test& test_;
  LaneKind lane_ = LaneKind::kSim;
  Subject subject_;
};

// Nothing leaves a C function by an exception.
TestResult run_test(const lockstep_reducer_test* test) {
  if (test == nullptr || test->size < sizeof *test || test->reducer == nullptr ||
      test->lane == nullptr)
    return {kUsage, "lockstep_run_reducer_test(): the record of the test is not filled in"};
  try {
    return ReducerTest(*test).run();
  } catch (const std::exception& thrown) {
    return {kInconclusive, fmt::format("the test could not run: {}", thrown.what())};
  }
}

}  // namespace
}  // namespace lockstep::properties

extern "C" int32_t lockstep_run_reducer_test(const lockstep_reducer_test* test, char** report) {
  const lockstep::properties::TestResult result = lockstep::properties::run_test(test);
  if (report != nullptr) *report = ::strdup(result.report.c_str());
  return result.code;
}

extern "C" void lockstep_free_report(char* report) { std::free(report); }
