#include "properties/cli/exhaust.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "properties/case/case_json.h"
#include "properties/case/invalid.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/cli/scratch.h"
#include "properties/cli/server.h"
#include "properties/process/child.h"
#include "properties/process/terminal.h"
#include "properties/report/failure_report.h"
#include "properties/run/exhaustive_search.h"

namespace lockstep::properties {
namespace {

using Clock = std::chrono::steady_clock;
using simulation::Explorer;

constexpr int kProbes = 50;
constexpr std::chrono::milliseconds kReportEvery{1000};
constexpr std::chrono::milliseconds kFirstReport{100};  // then after twice as long each time
constexpr std::chrono::milliseconds kHungAfter{20'000};
constexpr std::chrono::milliseconds kTurnOfSearch{50};
constexpr std::uintmax_t kMostLogBytes = 32u << 20u;
constexpr std::size_t kMostLive = 1u << 16u;

// The deviations of the execution that runs now, in memory that the process of the search shares
// with this one: if that process is lost, they say how to run the execution again.
struct LiveSchedule {
  std::uint32_t count = 0;
  simulation::Deviation deviations[kMostLive];
};

class SharedSchedule {
 public:
  SharedSchedule() {
    void* memory = ::mmap(nullptr, sizeof(LiveSchedule), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) live_ = new (memory) LiveSchedule;
  }
  ~SharedSchedule() {
    if (live_ != nullptr) ::munmap(live_, sizeof(LiveSchedule));
  }
  SharedSchedule(const SharedSchedule&) = delete;
  SharedSchedule& operator=(const SharedSchedule&) = delete;

  bool is_good() const { return live_ != nullptr; }
  void begin() { live_->count = 0; }
  void add(simulation::Deviation deviation) {
    if (live_->count < kMostLive) live_->deviations[live_->count++] = deviation;
  }
  Schedule schedule() const {
    Schedule schedule;
    for (std::uint32_t i = 0; i < live_->count; ++i)
      schedule.deviations.push_back({live_->deviations[i].choice, live_->deviations[i].fiber});
    return schedule;
  }

 private:
  LiveSchedule* live_ = nullptr;
};

// The log of one search: a line for the case, then lines with the state of the search, of which the
// last one counts.
class SearchLog {
 public:
  // Opens the file, or begins it. A last line that was not written whole is dropped.
  Status open(const std::string& path, const std::string& key) {
    path_ = path;
    head_ = nlohmann::json{{"search", key}}.dump() + "\n";
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    std::string text;
    if (std::filesystem::exists(path, error)) {
      std::ifstream in(path, std::ios::binary);
      text.assign(std::istreambuf_iterator<char>(in), {});
    }
    text.resize(text.rfind('\n') + 1);  // nothing is left if there is no whole line
    if (!text.empty() && text.compare(0, head_.size(), head_) != 0)
      return invalid(fmt::format(
          "the log {} is of another search (another case, subject or commit): give another "
          "folder with --log, or remove it",
          path));
    if (text.size() > head_.size()) LOCKSTEP_RETURN_IF_ERROR(read(text));
    return rewrite();
  }
  const std::optional<Explorer::State>& state() const { return state_; }

  // Appends a state as a line of JSON.
  Status add(const std::string& line) {
    last_ = line;
    if (size_ + line.size() > kMostLogBytes) return rewrite();
    size_ += line.size();
    out_ << line << std::flush;
    return out_ ? Status() : not_written();
  }

 private:
  Status read(const std::string& text) {
    const std::size_t begin = text.rfind('\n', text.size() - 2) + 1;
    last_ = text.substr(begin);
    Result<Explorer::State> state = state_from_log_line(last_);
    if (!state)
      return invalid(fmt::format("the last line of the log {} cannot be read ({}): remove the file",
                                 path_, state.error().failure().detail));
    state_ = std::move(*state);
    return {};
  }
  Status rewrite() {
    out_.close();
    if (!write_file(path_, head_ + last_).ok()) return not_written();
    size_ = head_.size() + last_.size();
    out_.open(path_, std::ios::app | std::ios::binary);
    return out_ ? Status() : not_written();
  }
  Status not_written() const {
    return invalid(fmt::format("cannot write to {}: give another folder with --log", path_));
  }

  std::string path_;
  std::string head_;
  std::string last_;
  std::uintmax_t size_ = 0;
  std::ofstream out_;
  std::optional<Explorer::State> state_;
};

struct Report {
  std::string name;
  simulation::ExplorerCounts counts;
  double estimate = 0;  // of executions; 0 if the search went on from a log
  double seconds = 0;   // of this run
  std::uint64_t remaining = 0;
  bool is_complete = false;
  std::string doubt;    // why it cannot be complete
  std::string refusal;  // why it was not begun
  std::optional<FailureReport> failure;
};

// One search, in a process of its own.
class Search {
 public:
  Search(const ExhaustOptions& options, std::string name, Case value)
      : options_(options), value_(std::move(value)) {
    report_.name = std::move(name);
  }

  Status start() {
    if (!shared_.is_good()) return invalid("there is no memory for the schedule of a search");
    const std::string stem = std::filesystem::path(report_.name).stem().string();
    const std::string key = fmt::format("{:016x} {} {}", hash_of(with_default_schedule()),
                                        options_.subject.name(), kCommit);
    LOCKSTEP_RETURN_IF_ERROR(log_.open(
        fmt::format("{}/{}-{}.jsonl", options_.log, stem, file_name_of(options_.subject)), key));
    start_ = last_heard_ = Clock::now();
    return child_.start([this](ChildLine& line) { serve(line); });
  }

  // Takes what the process has to say. Returns whether it is over.
  Result<bool> look() {
    std::string text;
    const Child::Received heard = child_.receive(text, kTurnOfSearch);
    report_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (heard == Child::Received::kMessage) {
      last_heard_ = Clock::now();
      if (Status status = take(nlohmann::json::parse(text)); !status.ok()) return failed(status);
    } else if (heard == Child::Received::kLost) {
      const Verdict verdict = crash_of(child_, options_.subject);
      if (verdict.failing == Failing::kInconclusive)
        return failed(Status(Code::kInternal, verdict.message));
      fail_with(verdict, shared_.schedule());
    } else if (heard == Child::Received::kNothing && Clock::now() - last_heard_ > kHungAfter) {
      const std::string stacks = child_.take_stacks();
      child_.end();
      fail_with(hang_of(HangWatch::Found::kHung, kHungAfter, LaneKind::kSim, stacks),
                shared_.schedule());
    }
    const bool is_over = heard == Child::Received::kFinished || report_.failure.has_value();
    if (is_over) child_.end();
    return is_over;
  }
  void interrupt() { child_.end(); }
  const Report& report() const { return report_; }

 private:
  static std::string file_name_of(const Subject& subject) {
    std::string name = subject.name();
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '/' || c == ':'; }, '-');
    return name;
  }
  Case with_default_schedule() const {
    Case value = value_;
    value.schedule = Schedule{};
    return value;
  }

