#include "properties/cli/fuzz.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "properties/case/case_json.h"
#include "properties/cli/earlier_failures.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/cli/scratch.h"
#include "properties/cli/server.h"
#include "properties/cli/status_line.h"
#include "properties/cli/workers.h"
#include "properties/lane/host_ranks.h"
#include "properties/lane/needs.h"
#include "properties/process/terminal.h"
#include "properties/report/run_page.h"

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kUsualEnd = 1;  // seconds that cases in flight usually take

class LaneFuzz {
 public:
  LaneFuzz(const FuzzOptions& options, LaneKind lane, double seconds)
      : options_(options), lane_(lane), seconds_(seconds) {
    report_.lane = name_of(lane);
    report_.subject = options.subject.name();
    report_.planted.id = planted_bug_of(options.subject);
    if (options.subject.against) report_.against = options.subject.against->name();
    report_.metamorphic.is_on = !options.generate.switched.empty();
    if (options.subject.is_held_to_lockstep) report_.held_to.contract = "lockstep";
    if (options.subject.profile.any_arithmetic) report_.held_to.values = "exact";
    report_.nccl = options.subject.profile.nccl;
    report_.seed = options.seed;
    report_.commit = kCommit;
  }

  Status run() {
    WorkerPlan plan;
    plan.lane = lane_;
    plan.subject = options_.subject;
    plan.generate = generate_options_of(options_, lane_);
    plan.seed = options_.seed;
    plan.cases = options_.cases;
    plan.jobs = options_.jobs != 0 ? options_.jobs : usual_jobs(lane_);
    plan.around = options_.around;
    plan_ = plan;
    // Other subjects do not say how many buckets they have, and neighbours have few faults.
    if (options_.subject.kind == Subject::Kind::kProduction && !options_.around)
      report_.coverage.states.kinds = drawable_kinds(plan.generate);
    needs_ = needs_of(lane_, options_.subject, plan.jobs);
    LOCKSTEP_RETURN_IF_ERROR(check_needs(needs_));
    run_earlier_failures();
    if (!report_.failures.empty() && !options_.keep_going) return {};
    start_ = Clock::now();
    Workers workers(std::move(plan));
    LOCKSTEP_RETURN_IF_ERROR(workers.start());
    while (!interrupted() && !workers.all_done()) {
      std::optional<Found> found = workers.wait(std::chrono::milliseconds(100));
      const double seconds = seconds_since(start_);
      note_progress(workers, seconds);
      if (options_.cases == 0 && seconds >= seconds_) {
        workers.finish();
        if (seconds >= seconds_ + kUsualEnd) show_waiting(workers.in_flight());
      } else {
        show(workers.totals(), seconds);
      }
      if (!found) continue;
      if (!options_.keep_going || is_inconclusive(*found)) {
        (void)workers.stop();
        take(workers.totals());
        add(*found, seconds, workers.totals().cases);
        return {};
      }
      add(*found, seconds, workers.totals().cases);
    }
    stop(workers);
    return {};
  }

  const RunReport& report() const { return report_; }

 private:
  static bool is_inconclusive(const Found& found) {
    return found.outcome.verdict.failing == Failing::kInconclusive;
  }

  void show(const Totals& totals, double seconds) {
    if (totals.coverage.size() > features_) {
      features_ = totals.coverage.size();
      new_feature_at_ = seconds;
    }
    if (options_.is_quiet || !status_.is_due(seconds, totals.cases)) return;
    RunStatus status;
    status.lane = report_.lane;
    status.subject = report_.subject;
    status.seed = report_.seed;
    status.seconds = seconds;
    status.cases = totals.cases;
    status.ok = totals.ok;
    status.faulted_ok = totals.faulted_ok;
    status.features = features_;
    status.seconds_since_feature = seconds - new_feature_at_;
    status.failures = report_.failures.size();
    if (!report_.failures.empty())
      status.last_failure = name_of(report_.failures.back().outcome.verdict.failing);
    if (options_.cases == 0) status.seconds_left = seconds_ - seconds;
    if (options_.cases != 0)
      status.cases_left = options_.cases - std::min(options_.cases, totals.cases);
    status_.show(status);
  }

