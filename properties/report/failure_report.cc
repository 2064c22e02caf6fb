#include "properties/report/failure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "properties/case/describe.h"
#include "properties/process/shell_word.h"
#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

constexpr int kReportSchema = 1;

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

nlohmann::ordered_json to_record(const FailureReport& failure) {
  const reference::Program& program = failure.value.program;
  return {{"oracle", failure.outcome.verdict.oracle},
          {"exit_code", static_cast<int>(failure.outcome.verdict.failing)},
          {"verdict", name_of(failure.outcome.verdict.failing)},
          {"title", title_of(failure.outcome.verdict)},
          {"message", failure.outcome.verdict.message},
          {"diagnosis", failure.outcome.diagnosis},
          {"case_file", failure.case_file},
          {"index", failure.index},
          {"seconds_to_find", failure.seconds_to_find},
          {"executions_to_find", failure.executions_to_find},
          {"shrunk",
           {{"ranks", program.world},
            {"params", program.parameters.size()},
            {"steps", program.steps.size()},
            {"faults", failure.value.faults.faults.size()},
            {"preemptions", failure.outcome.preemptions}}}};
}

nlohmann::ordered_json states_record(const StateCoverage& states) {
  nlohmann::ordered_json json = {{"by_fault", nlohmann::ordered_json::object()},
                                 {"empty", empty_cells(states)}};
  const std::vector<std::string> headers = state_headers();
  for (const std::vector<std::string>& row : state_rows(states))
    for (std::size_t i = 1; i < row.size(); ++i)
      if (row[i] != "-")
        json["by_fault"][row[0]][headers[i]] = row[i] == "~0" ? 0 : std::stoull(row[i]);
  return json;
}

double percent_of_cases(const RunReport& report, std::uint64_t count) {
  return 100.0 * static_cast<double>(count) /
         static_cast<double>(std::max<std::uint64_t>(report.counts.cases, 1));
}

std::string counts(const std::map<std::string, std::uint64_t>& by_name) {
  std::vector<std::string> out;
  for (const auto& [name, count] : by_name) out.push_back(fmt::format("{} {}", name, count));
  return fmt::format("{}", fmt::join(out, ", "));
}

// Returns how many cases ran a second time, with an option switched.
std::string switched_line(const RunReport& report) {
  return fmt::format(
      "run twice, with an option switched: {} cases ({:.0f} %), {} ({:.0f} %) compared to the last "
      "step\n",
      report.compared.programs, percent_of_cases(report, report.compared.programs),
      report.compared.whole, percent_of_cases(report, report.compared.whole));
}

// Returns which option was switched how often, and why cases did not run a second time.
std::string switched_options_lines(const RunReport& report) {
  std::string out;
  if (!report.metamorphic.switched.empty())
    out += "switched: " + counts(report.metamorphic.switched) + "\n";
  if (!report.metamorphic.not_comparable.empty())
    out += "not comparable: " + counts(report.metamorphic.not_comparable) + "\n";
  return out;
}

// Returns the share of the programs that both subjects could run comparably.
std::string compared_line(const RunReport& report) {
  const auto percent = [&report](std::uint64_t count) { return percent_of_cases(report, count); };
  return fmt::format("compared with {}: {} programs ({:.0f} %), {} ({:.0f} %) to the last step{}\n",
                     report.against, report.compared.programs, percent(report.compared.programs),
                     report.compared.whole, percent(report.compared.whole),
                     report.compared.whole == report.counts.cases
                         ? ""
                         : "; beyond it the two contracts do not expect the same");
}

}  // namespace

FoundWith found_with(const FailureReport& report) {
  return {report.subject, report.lane, report.against, report.contract, report.values, report.nccl};
}

std::string replay_line(const FailureReport& report) {
  if (!report.replay.empty()) return report.replay;
  std::string out = fmt::format("{} replay {} --lane {}", shell_word(report.program),
                                shell_word(report.case_file), report.lane);
  if (report.subject != "reducer" || !report.against.empty())
    out += " --subject " + shell_word(report.subject);
  if (!report.against.empty()) out += " --against " + shell_word(report.against);
  if (!report.contract.empty()) out += " --contract " + report.contract;
  if (!report.values.empty()) out += " --values " + report.values;
  if (!report.nccl.empty()) out += " --nccl " + shell_word(report.nccl);
  return out;
}