  // ---- In the process of the search ----

  void serve(ChildLine& line) {
    ExhaustiveSearch search(value_, options_.subject);
    nlohmann::json first = {{"estimate", 0.0}};
    if (log_.state()) {
      search.restore(*log_.state());
    } else {
      const double estimate = search.estimate(kProbes);
      first["estimate"] = estimate;
      if (estimate > options_.most) {
        first["refused"] = true;
        line.send(first.dump());
        return;
      }
    }
    line.send(first.dump());
    search.tell_deviations([this](simulation::Deviation each) { shared_.add(each); });
    const Clock::time_point begin = Clock::now();
    Clock::time_point reported = begin;
    Clock::duration until_report = kFirstReport;
    while (!search.is_over()) {
      shared_.begin();
      const Verdict verdict = search.run();
      if (!verdict.ok()) return send_failure(line, search, verdict);
      const Clock::time_point now = Clock::now();
      const bool is_time_over =
          std::chrono::duration<double>(now - begin).count() >= options_.seconds;
      if (now - reported < until_report && !is_time_over) continue;
      reported = now;
      until_report = std::min<Clock::duration>(2 * until_report, kReportEvery);
      if (!send_state(line, search) || is_time_over) return;
    }
    (void)send_state(line, search);
  }

  static bool send_state(ChildLine& line, const ExhaustiveSearch& search) {
    const Explorer& explorer = search.explorer();
    return line.send(nlohmann::json{{"state", to_log_line(explorer.state())},
                                    {"remaining", explorer.remaining()},
                                    {"complete", explorer.is_complete()},
                                    {"doubt", explorer.anomaly()}}
                         .dump());
  }

  static void send_failure(ChildLine& line, const ExhaustiveSearch& search,
                           const Verdict& verdict) {
    const Explorer& explorer = search.explorer();
    line.send(nlohmann::json{{"outcome", to_json(outcome_of(verdict, search.observation()))},
                             {"executions", explorer.counts().executions}}
                  .dump());
  }

  // ---- In this process ----