  // Shows the cases that are in flight after the time is over.
  void show_waiting(const std::vector<Workers::InFlight>& cases) {
    if (cases.empty() || options_.is_quiet) return;
    std::chrono::milliseconds left{0};
    for (const Workers::InFlight& each : cases) left = std::max(left, each.left);
    status_.show_waiting(fmt::format(
        "{} {}  the time is over; waiting for {} in flight, at most {:.0f} s more", report_.lane,
        report_.subject, cases.size() == 1 ? "the case" : fmt::format("{} cases", cases.size()),
        static_cast<double>(left.count()) / 1000));
  }

  // Every half second at first, and more seldom later, so that a long run has a few hundred points.
  void note_progress(const Workers& workers, double seconds) {
    std::vector<RunProgress>& progress = report_.coverage.progress;
    const double last = progress.empty() ? -1 : progress.back().seconds;
    if (seconds - last < std::max(0.5, seconds / 200)) return;
    progress.push_back({seconds, workers.totals().cases, workers.features_seen()});
  }

  // Ends a run that no failure has ended. Cases are in flight only after Ctrl-C.
  void stop(Workers& workers) {
    const Workers::Stopped stopped = workers.stop();
    const Totals totals = workers.totals();
    take(totals);
    for (const Found& found : stopped.found) add(found, report_.seconds, totals.cases);
    for (const Workers::InFlight& each : stopped.unanswered) add_unanswered(each);
    if (!workers.problem().empty()) report_.inconclusive.push_back(workers.problem());
    report_.was_interrupted = interrupted();
    note_too_few();
  }

  // A run of a few cases is no evidence, so it must not look like one.
  void note_too_few() {
    const std::uint64_t passed = report_.counts.ok + report_.counts.faulted_ok;
    if (!report_.failures.empty() || report_.was_interrupted || passed >= options_.least) return;
    report_.inconclusive.push_back(fmt::format(
        "{} of the cases passed, and fewer than {} say little: give the run more time, or a number "
        "of cases (--cases)",
        passed, options_.least));
  }

  void add(const Found& found, double seconds, std::uint64_t executions) {
    if (!is_inconclusive(found)) return add_failure(found, seconds, executions);
    report_.inconclusive.push_back(fmt::format("case {} of seed {}: {}", found.index, options_.seed,
                                               found.outcome.verdict.message));
  }

  // Runs the cases that earlier runs found, one after the other; the time of the run begins
  // afterwards.
  void run_earlier_failures() {
    if (options_.is_fresh || options_.around) return;
    CaseServer server(lane_, options_.subject);
    for (const EarlierFailure& earlier : earlier_failures(options_.out, lane_, options_.subject)) {
      const Outcome outcome = server.run(earlier.value, {false, false, true});
      if (outcome.verdict.failing == Failing::kInconclusive)
        report_.inconclusive.push_back(earlier.file + ": " + outcome.verdict.message);
      if (interrupted()) return;
      ++report_.earlier.run;
      report_.planted.seen += outcome.planted;
      if (outcome.verdict.ok() || outcome.verdict.failing == Failing::kInconclusive) continue;
      ++report_.earlier.failing;
      if (is_known(outcome.verdict)) continue;
      FailureReport failure = report_of(earlier.value);
      failure.outcome = outcome;
      failure.case_file = earlier.file;
      say(failure_block(failure) + "\n");
      report_.failures.push_back(std::move(failure));
      if (!options_.keep_going) return;
    }
  }

  // Saves a case without a result, so that it can be replayed.
  void add_unanswered(const Workers::InFlight& each) {
    FailureReport unknown = report_of_case(each.index);
    unknown.outcome.verdict = {Failing::kInconclusive, "progress", ""};
    save(stem_of(unknown) + ".unanswered.json", unknown);
    report_.inconclusive.push_back(
        fmt::format("case {} of seed {} was interrupted after {:.1f} s, {:.1f} s before it counts "
                    "as hung; replay: {}",
                    each.index, options_.seed, static_cast<double>(each.since.count()) / 1000,
                    static_cast<double>(each.left.count()) / 1000, replay_line(unknown)));
  }

  // Returns what the machine lacks by now, or nothing.
  std::string lacking() const {
    const Status status = check_needs(still_needed(needs_));
    return status.ok() ? "" : status.failure().detail;
  }