std::string failure_block(const FailureReport& report) {
  const Verdict& verdict = report.outcome.verdict;
  std::string out = fmt::format("FAIL: {} (oracle: {}, exit code {})\n\n", title_of(verdict),
                                verdict.oracle, static_cast<int>(verdict.failing));
  out += describe(report.value) + "\n" + verdict.message;
  if (!out.empty() && out.back() != '\n') out += '\n';
  if (!report.outcome.diagnosis.empty()) out += "\nflight records: " + report.outcome.diagnosis;
  if (!report.irrelevant.empty()) {
    out += "\ndoes not matter:";
    for (std::size_t i = 0; i < report.irrelevant.size(); ++i)
      out += (i == 0 ? " " : ", ") + report.irrelevant[i];
    out += "\n";
  }
  if (!report.case_file.empty()) {
    out += fmt::format("\ncase:   {}\nreplay: {}\n", report.case_file, replay_line(report));
  }
  std::string history;
  if (report.executions_to_find > 0)
    history += fmt::format("seed {}, case {}, after {:.1f} s and {} executions; ", report.seed,
                           report.index, report.seconds_to_find, report.executions_to_find);
  if (report.shrink_executions > 0)
    history += report.shrink_was_cut_off
                   ? fmt::format("made smaller in {} executions, then cut off (`shrink` goes on); ",
                                 report.shrink_executions)
                   : fmt::format("made small in {} executions; ", report.shrink_executions);
  out += fmt::format("{}  {}Lockstep {}\n",
                     report.executions_to_find > 0 ? "found:" : "run:  ", history, report.commit);
  return out;
}

std::string planted_line(const std::string& id, const PlantedBug& planted) {
  if (id.empty()) return {};
  return fmt::format("planted bug {}: reached {}, triggered {}\n", id, planted.reached,
                     planted.triggered);
}

// The line above, and, where no case failed although the bug acted, why that can be.
std::string planted_lines(const RunReport& report) {
  std::string out = planted_line(report.planted.id, report.planted.seen);
  if (report.failures.empty() && report.planted.seen.triggered > 0)
    out +=
        "  (a bug that was triggered changed what the reducer did; a case fails where that "
        "reaches a gradient, an error or a collective)\n";
  return out;
}

std::string errors_block(const std::vector<RankError>& errors) {
  std::string out;
  for (const RankError& error : errors) {
    out += error.step == kNone ? fmt::format("  rank {}, ", error.rank)
                               : fmt::format("  rank {}, step {}: ", error.rank, error.step);
    out += error.text + "\n";
  }
  return out.empty() ? out : "errors that ranks raised:\n" + out;
}

std::string json_replay(const FailureReport& replay, const std::string& planted_bug) {
  const Outcome& outcome = replay.outcome;
  nlohmann::ordered_json json = {{"schema", kReportSchema},
                                 {"lane", replay.lane},
                                 {"subject", replay.subject},
                                 {"commit", replay.commit},
                                 {"case_file", replay.case_file},
                                 {"oracle", outcome.verdict.oracle},
                                 {"exit_code", static_cast<int>(outcome.verdict.failing)},
                                 {"verdict", name_of(outcome.verdict.failing)},
                                 {"message", outcome.verdict.message},
                                 {"diagnosis", outcome.diagnosis},
                                 {"errors", nlohmann::ordered_json::array()},
                                 {"faults_fired", nlohmann::ordered_json::object()}};
  if (!replay.against.empty()) json["against"] = replay.against;
  if (!replay.nccl.empty()) json["nccl"] = replay.nccl;
  for (const RankError& error : outcome.errors) {
    nlohmann::ordered_json record = {{"rank", error.rank}, {"error", error.text}};
    if (error.step != kNone) record["step"] = error.step;
    json["errors"].push_back(std::move(record));
  }
  for (std::size_t kind = 0; kind < outcome.fired.size(); ++kind)
    if (outcome.fired[kind] != 0)
      json["faults_fired"][faults::name_of(static_cast<faults::Kind>(kind))] = outcome.fired[kind];
  if (!planted_bug.empty())
    json["planted"] = {{"id", planted_bug},
                       {"reached", outcome.planted.reached},
                       {"triggered", outcome.planted.triggered}};
  return dump(json);
}