  Status take(const nlohmann::json& message) {
    if (message.contains("estimate")) {
      report_.estimate = message.at("estimate");
      if (message.contains("refused"))
        report_.refusal = fmt::format(
            "it is too large: about {:.1g} executions, estimated from {} random ones, and the most "
            "is {:.1g} (--most): leave out parameters, passes or threads",
            report_.estimate, kProbes, options_.most);
      if (log_.state()) take_state(*log_.state());
      return {};
    }
    if (message.contains("outcome")) {
      Result<Outcome> outcome = outcome_from_json(message.at("outcome"));
      if (!outcome) return outcome.error();
      report_.counts.executions = message.at("executions");
      Schedule schedule;
      for (const auto& [choice, fiber] : outcome->deviations)
        schedule.deviations.push_back({choice, fiber});
      fail_with(outcome->verdict, std::move(schedule));
      return {};
    }
    const std::string line = message.at("state");
    Result<Explorer::State> state = state_from_log_line(line);
    if (!state) return state.error();
    take_state(*state);
    report_.remaining = message.at("remaining");
    report_.is_complete = message.at("complete");
    report_.doubt = message.at("doubt");
    return log_.add(line);
  }

  void take_state(const Explorer::State& state) {
    report_.counts = state.counts;
    report_.is_complete = state.is_over && state.counts.anomalies == 0;
    if (state.counts.anomalies != 0) report_.doubt = "an earlier run of the search had a doubt";
  }

  // Saves the execution as a case, and runs it once more for the report.
  void fail_with(Verdict verdict, Schedule schedule) {
    FailureReport failure;
    failure.value = value_;
    failure.value.schedule = std::move(schedule);
    failure.lane = name_of(LaneKind::kSim);
    failure.subject = options_.subject.name();
    failure.program = options_.program;
    failure.commit = kCommit;
    CaseServer server(LaneKind::kSim, options_.subject);
    failure.outcome = server.run(failure.value, {false, false, true});
    if (!failure.outcome.verdict.same_failure(verdict)) {
      verdict.message += "\n(it did not fail again when it was run once more)";
      failure.outcome.verdict = std::move(verdict);
    }
    const std::string path = fmt::format("{}/exhaust-{}-{}.json", options_.out,
                                         std::filesystem::path(report_.name).stem().string(),
                                         file_name_of(options_.subject));
    std::error_code error;
    std::filesystem::create_directories(options_.out, error);
    const std::string about = fmt::format("{} on subject {}, found by exhaust after {} executions",
                                          name_of(failure.outcome.verdict.failing), failure.subject,
                                          report_.counts.executions);
    if (write_case(path, failure.value, about).ok())
      failure.case_file = path;
    else
      write_aside(fmt::format("lockstep: cannot write {}; the case, so that it is not lost:\n{}\n",
                              path, to_json(failure.value, about)));
    report_.failure = std::move(failure);
  }