  void take(const Totals& totals) {
    status_.clear();
    report_.seconds = seconds_since(start_);
    const PlantedBug by_earlier = report_.planted.seen;
    copy_totals(totals, report_);
    report_.planted.seen += by_earlier;
    if (report_.coverage.progress.empty())
      report_.coverage.progress.push_back({});  // a curve has a beginning
    report_.coverage.progress.push_back({report_.seconds, totals.cases, totals.coverage.size()});
  }

  FailureReport report_of(Case value) const {
    FailureReport report;
    report.value = std::move(value);
    report.lane = report_.lane;
    report.subject = report_.subject;
    report.against = report_.against;
    report.contract = report_.held_to.contract;
    report.values = report_.held_to.values;
    report.nccl = report_.nccl;
    report.program = options_.program;
    report.commit = kCommit;
    return report;
  }

  FailureReport report_of_case(std::uint64_t index) const {
    FailureReport report = report_of(case_of(plan_, index));
    report.seed = options_.seed;
    report.index = index;
    return report;
  }

  std::string stem_of(const FailureReport& failure) const {
    return options_.out + "/" + file_stem(failure);
  }

  bool is_known(const Verdict& verdict) const {
    return std::any_of(
        report_.failures.begin(), report_.failures.end(),
        [&](const FailureReport& f) { return f.outcome.verdict.same_failure(verdict); });
  }

  // Saves the case as it was found, shrinks it, saves the result, and prints it.
  void add_failure(const Found& found, double seconds, std::uint64_t executions) {
    if (is_known(found.outcome.verdict)) return;
    status_.clear();
    if (const std::string what = lacking(); !what.empty()) {
      report_.inconclusive.push_back(fmt::format(
          "case {} of seed {} ended in {}, on a machine that lacks what the lane needs: {}",
          found.index, options_.seed, name_of(found.outcome.verdict.failing), what));
      return;
    }
    FailureReport failure = report_of_case(found.index);
    const Case original = failure.value;
    failure.outcome = found.outcome;
    failure.seconds_to_find = seconds;
    failure.executions_to_find = executions;
    const std::string stem = stem_of(failure);
    save(stem + ".found.json", failure);
    if (!options_.is_quiet)
      write_aside(fmt::format("{} in case {}; making it small...\n",
                              title_of(found.outcome.verdict), found.index));
    // A smaller case would not help where NCCL did not run as it was pinned.
    const bool is_of_case = found.outcome.verdict.failing != Failing::kUnproven;
    Shrunk shrunk = shrink_failure(original, found.outcome, lane_, options_.subject,
                                   is_of_case ? options_.shrink_seconds : 0);
    failure.value = std::move(shrunk.value);
    failure.outcome = std::move(shrunk.outcome);
    failure.shrink_executions = shrunk.executions;
    failure.shrink_was_cut_off = shrunk.was_cut_off;
    failure.irrelevant = std::move(shrunk.irrelevant);
    if (!shrunk.reproduced && !interrupted())
      failure.outcome.verdict.message += "\n(it did not fail again when it was run once more)";
    save(stem + ".json", failure);
    say(failure_block(failure) + "\n");
    report_.failures.push_back(std::move(failure));
  }

  void say(const std::string& text) const {
    if (!options_.is_quiet) tell(text);
  }

  // A case that cannot be written is printed, so that no finding is lost.
  void save(const std::string& path, FailureReport& failure) {
    const std::string about = about_found(failure);
    const FoundWith found = found_with(failure);
    if (const Status status = write_case(path, failure.value, about, found); !status.ok()) {
      write_aside(fmt::format("lockstep: {}\nthe case, so that it is not lost:\n{}\n",
                              status.failure().detail, to_json(failure.value, about, found)));
      return;
    }
    failure.case_file = path;
  }

  const FuzzOptions& options_;
  const LaneKind lane_;
  const double seconds_;
  WorkerPlan plan_;
  Needs needs_;
  RunReport report_;
  StatusLine status_;
  Clock::time_point start_;
  std::size_t features_ = 0;   // how many features were seen so far
  double new_feature_at_ = 0;  // when the last new one was seen, in seconds since the start
};

// With several lanes each one has a report of its own: NAME.json, then NAME.gloo.json.
std::string report_path(const std::string& path, const RunReport& report, std::size_t lanes) {
  if (lanes == 1) return path;
  const std::filesystem::path p(path);
  return (p.parent_path() / (p.stem().string() + "." + report.lane + p.extension().string()))
      .string();
}