std::string stopping_line(const RunReport& report) {
  const std::uint64_t passed = report.counts.ok + report.counts.faulted_ok;
  if (!report.failures.empty() || passed == 0) return {};
  constexpr double kMissed = 0.05;
  const double share = 1 - std::pow(kMissed, 1 / static_cast<double>(passed));
  std::string out = fmt::format(
      "excluded at 95 %: a bug that fails one of {:.0f} such cases or more", std::floor(1 / share));
  const auto last = std::find_if(report.coverage.progress.begin(), report.coverage.progress.end(),
                                 [&](const RunProgress& at) {
                                   return at.features == report.coverage.progress.back().features;
                                 });
  if (last != report.coverage.progress.end())
    out += fmt::format("; no new feature for {:.0f} s and {} cases", report.seconds - last->seconds,
                       report.counts.cases - std::min(report.counts.cases, last->cases));
  return out + "\n";
}

namespace {

std::string unspecified_line(const RunReport& report) {
  if (report.counts.unspecified.empty()) return "";
  return fmt::format("errors judged: {}; left open: {}\n", report.counts.errors,
                     counts(report.counts.unspecified));
}

// The shares of the policies among the cases whose features were counted.
std::string policies_line(const RunReport& report) {
  constexpr std::string_view kFeature = "policy ";
  if (report.lane != "sim" || report.coverage.cases == 0) return "";
  std::vector<std::pair<std::uint64_t, std::string>> shares;
  for (const auto& [name, count] : report.coverage.features)
    if (name.starts_with(kFeature)) shares.emplace_back(count, name.substr(kFeature.size()));
  if (shares.empty()) return "";
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  for (const auto& [count, name] : shares)
    texts.push_back(fmt::format(
        "{} {:.0f} %", name,
        100.0 * static_cast<double>(count) / static_cast<double>(report.coverage.cases)));
  return fmt::format("schedules by policy, in {} cases: {}\n", report.coverage.cases,
                     fmt::join(texts, ", "));
}

}  // namespace

namespace {

std::string cases_line(const RunReport& report) {
  return fmt::format(
      "{} lane, subject {}, {}{}seed {}: {} cases in {:.1f} s ({:.0f} a second), {} ok, {} ok with "
      "faults, {} failing\n",
      report.lane, report.subject,
      report.held_to.values.empty() ? "" : fmt::format("{} values alone, ", report.held_to.values),
      report.nccl.empty() ? "" : fmt::format("simulated NCCL {}, ", report.nccl), report.seed,
      report.counts.cases, report.seconds, report.cases_per_second(), report.counts.ok,
      report.counts.faulted_ok, report.failures.size());
}

std::string earlier_line(const RunReport& report) {
  if (report.earlier.run == 0) return "";
  return fmt::format("run first: {} cases that failed in earlier runs, {} failing\n",
                     report.earlier.run, report.earlier.failing);
}

std::string faults_line(const RunReport& report) {
  if (report.coverage.faults_fired.empty()) return "";
  std::string out = "faults fired:";
  for (const auto& [name, count] : report.coverage.faults_fired)
    out += fmt::format(" {} {}", name, count);
  return out + "\n";
}

std::string features_line(const RunReport& report) {
  std::string out = fmt::format("features seen: {}", report.coverage.features.size());
  if (report.counts.interleaved > 0)
    out += fmt::format("; interleaved programs: {}", report.counts.interleaved);
  if (report.determinism.pairs > 0)
    out += fmt::format("; run twice: {}, different: {}", report.determinism.pairs,
                       report.determinism.mismatches);
  if (report.counts.reruns > 0)
    out +=
        fmt::format("; run again, as ranks had waited for a processor: {}", report.counts.reruns);
  return out + "\n";
}

std::string inconclusive_lines(const RunReport& report) {
  std::string out;
  for (const std::string& why : report.inconclusive) out += "inconclusive: " + why + "\n";
  if (report.was_interrupted) out += "interrupted before its end\n";
  return out;
}

}  // namespace

std::string summary(const RunReport& report, const std::string& page) {
  std::string out = cases_line(report) + earlier_line(report);
  if (!report.against.empty()) out += compared_line(report);
  if (report.metamorphic.is_on) out += switched_line(report);
  const std::size_t features = report.coverage.features.size();
  const std::size_t kinds = report.coverage.faults_fired.size();
  out += fmt::format("covered: {} feature{}", features, features == 1 ? "" : "s");
  if (kinds != 0) out += fmt::format(", {} kind{} of faults", kinds, kinds == 1 ? "" : "s");
  out += "\n" + planted_lines(report) + stopping_line(report);
  out += page.empty() ? "more of it: --verbose, or a page with --html FILE\n"
                      : fmt::format("more of it: {}\n", page);
  return out + inconclusive_lines(report);
}

