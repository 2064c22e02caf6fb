#include "properties/cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "properties/case/case_json.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/server.h"
#include "properties/lane/needs.h"
#include "properties/report/chrome_trace.h"
#include "properties/report/describe.h"
#include "properties/report/failure_report.h"
#include "reducer/diagnosis/diagnosis.h"

namespace lockstep::properties {
namespace {

constexpr int kUsage = static_cast<int>(Failing::kUsage);

int complain(const std::string& what) {
  std::fprintf(stderr, "lockstep: %s\n", what.c_str());
  return kUsage;
}

// A case file that the subject can run, or a line of what is wrong.
std::optional<Case> load(const std::string& path, const Subject& subject) {
  Result<Case> c = read_case(path);
  if (!c) {
    complain(c.error().failure().detail);
    return std::nullopt;
  }
  for (const Subject* each : {&subject, subject.against.get()}) {
    if (each == nullptr) continue;
    const std::string lack = missing_message(*c, each->capabilities, each->name());
    if (lack.empty()) continue;
    complain(lack);
    return std::nullopt;
  }
  return std::move(*c);
}

// A failure on a machine that has come to lack what the lane needs proves nothing.
Outcome run_here(CaseServer& server, const Case& c, CaseServer::Request request, LaneKind lane,
                 const Subject& subject) {
  Outcome outcome = server.run(c, request);
  const Failing failing = outcome.verdict.failing;
  if (outcome.verdict.ok() || failing == Failing::kInconclusive) return outcome;
  const Status status = check_needs(still_needed(needs_of(lane, subject, 1)));
  if (!status.ok())
    outcome.verdict =
        not_run(fmt::format("the case ended in {}, on a machine that lacks what the lane needs: {}",
                            name_of(failing), status.failure().detail));
  return outcome;
}

FailureReport report_of(const Case& c, Outcome outcome, LaneKind lane, const Subject& subject,
                        const std::string& file, const std::string& program) {
  FailureReport report;
  report.value = c;
  report.outcome = std::move(outcome);
  report.lane = name_of(lane);
  report.subject = subject.name();
  if (subject.against) report.against = subject.against->name();
  report.case_file = file;
  report.program = program;
  report.commit = kCommit;
  return report;
}

std::string verdict_line(const Outcome& outcome) {
  if (outcome.verdict.ok()) return fmt::format("ok (trace {:016x})", outcome.trace_hash);
  return fmt::format("{} (oracle: {})", name_of(outcome.verdict.failing), outcome.verdict.oracle);
}

}  // namespace

int run_replay(const ReplayOptions& options) {
  const std::optional<Case> c = load(options.case_file, options.subject);
  if (!c) return kUsage;
  CaseServer server(options.lane, options.subject);
  const bool events = !options.trace.empty();
  Outcome outcome = run_here(server, *c, {options.lane == LaneKind::kSim, events, true},
                             options.lane, options.subject);
  if (events) {
    if (const Status status = write_file(options.trace, chrome_trace(outcome)); !status.ok())
      return complain(status.failure().detail);
  }
  const Verdict verdict = outcome.verdict;
  if (verdict.ok() || verdict.failing == Failing::kInconclusive)
    std::printf("%s", describe(*c).c_str());
  else
    std::printf("%s\n", failure_block(report_of(*c, outcome, options.lane, options.subject,
                                                options.case_file, options.program))
                            .c_str());
  const bool has_remark = verdict.ok() || verdict.failing == Failing::kInconclusive;
  if (has_remark && !verdict.message.empty()) std::printf("%s\n", verdict.message.c_str());
  const std::string against =
      options.subject.against ? " against " + options.subject.against->name() : "";
  std::printf("%s lane, subject %s%s: %s\n", name_of(options.lane), options.subject.name().c_str(),
              against.c_str(), verdict_line(outcome).c_str());
  if (!options.expect_fail || verdict.failing == Failing::kInconclusive)
    return static_cast<int>(verdict.failing);
  if (!verdict.ok()) return 0;
  return complain("the case was expected to fail, and does not"),
         static_cast<int>(Failing::kInconclusive);
}

int run_shrink(const ShrinkCommandOptions& options) {
  const std::optional<Case> c = load(options.case_file, options.subject);
  if (!c) return kUsage;
  watch_for_interrupt();
  Outcome outcome;
  {
    CaseServer server(options.lane, options.subject);
    outcome = run_here(server, *c, {}, options.lane, options.subject);
  }
  if (outcome.verdict.failing == Failing::kInconclusive)
    return complain(outcome.verdict.message), static_cast<int>(Failing::kInconclusive);
  if (outcome.verdict.ok()) {
    complain(
        "the case does not fail here, so there is nothing to make small: check --lane and "
        "--subject");
    return static_cast<int>(Failing::kInconclusive);
  }
  Shrunk shrunk =
      shrink_failure(*c, outcome, options.lane, options.subject, options.budget_seconds);
  std::filesystem::path path(options.case_file);
  path.replace_extension(".min.json");
  if (const Status status = write_case(path.string(), shrunk.value); !status.ok())
    return complain(status.failure().detail);
  FailureReport report = report_of(shrunk.value, shrunk.outcome, options.lane, options.subject,
                                   path.string(), options.program);
  report.irrelevant = shrunk.irrelevant;
  report.shrink_executions = shrunk.executions;
  std::printf("%s", failure_block(report).c_str());
  return interrupted() ? 130 : static_cast<int>(shrunk.outcome.verdict.failing);
}

int run_show(const std::string& case_file) {
  std::string about;
  const Result<Case> c = read_case(case_file, &about);
  if (!c) return complain(c.error().failure().detail);
  if (!about.empty()) std::printf("%s\n", about.c_str());
  std::printf("%s", describe(*c).c_str());
  return 0;
}

int run_diagnose(const std::vector<std::string>& account_files) {
  std::vector<Account> accounts;
  for (const std::string& file : account_files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) return complain(fmt::format("cannot read {}: {}", file, std::strerror(errno)));
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    Result<Account> account = read_account(text);
    if (!account) return complain(fmt::format("{}: {}", file, account.error().failure().detail));
    accounts.push_back(std::move(*account));
  }
  const Result<Diagnosis> diagnosis = diagnose(std::move(accounts));
  if (!diagnosis) return complain(diagnosis.error().failure().detail);
  std::printf("%s", diagnosis->to_string().c_str());
  return diagnosis->clean() ? 0 : kRanksDiffer;
}

int run_corpus_check(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error))
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  if (error) return complain(fmt::format("cannot read the folder {}: {}", folder, error.message()));
  if (files.empty()) return complain(fmt::format("there is no case (*.json) in {}", folder));
  std::sort(files.begin(), files.end());
  int code = 0;
  std::size_t failed = 0;
  const Subject subject;
  for (const LaneKind lane : {LaneKind::kSim, LaneKind::kGloo}) {
    CaseServer server(lane, subject);
    for (const std::string& file : files) {
      const std::optional<Case> c = load(file, subject);
      if (!c) return kUsage;
      const Outcome outcome =
          run_here(server, *c, {lane == LaneKind::kSim, false, false}, lane, subject);
      std::printf("%s  %s: %s\n", name_of(lane), file.c_str(), verdict_line(outcome).c_str());
      if (outcome.verdict.ok()) continue;
      std::printf("%s\n", outcome.verdict.message.c_str());
      ++failed;
      if (code == 0) code = static_cast<int>(outcome.verdict.failing);
    }
  }
  std::printf("corpus: %zu cases in 2 lanes, %zu failing\n", files.size(), failed);
  return code;
}

}  // namespace lockstep::properties