bool write_reports(const FuzzOptions& options, const RunReport& report) {
  bool good = true;
  const auto write = [&](const std::string& path, const std::string& text) {
    if (path.empty()) return;
    const Status status = write_file(report_path(path, report, options.lanes.size()), text);
    if (status.ok()) return;
    remark(status.failure().detail);
    good = false;
  };
  write(options.json, json_report(report));
  write(options.junit, junit_report(report));
  if (!options.html.empty()) {
    const Result<std::string> page = run_page(report);
    if (page) write(options.html, *page);
    if (!page) remark(page.error().failure().detail);
    good = good && page.has_value();
  }
  return good;
}

GenerateOptions::Lane generated_for(LaneKind lane) {
  switch (lane) {
    case LaneKind::kSim:
      return GenerateOptions::Lane::kSim;
    case LaneKind::kGloo:
      return GenerateOptions::Lane::kGloo;
    case LaneKind::kHosts:
      return GenerateOptions::Lane::kGloo;
    case LaneKind::kNccl:
      return GenerateOptions::Lane::kNccl;
  }
  return GenerateOptions::Lane::kSim;
}

}  // namespace

// A case of the simulator only computes. A case of the gloo lane mostly waits: for sockets, for the
// other ranks, and a second or more for a silent rank. On a GPU all processes take turns.
int usual_jobs(LaneKind lane) { return lane == LaneKind::kGloo ? 4 : 1; }

void copy_totals(const Totals& totals, RunReport& report) {
  report.counts.cases = totals.cases;
  report.counts.ok = totals.ok;
  report.compared.programs = totals.compared;
  report.compared.whole = totals.compared_whole;
  for (const SwitchedOption option : switchable_options())
    if (const std::uint64_t n = totals.switched[static_cast<std::size_t>(option)]; n != 0)
      report.metamorphic.switched[name_of(option)] = n;
  for (std::size_t k = 0; k < kNotComparableReasons; ++k)
    if (totals.not_comparable[k] != 0)
      report.metamorphic.not_comparable[name_of(static_cast<NotComparable>(k))] =
          totals.not_comparable[k];
  report.counts.faulted_ok = totals.faulted_ok;
  report.counts.interleaved = totals.interleaved;
  report.coverage.cases = totals.coverage_cases;
  report.coverage.features = totals.coverage;
  report.coverage.by_fault = totals.coverage_by_fault;
  report.planted.seen = totals.planted;
  report.coverage.states.counts = totals.in_state;
  report.counts.reruns = totals.reruns;
  report.determinism.pairs = totals.pairs;
  report.determinism.mismatches = totals.mismatches;
  report.counts.errors = totals.errors;
  for (std::size_t k = 0; k < kUnspecifiedReasons; ++k)
    if (totals.unspecified[k] != 0)
      report.counts.unspecified[name_of(static_cast<Unspecified>(k))] = totals.unspecified[k];
  for (std::size_t k = 0; k < faults::kKinds; ++k)
    if (totals.fired[k] != 0)
      report.coverage.faults_fired[faults::name_of(static_cast<faults::Kind>(k))] = totals.fired[k];
}

std::optional<reference::Transport> transport_of(const std::string& name) {
  using reference::Transport;
  if (name.empty()) return std::nullopt;
  return name == "nccl"     ? Transport::kNccl
         : name == "staged" ? Transport::kStaged
                            : Transport::kHost;
}

Status parse_metamorphic(const std::string& text, bool has_faults, FuzzOptions& options) {
  if (text.empty()) return {};
  if (options.subject.against)
    return {Code::kInvalidArgument,
            "--metamorphic: it compares two runs of one subject, so leave out --against"};
  if (!has_faults) options.generate.faults = GenerateOptions::Faults::kNone;
  const Status status = parse_switched(text, options.generate);
  if (status.ok()) return {};
  return {Code::kInvalidArgument, "--metamorphic: " + status.failure().detail};
}

GenerateOptions generate_options_of(const FuzzOptions& options, LaneKind lane) {
  GenerateOptions generate = options.generate;
  generate.lane = generated_for(lane);
  generate.capabilities = common_capabilities(options.subject);
  // A rank of a Python is a process of some 100 MB, and there are several cases at a time.
  constexpr std::uint32_t kPythonRanks = 4;
  if (options.subject.kind == Subject::Kind::kPython)
    generate.max_world = std::min(generate.max_world, kPythonRanks);
  // Which of its errors a rank reports depends on time, where only calls are known of errors.
  if (!generate.switched.empty() && options.subject.profile.judges_calls_alone())
    generate.capabilities = generate.capabilities.without_errors();
  if (lane == LaneKind::kHosts) {
    generate.has_network = can_disturb_network();
    generate.max_world = std::min(generate.max_world, host_count());
  }
  return generate;
}