  const ExhaustOptions& options_;
  const Case value_;
  SharedSchedule shared_;
  SearchLog log_;
  Child child_;
  Clock::time_point start_;
  Clock::time_point last_heard_;
  Report report_;
};

std::string text_of(const Report& report) {
  const simulation::ExplorerCounts& counts = report.counts;
  if (!report.refusal.empty()) return fmt::format("{}: {}\n", report.name, report.refusal);
  std::string out = fmt::format(
      "{}: {} executions, {} choices explored, {} executions pruned by sleep sets, depth {}, {} "
      "steps, {} run again in another order",
      report.name, counts.executions, counts.choices, counts.pruned, counts.depth, counts.steps,
      counts.reordered);
  if (report.estimate > 0) out += fmt::format("; estimate {:.2g}", report.estimate);
  out += fmt::format("; {:.1f} s\n", report.seconds);
  if (report.failure) return out + "\n" + failure_block(*report.failure) + "\n";
  if (report.is_complete) return out + fmt::format("{}: complete\n", report.name);
  if (!report.doubt.empty())
    return out + fmt::format("{}: not complete, and cannot be: {}\n", report.name, report.doubt);
  return out + fmt::format(
                   "{}: not complete: {} choices are known to remain, and may lead to more; the "
                   "same command goes on\n",
                   report.name, report.remaining);
}

nlohmann::ordered_json json_of(const Report& report) {
  const simulation::ExplorerCounts& counts = report.counts;
  nlohmann::ordered_json out = {{"program", report.name},          {"complete", report.is_complete},
                                {"executions", counts.executions}, {"choices", counts.choices},
                                {"pruned", counts.pruned},         {"depth", counts.depth},
                                {"steps", counts.steps},           {"reordered", counts.reordered},
                                {"remaining", report.remaining},   {"estimate", report.estimate},
                                {"seconds", report.seconds}};
  if (!report.refusal.empty()) out["refused"] = report.refusal;
  if (!report.doubt.empty()) out["doubt"] = report.doubt;
  if (report.failure) {
    const Verdict& verdict = report.failure->outcome.verdict;
    out["failure"] = {{"verdict", name_of(verdict.failing)},
                      {"oracle", verdict.oracle},
                      {"message", verdict.message},
                      {"case_file", report.failure->case_file}};
  }
  return out;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Result<Case> find_program(const ExhaustOptions& options, const std::string& name) {
  const std::string file = fmt::format("{}/{}.json", options.folder, name);
  std::error_code error;
  const bool is_name = name.find('/') == std::string::npos && name.find('.') == std::string::npos;
  if (is_name && !std::filesystem::exists(file, error)) {
    const std::vector<std::string> names = names_in(options.folder);
    return failed(invalid(
        names.empty() ? fmt::format("there is no program '{}', because the folder {} has none: "
                                    "call from the folder of the sources, or give a case file",
                                    name, options.folder)
                      : fmt::format("there is no program '{}': give one of {}, or a case file",
                                    name, fmt::join(names, ", "))));
  }
  Result<Case> value = read_case(is_name ? file : name);
  if (!value) return value;
  if (const std::string why = ExhaustiveSearch::refuse(*value); !why.empty())
    return failed(invalid(fmt::format("the program {} cannot be searched: {}", name, why)));
  const std::string lacks =
      missing_message(*value, common_capabilities(options.subject), options.subject.name());
  if (!lacks.empty()) return failed(invalid(lacks));
  return value;
}

int code_of(const std::vector<Report>& reports) {
  int code = 0;
  for (const Report& report : reports) {
    if (report.failure) return static_cast<int>(report.failure->outcome.verdict.failing);
    if (!report.is_complete) code = kInconclusive;
  }
  return code;
}

void show(const std::vector<std::unique_ptr<Search>>& running) {
  if (::isatty(STDERR_FILENO) != 1) return;
  std::string line;
  for (const auto& search : running) {
    const Report& report = search->report();
    line += fmt::format("{}{}: {} executions, {} choices remain", line.empty() ? "" : "; ",
                        report.name, report.counts.executions, report.remaining);
  }
  replace_aside(line.substr(0, 150));
}

// Runs the searches, some at once. Returns an error if they cannot go on.
Status run_all(std::deque<std::unique_ptr<Search>> waiting, int jobs,
               std::vector<Report>& reports) {
  std::vector<std::unique_ptr<Search>> running;
  while (!interrupted() && (!waiting.empty() || !running.empty())) {
    while (!waiting.empty() && running.size() < static_cast<std::size_t>(jobs)) {
      LOCKSTEP_RETURN_IF_ERROR(waiting.front()->start());
      running.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
    for (auto& search : running) {
      const Result<bool> is_over = search->look();
      if (!is_over) return is_over.error();
      if (!*is_over) continue;
      clear_aside();
      reports.push_back(search->report());
      tell(text_of(reports.back()));
      search.reset();
    }
    std::erase(running, nullptr);
    show(running);
  }
  for (auto& search : running) {
    search->interrupt();
    reports.push_back(search->report());
    tell(text_of(reports.back()));
  }
  return {};
}

}  // namespace

int run_exhaust(const ExhaustOptions& options) {
  watch_for_interrupt();
  const ScratchFolder scratch;
  std::deque<std::unique_ptr<Search>> searches;
  for (const std::string& name : options.programs) {
    Result<Case> value = find_program(options, name);
    if (!value) return complain(value.error());
    searches.push_back(std::make_unique<Search>(options, name, std::move(*value)));
  }
  std::vector<Report> reports;
  const Status status = run_all(std::move(searches), options.jobs, reports);
  if (!status.ok()) return complain(status);
  if (!options.json.empty()) {
    nlohmann::ordered_json all = {
        {"schema", 1}, {"subject", options.subject.name()}, {"commit", kCommit}};
    for (const Report& report : reports) all["programs"].push_back(json_of(report));
    if (const Status written = write_file(options.json, all.dump(1) + "\n"); !written.ok())
      return complain(written);
  }
  const int code = code_of(reports);
  if (interrupted() && code == kInconclusive) return kInterrupted;
  return code;
}

}  // namespace lockstep::properties