std::string whole_summary(const RunReport& report) {
  std::string out = cases_line(report) + earlier_line(report);
  if (!report.against.empty()) out += compared_line(report);
  if (report.metamorphic.is_on) out += switched_line(report) + switched_options_lines(report);
  out += faults_line(report) + states_line(report.coverage.states) + policies_line(report) +
         unspecified_line(report) + planted_lines(report) + features_line(report) +
         stopping_line(report);
  return out + inconclusive_lines(report);
}

std::string json_report(const RunReport& report) {
  nlohmann::ordered_json json = {
      {"schema", kReportSchema},
      {"lane", report.lane},
      {"subject", report.subject},
      {"seed", report.seed},
      {"commit", report.commit},
      {"seconds", report.seconds},
      {"cases", report.counts.cases},
      {"cases_per_second", report.cases_per_second()},
      {"ok", report.counts.ok},
      {"faulted_ok", report.counts.faulted_ok},
      {"failures", nlohmann::ordered_json::array()},
      {"interleaved", report.counts.interleaved},
      {"coverage_cases", report.coverage.cases},
      {"coverage", report.coverage.features},
      {"faults_fired", report.coverage.faults_fired},
      {"reruns", report.counts.reruns},
      {"errors_judged", report.counts.errors},
      {"unspecified", report.counts.unspecified},
      {"determinism",
       {{"pairs", report.determinism.pairs}, {"mismatches", report.determinism.mismatches}}}};
  if (!report.planted.id.empty())
    json["planted"] = {{"id", report.planted.id},
                       {"reached", report.planted.seen.reached},
                       {"triggered", report.planted.seen.triggered}};
  if (!report.against.empty())
    json["against"] = {{"subject", report.against},
                       {"compared", report.compared.programs},
                       {"compared_whole", report.compared.whole}};
  if (report.metamorphic.is_on)
    json["metamorphic"] = {{"compared", report.compared.programs},
                           {"compared_whole", report.compared.whole},
                           {"switched", report.metamorphic.switched},
                           {"not_comparable", report.metamorphic.not_comparable}};
  if (!report.nccl.empty()) json["nccl"] = report.nccl;
  if (!report.held_to.values.empty()) json["values"] = report.held_to.values;
  if (report.coverage.features.empty()) json["coverage"] = nlohmann::ordered_json::object();
  if (report.coverage.faults_fired.empty()) json["faults_fired"] = nlohmann::ordered_json::object();
  if (!report.coverage.states.empty()) json["states"] = states_record(report.coverage.states);
  if (report.counts.unspecified.empty()) json["unspecified"] = nlohmann::ordered_json::object();
  if (!report.inconclusive.empty()) json["inconclusive"] = report.inconclusive;
  if (report.was_interrupted) json["interrupted"] = true;
  if (report.earlier.run > 0)
    json["earlier"] = {{"run", report.earlier.run}, {"failing", report.earlier.failing}};
  for (const FailureReport& failure : report.failures)
    json["failures"].push_back(to_record(failure));
  return dump(json);
}

std::string junit_report(const RunReport& report) {
  const std::size_t failures = report.failures.size();
  const bool is_unproven = failures == 0 && !report.is_green();
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"lockstep.{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
      "time=\"{:.3f}\">\n",
      report.lane, failures == 0 ? 1 : failures, failures, is_unproven ? 1 : 0, report.seconds);
  if (failures == 0)
    out += fmt::format(
        "  <testcase classname=\"lockstep.{}\" name=\"{} cases, seed {}\" time=\"{:.3f}\"",
        report.lane, report.counts.cases, report.seed, report.seconds);
  if (failures == 0 && !is_unproven) out += "/>\n";
  if (is_unproven)
    out += fmt::format(">\n    <error message=\"{}\">{}</error>\n  </testcase>\n",
                       report.was_interrupted ? "interrupted" : "inconclusive",
                       escaped(fmt::format("{}", fmt::join(report.inconclusive, "\n"))));
  for (const FailureReport& failure : report.failures) {
    const Verdict& verdict = failure.outcome.verdict;
    out += fmt::format(
        "  <testcase classname=\"lockstep.{}\" name=\"{}: seed {}, case {}\" time=\"{:.3f}\">\n"
        "    <failure message=\"{}\">{}</failure>\n  </testcase>\n",
        report.lane, escaped(verdict.oracle), failure.seed, failure.index, failure.seconds_to_find,
        escaped(title_of(verdict) + " (" + verdict.oracle + ")"), escaped(failure_block(failure)));
  }
  return out + "</testsuite>\n";
}

}  // namespace lockstep::properties