namespace {

std::string names_of(const FaultKinds& kinds) {
  std::vector<std::string> names;
  for (int i = 0; i < faults::kKinds; ++i)
    if (const auto kind = static_cast<faults::Kind>(i); kinds.has(kind))
      names.emplace_back(faults::name_of(kind));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string kinds_of_faults() {
  FaultKinds all;
  for (int i = 0; i < faults::kKinds; ++i) all = all.with(static_cast<faults::Kind>(i));
  return names_of(all);
}

Status check_lanes(const FuzzOptions& options) {
  const auto has = [&](LaneKind lane) {
    return std::find(options.lanes.begin(), options.lanes.end(), lane) != options.lanes.end();
  };
  if (options.generate.policy && !has(LaneKind::kSim))
    return {Code::kInvalidArgument,
            "--policy: it chooses the schedules of the simulator, so it needs the lane sim"};
  if (options.generate.faults != GenerateOptions::Faults::kList) return {};
  FaultKinds lacking = options.generate.kinds;
  for (const LaneKind lane : options.lanes) {
    const FaultKinds drawable = drawable_kinds(generate_options_of(options, lane));
    for (int i = 0; i < faults::kKinds; ++i) {
      const auto kind = static_cast<faults::Kind>(i);
      const bool is_of_hosts = lane == LaneKind::kHosts && faults::is_of_hosts_lane(kind);
      if (drawable.has(kind) || is_of_hosts) lacking = lacking.without(kind);
    }
  }
  if (lacking.empty()) return {};
  return {Code::kInvalidArgument,
          fmt::format("--faults: in the lane {} the subject '{}' never has {}: choose another "
                      "lane or other faults",
                      options.lanes.size() > 1 ? "sim or gloo" : name_of(options.lanes.front()),
                      options.subject.name(), names_of(lacking))};
}

static Status make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK) == 0) return {};
  return {Code::kInvalidArgument,
          fmt::format("cannot write to the folder {} ({}): give another with --out", folder,
                      error ? error.message() : "no permission")};
}

Result<RunReport> fuzz_lane(const FuzzOptions& options, LaneKind lane) {
  if (Status status = make_folder(options.out); !status.ok()) return failed(std::move(status));
  LaneFuzz fuzz(options, lane, options.seconds);
  if (Status status = fuzz.run(); !status.ok()) return failed(std::move(status));
  return fuzz.report();
}

int run_fuzz(const FuzzOptions& options) {
  if (const Status status = make_folder(options.out); !status.ok()) return complain(status);
  watch_for_interrupt();
  const ScratchFolder scratch;
  int code = 0;
  for (const LaneKind lane : options.lanes) {
    if (interrupted() || (code != 0 && !options.keep_going)) break;
    LaneFuzz fuzz(options, lane, options.seconds / static_cast<double>(options.lanes.size()));
    if (const Status status = fuzz.run(); !status.ok()) {
      remark(status.failure().detail);
      return code != 0 ? code : kInconclusive;
    }
    const RunReport& report = fuzz.report();
    tell(options.is_verbose
             ? whole_summary(report)
             : summary(report, options.html.empty()
                                   ? ""
                                   : report_path(options.html, report, options.lanes.size())));
    if (options.shows_states) tell(states_block(report.coverage.states));
    const bool is_written = write_reports(options, report);
    if (!report.failures.empty() && code == 0)
      code = static_cast<int>(report.failures.front().outcome.verdict.failing);
    if (!is_written && code == 0) code = kUsage;
    if (!report.inconclusive.empty() && code == 0) code = kInconclusive;
    const bool compares = !report.against.empty() || report.metamorphic.is_on;
    const bool has_none = compares ? report.compared.programs == 0 : report.counts.cases == 0;
    if (has_none && code == 0 && !interrupted()) code = kInconclusive;
  }
  // After Ctrl-C a case without a result in time may be one that hangs.
  if (interrupted() && code != kInconclusive) return kInterrupted;
  return code;
}

}  // namespace lockstep::properties
