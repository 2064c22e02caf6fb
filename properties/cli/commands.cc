#include "properties/cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "properties/case/case_json.h"
#include "properties/case/describe.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/cli/scratch.h"
#include "properties/cli/server.h"
#include "properties/process/terminal.h"
#include "properties/report/case_page.h"
#include "properties/report/chrome_trace.h"
#include "properties/report/failure_report.h"
#include "properties/report/torch_flight_records.h"
#include "properties/subject/torch/model/policies_at_work.h"
#include "reducer/diagnosis/diagnosis.h"

namespace lockstep::properties {
namespace {

constexpr std::size_t kMaxAccountBytes = 512u << 20u;  // for a file that a rank wrote

// Reads a case, and says on standard error what of it runs otherwise than it is written.
Result<Case> read_case_aloud(const std::string& path, std::string* about = nullptr) {
  constexpr std::size_t kMaxLines = 8;
  std::vector<std::string> rewritten;
  Result<Case> c = read_case(path, about, &rewritten);
  if (rewritten.empty()) return c;
  std::string text = fmt::format("{} does not run as it is written:\n", path);
  for (std::size_t i = 0; i < std::min(kMaxLines, rewritten.size()); ++i)
    text += "  " + rewritten[i] + "\n";
  if (rewritten.size() > kMaxLines)
    text += fmt::format("  and {} more\n", rewritten.size() - kMaxLines);
  write_aside(text);
  return c;
}

// Returns the case of a file if the subject can run it. Otherwise it prints one line that says what
// is wrong.
std::optional<Case> load(const std::string& path, const Subject& subject) {
  Result<Case> c = read_case_aloud(path);
  if (!c) {
    complain(c.error());
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

Outcome run_here(CaseServer& server, const Case& c, CaseServer::Request request, LaneKind lane,
                 const Subject& subject) {
  return unless_machine_lacks(server.run(c, request), lane, subject, 1);
}

FailureReport report_of(const Case& c, Outcome outcome, LaneKind lane, const Subject& subject,
                        const std::string& file, const std::string& program) {
  FailureReport report;
  report.value = c;
  report.outcome = std::move(outcome);
  report.lane = name_of(lane);
  report.subject = subject.name();
  if (subject.against) report.against = subject.against->name();
  if (subject.is_held_to_lockstep) report.contract = "lockstep";
  if (subject.profile.any_arithmetic) report.values = "exact";
  report.nccl = subject.profile.nccl;
  report.case_file = file;
  report.program = program;
  report.commit = kCommit;
  return report;
}

// Says what PyTorch's profile has to do with a case that passes under it: the reasons why the
// contract has something else, and where the profile ends.
std::string profile_lines(const Case& c, const Profile& profile) {
  if (!profile.is_torch()) return {};
  std::string out;
  const auto names = torch_model::policies_at_work(c.program, c.torch, profile.policies);
  if (!names.empty())
    out += fmt::format("policies of PyTorch's that decide what comes out: {}\n",
                       fmt::join(names, ", "));
  const std::uint32_t steps = modelled_steps(c, profile);
  if (steps < c.program.steps.size())
    out += fmt::format(
        "not run: step {} and what follows, as PyTorch's profile does not say what "
        "comes of it\n",
        steps);
  return out;
}

}  // namespace

// Writes nothing without a name.
static Status write_page(const std::string& file, const FailureReport& report) {
  if (file.empty()) return {};
  const Result<std::string> page = case_page(report);
  return page ? write_file(file, *page) : page.error();
}

static Status write_reports(const ReplayOptions& options, const FailureReport& report,
                            const std::string& planted_bug) {
  if (!options.trace.empty())
    LOCKSTEP_RETURN_IF_ERROR(write_file(options.trace, chrome_trace(report.outcome)));
  if (!options.json.empty())
    LOCKSTEP_RETURN_IF_ERROR(write_file(options.json, json_replay(report, planted_bug)));
  return write_page(options.html, report);
}

int run_replay(const ReplayOptions& options) {
  const std::optional<Case> c = load(options.case_file, options.subject);
  if (!c) return kUsage;
  if (!options.in_process) watch_for_interrupt();
  const ScratchFolder scratch;
  CaseServer server(options.lane, options.subject);
  const bool events = !options.trace.empty() || !options.html.empty();
  const CaseServer::Request request{options.lane == LaneKind::kSim, events, true};
  Outcome outcome = options.in_process
                        ? run_in_this_process(*c, request, options.lane, options.subject)
                        : run_here(server, *c, request, options.lane, options.subject);
  if (!options.in_process) add_detailed_checks(*c, options.lane, options.subject, outcome);
  if (interrupted()) return kInterrupted;
  const Verdict verdict = outcome.verdict;
  const FailureReport report =
      report_of(*c, outcome, options.lane, options.subject, options.case_file, options.program);
  const std::string planted_bug = planted_bug_of(options.subject);
  const bool has_failed = !verdict.ok() && verdict.failing != Failing::kInconclusive;
  std::string text = has_failed ? failure_block(report) + "\n" : describe(*c);
  if (!has_failed) text += errors_block(outcome.errors);
  if (!has_failed && !verdict.message.empty()) text += verdict.message + "\n";
  if (!has_failed && !options.subject.against) text += profile_lines(*c, options.subject.profile);
  text += planted_line(planted_bug, outcome.planted);
  const std::string against =
      options.subject.against ? " against " + options.subject.against->name() : "";
  const std::string& nccl = options.subject.profile.nccl;
  text +=
      fmt::format("{} lane, subject {}{}{}: {}\n", name_of(options.lane), options.subject.name(),
                  against, nccl.empty() ? "" : ", simulated NCCL " + nccl, verdict_line(outcome));
  tell(text);
  if (const Status status = write_reports(options, report, planted_bug); !status.ok())
    return complain(status, has_failed ? static_cast<int>(verdict.failing) : kUsage);
  if (!options.expect_fail || verdict.failing == Failing::kInconclusive)
    return static_cast<int>(verdict.failing);
  if (!verdict.ok()) return 0;
  return complain("the case was expected to fail, and does not"), kInconclusive;
}

// Runs the small case once more, to see what each rank did. Writes nothing without a name.
static Status write_shrunk_page(const ShrinkCommandOptions& options, FailureReport report) {
  if (options.html.empty() || interrupted()) return {};
  CaseServer server(options.lane, options.subject);
  report.outcome = run_here(server, report.value, {options.lane == LaneKind::kSim, true, true},
                            options.lane, options.subject);
  return write_page(options.html, report);
}

int run_shrink(const ShrinkCommandOptions& options) {
  const std::optional<Case> c = load(options.case_file, options.subject);
  if (!c) return kUsage;
  watch_for_interrupt();
  const ScratchFolder scratch;
  Outcome outcome;
  {
    CaseServer server(options.lane, options.subject);
    outcome = run_here(server, *c, {}, options.lane, options.subject);
  }
  if (interrupted()) return kInterrupted;
  if (outcome.verdict.failing == Failing::kInconclusive)
    return complain(outcome.verdict.message, kInconclusive);
  if (outcome.verdict.ok()) {
    complain(
        "the case does not fail here, so there is nothing to make small: check --lane and "
        "--subject");
    return kInconclusive;
  }
  Shrunk shrunk =
      shrink_failure(*c, outcome, options.lane, options.subject, options.budget_seconds);
  std::filesystem::path path(options.case_file);
  path.replace_extension(".min.json");
  FailureReport report = report_of(shrunk.value, shrunk.outcome, options.lane, options.subject,
                                   path.string(), options.program);
  const Status written = write_case(path.string(), shrunk.value, {}, found_with(report));
  report.irrelevant = shrunk.irrelevant;
  report.shrink_executions = shrunk.executions;
  report.shrink_was_cut_off = shrunk.was_cut_off;
  if (!written.ok()) report.case_file.clear();
  tell(failure_block(report));
  const int code = interrupted() ? kInterrupted : static_cast<int>(shrunk.outcome.verdict.failing);
  if (!written.ok())
    return complain(fmt::format("{}\nthe case, so that it is not lost:\n{}",
                                written.failure().detail, to_json(shrunk.value)),
                    code);
  const Status page = write_shrunk_page(options, std::move(report));
  return page.ok() ? code : complain(page, code);
}

int run_show(const std::string& case_file) {
  std::string about;
  const Result<Case> c = read_case_aloud(case_file, &about);
  if (!c) return complain(c.error());
  tell((about.empty() ? about : about + "\n") + describe(*c));
  return 0;
}

int run_generate(const GenerateCommandOptions& options) {
  const Case c = generate(options.seed, options.index, options.generate);
  const std::string about = fmt::format("generated for lane {}: seed {}, case {}",
                                        name_of(options.lane), options.seed, options.index);
  if (options.output.empty()) {
    tell(to_json(c, about));
    return 0;
  }
  const Status status = write_case(options.output, c, about);
  return status.ok() ? 0 : complain(status);
}

int run_diagnose(const std::vector<std::string>& flight_record_files) {
  std::vector<FlightRecord> records;
  std::vector<TorchGroupRecord> of_torch;
  bool is_of_torch = false;
  for (const std::string& file : flight_record_files) {
    const Result<std::string> text = read_file(file, kMaxAccountBytes);
    if (!text) return complain(text.error());
    if (is_torch_flight_record(*text)) {
      is_of_torch = true;
      Result<std::vector<TorchGroupRecord>> read = read_torch_flight_record(*text, file);
      if (!read) return complain(read.error());
      std::move(read->begin(), read->end(), std::back_inserter(of_torch));
      continue;
    }
    Result<FlightRecord> record = read_flight_record(*text);
    if (!record) return complain(fmt::format("{}: {}", file, record.error().failure().detail));
    records.push_back(std::move(*record));
  }
  if (is_of_torch && !records.empty())
    return complain("some files are flight records of PyTorch and some of Lockstep: give one kind");
  if (is_of_torch) {
    const TorchDiagnosis joined = join_torch_flight_records(std::move(of_torch));
    tell(joined.text);
    return joined.is_clean ? 0 : kRanksDiffer;
  }
  const Result<Diagnosis> diagnosis = diagnose(std::move(records));
  if (!diagnosis) return complain(diagnosis.error());
  tell(diagnosis->to_string());
  return diagnosis->clean() ? 0 : kRanksDiffer;
}

}  // namespace lockstep::properties
