#include "properties/cli/eval.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "faults/seeded/seeded.h"
#include "properties/case/case_json.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/cli/scratch.h"
#include "properties/cli/server.h"
#include "properties/cli/workers.h"
#include "properties/components/search.h"
#include "properties/generate/generate.h"
#include "properties/process/terminal.h"
#include "properties/report/evaluation.h"
#include "properties/shrink/size.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

using components::Component;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTurnOfTrial{5};  // for each trial in turn

// The key of a trial in the log: the planted bug, and the seed of the cases.
using TrialKey = std::pair<std::string, std::uint64_t>;

constexpr std::size_t kMostBytesOfTrials = 64u << 20u;
constexpr std::string_view kLogBegins = R"({"lockstep_eval")";

Status in_file(const std::string& path, const Status& status) {
  return {Code::kInvalidArgument, fmt::format("{}: {}", path, status.failure().detail)};
}

// A trial that is running, in a process of its own.
struct Running {
  TrialKey key;
  std::unique_ptr<Workers> workers;
  Clock::time_point start;
};

// The log of an evaluation: what it had, and a place for more at its end.
class TrialLog {
 public:
  // Opens the file, or begins it. Cuts off a last line that was not written whole.
  Status open(const std::string& path, const EvaluationSettings& settings) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    LOCKSTEP_RETURN_IF_ERROR(read(path, settings));
    out_.open(path, std::ios::app);
    if (evaluation_.settings.commit.empty()) {
      evaluation_.settings = settings;
      return append(to_log_line(settings));
    }
    return out_ ? Status() : not_written();
  }
  Status add(const BugTrial& trial) {
    evaluation_.trials.push_back(trial);
    return append(to_log_line(trial));
  }
  const Evaluation& evaluation() const { return evaluation_; }

 private:
  Status read(const std::string& path, const EvaluationSettings& settings) {
    path_ = path;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return {};
    const Result<std::string> text = read_file(path, kMostBytesOfTrials);
    if (!text) return text.error();
    std::size_t whole = 0;
    Result<Evaluation> found = evaluation_from_log(*text, whole);
    if (!found) return in_file(path, found.error());
    // A file of another kind without a whole line must not be cut off.
    if (whole == 0 && text->substr(0, kLogBegins.size()) != kLogBegins.substr(0, text->size()))
      return {Code::kInvalidArgument,
              fmt::format("{} is no log of an evaluation: give another file with --log", path)};
    if (whole < text->size()) std::filesystem::resize_file(path, whole, error);
    evaluation_ = std::move(*found);
    const std::string differs = difference(evaluation_.settings, settings);
    if (whole == 0 || differs.empty()) return {};
    return {Code::kInvalidArgument,
            fmt::format("the log {} is of another evaluation ({}): give another file with --log",
                        path, differs)};
  }
  // Says how the settings of the log differ from those of this run; empty if they do not.
  static std::string difference(const EvaluationSettings& log, const EvaluationSettings& now) {
    const auto drawn = [](const std::string& policy) {
      return policy.empty() ? std::string("as drawn") : policy;
    };
    std::vector<std::string> words;
    const auto compare = [&](const char* name, const std::string& old, const std::string& other) {
      if (old != other)
        words.push_back(fmt::format("the log has {} {}, and this run {}", name, old, other));
    };
    compare("cases", fmt::format("{}", log.cases), fmt::format("{}", now.cases));
    compare("lane", log.lane, now.lane);
    compare("commit", log.commit, now.commit);
    compare("policy", drawn(log.policy), drawn(now.policy));
    return fmt::format("{}", fmt::join(words, "; "));
  }
  Status not_written() const {
    return {Code::kInvalidArgument,
            fmt::format("cannot write to {}: give another file with --log", path_)};
  }
  Status append(const std::string& line) {
    out_ << line << std::flush;
    return out_ ? Status() : not_written();
  }

  std::string path_;
  std::ofstream out_;
  Evaluation evaluation_;
};

class Eval {
 public:
  explicit Eval(const EvalOptions& options) : options_(options) {}

  // Returns an error if the run cannot go on. Trials that were interrupted are not in the log.
  Status run() {
    LOCKSTEP_RETURN_IF_ERROR(log_.open(options_.log, settings()));
    LOCKSTEP_RETURN_IF_ERROR(plan());
    const std::size_t all = waiting_.size();
    while (!interrupted() && (!waiting_.empty() || !running_.empty())) {
      while (!waiting_.empty() && running_.size() < static_cast<std::size_t>(options_.jobs)) {
        LOCKSTEP_RETURN_IF_ERROR(start(waiting_.front()));
        waiting_.pop_front();
      }
      for (Running& trial : running_) LOCKSTEP_RETURN_IF_ERROR(look_at(trial));
      std::erase_if(running_, [](const Running& trial) { return trial.workers == nullptr; });
      show(all - waiting_.size() - running_.size(), all);
    }
    clear_aside();
    return {};
  }

  // The trials that were asked for, in this run and before it.
  Evaluation result() const {
    Evaluation out{log_.evaluation().settings, {}};
    for (const BugTrial& trial : log_.evaluation().trials)
      if (wanted_.contains({trial.bug, trial.seed})) out.trials.push_back(trial);
    return out;
  }
  std::size_t wanted() const { return wanted_.size(); }
  bool is_whole() const { return result().trials.size() == wanted(); }
  bool has_doubts() const { return has_doubts_; }

 private:
  Status plan() {
    std::vector<std::string> bugs = options_.bugs;
    if (bugs.empty())
      for (const seeded::Bug& bug : seeded::bugs()) bugs.emplace_back(bug.id);
    std::set<TrialKey> done;
    for (const BugTrial& trial : log_.evaluation().trials) done.insert({trial.bug, trial.seed});
    for (std::uint64_t t = 0; t < options_.trials; ++t) {
      for (const std::string& bug : bugs) {
        const TrialKey key{bug, options_.seed + t};
        if (!wanted_.insert(key).second || done.contains(key)) continue;
        waiting_.push_back(key);
      }
    }
    for (const std::string& bug : bugs)
      if (Result<Subject> subject = parse_subject("seeded:" + bug); !subject)
        return subject.error();
    (void)seeded::select("");
    return {};
  }

  static const Component* component_for(const seeded::Bug& bug) {
    return components::find_component(components::component_of(bug), true);
  }

  // The components that look for the bug: all, if that was asked for, or the one that its patch
  // names; none if generated programs have to find it.
  std::vector<const Component*> components_for(const std::string& id) const {
    std::vector<const Component*> list;
    if (options_.components)
      for (const Component& each : components::components(true)) list.push_back(&each);
    if (options_.components) return list;
    for (const seeded::Bug& bug : seeded::bugs())
      if (const Component* const own = component_for(bug); own != nullptr && bug.id == id)
        list.push_back(own);
    return list;
  }

  EvaluationSettings settings() const {
    return {options_.cases, options_.components ? "components" : "sim", kCommit,
            options_.policy ? name_of(*options_.policy) : ""};
  }
  GenerateOptions generate_options(const Subject& subject) const {
    GenerateOptions options;
    options.capabilities = common_capabilities(subject);
    options.policy = options_.policy;
    return options;
  }

  // Looks for a bug with components, one after the other, until one finds it.
  Status try_components(const TrialKey& key, const std::vector<const Component*>& list) {
    components::SearchOptions search;
    search.seed = key.second;
    search.most = options_.cases;
    search.shrink_seconds = options_.shrink_seconds;
    search.is_interrupted = interrupted;
    LOCKSTEP_CHECK(seeded::select(key.first));
    const Clock::time_point start = Clock::now();
    BugTrial trial;
    trial.bug = key.first;
    trial.seed = key.second;
    for (const Component* const component : list) {
      const Result<components::SearchResult> result = components::search(*component, search);
      if (!result) return result.error();
      trial.executions = result->situations;
      if (!result->failed) continue;
      trial.found = true;
      trial.reached = trial.triggered = 1;  // at least
      trial.oracle = fmt::format("component {}", component->name);
      trial.index = result->failed->index;
      if (options_.shrink_seconds > 0) trial.shrunk = result->failed->choices.size();
      break;
    }
    (void)seeded::select("");
    trial.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return interrupted() ? Status() : log_.add(trial);
  }

  Status start(const TrialKey& key) {
    if (const auto list = components_for(key.first); !list.empty())
      return try_components(key, list);
    Result<Subject> subject = parse_subject("seeded:" + key.first);
    if (!subject) return subject.error();
    WorkerPlan plan;
    plan.subject = std::move(*subject);
    plan.generate = generate_options(plan.subject);
    plan.seed = key.second;
    plan.cases = options_.cases;
    Running trial{key, std::make_unique<Workers>(std::move(plan)), Clock::now()};
    LOCKSTEP_RETURN_IF_ERROR(trial.workers->start());
    running_.push_back(std::move(trial));
    return {};
  }

  // Gives the trial a turn. Ends it if it found its bug, or has no more cases.
  Status look_at(Running& trial) {
    std::optional<Found> found = trial.workers->wait(kTurnOfTrial);
    if (found && found->outcome.verdict.failing == Failing::kInconclusive)
      return {Code::kInvalidArgument,
              fmt::format("{}, seed {}: {}", trial.key.first, trial.key.second,
                          found->outcome.verdict.message)};
    if (found && fails_without_the_bug(trial, *found)) found.reset();
    if (!found && !trial.workers->all_done()) return {};
    const Clock::duration took = Clock::now() - trial.start;
    (void)trial.workers->stop();
    const Totals totals = trial.workers->totals();
    BugTrial result{trial.key.first,
                    trial.key.second,
                    found.has_value(),
                    found ? found->index + 1 : options_.cases,
                    std::chrono::duration<double>(took).count(),
                    totals.planted.reached,
                    totals.planted.triggered,
                    found ? found->outcome.verdict.oracle : "",
                    found ? found->index : 0};
    trial.workers.reset();
    if (found) result.shrunk = shrunk_size(trial, *found);
    return log_.add(result);
  }

  std::optional<std::uint64_t> shrunk_size(const Running& trial, const Found& found) const {
    const Result<Subject> subject = parse_subject("seeded:" + trial.key.first);
    if (options_.shrink_seconds <= 0 || !subject) return std::nullopt;
    const Case c = generate(trial.key.second, found.index, generate_options(*subject));
    const Shrunk shrunk =
        shrink_failure(c, found.outcome, LaneKind::kSim, *subject, options_.shrink_seconds);
    if (!shrunk.reproduced) return std::nullopt;
    const Size size = size_of(shrunk.value);
    return size.ranks + size.steps + size.parameters + size.faults + size.records + size.deviations;
  }

  // Such a case shows a bug of the reducer itself, or of the suite, and not the planted one.
  bool fails_without_the_bug(const Running& trial, const Found& found) {
    CaseServer server(LaneKind::kSim, Subject());
    const Case c = generate(trial.key.second, found.index, generate_options(Subject()));
    const Outcome outcome = server.run(c);
    if (outcome.verdict.ok()) return false;
    has_doubts_ = true;
    remark(fmt::format(
        "case {} of seed {} fails without a planted bug as well ({}): it does not count",
        found.index, trial.key.second, outcome.verdict.oracle));
    return true;
  }

  void show(std::size_t done, std::size_t all) {
    const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
    if (done == shown_ || (!is_terminal && done % std::max<std::size_t>(all / 10, 1) != 0)) return;
    shown_ = done;
    replace_aside(fmt::format("{} of {} trials", done, all));
  }

  const EvalOptions& options_;
  TrialLog log_;
  std::set<TrialKey> wanted_;
  std::deque<TrialKey> waiting_;
  std::vector<Running> running_;
  std::size_t shown_ = 0;
  bool has_doubts_ = false;
};

Result<Evaluation> read_evaluation(const std::string& path) {
  const Result<std::string> text = read_file(path, kMostBytesOfTrials);
  if (!text) return failed(Status(text.error()));
  std::size_t whole = 0;
  Result<Evaluation> found = evaluation_from_log(*text, whole);
  if (!found) return failed(in_file(path, found.error()));
  if (found->trials.empty())
    return failed(Status(Code::kInvalidArgument, fmt::format("{} has no trials", path)));
  return found;
}

int compare_logs(const EvalOptions& options) {
  const Result<Evaluation> before = read_evaluation(options.compare.front());
  if (!before) return complain(before.error());
  const Result<Evaluation> after = read_evaluation(options.compare.back());
  if (!after) return complain(after.error());
  const Result<std::string> text = compare(*before, *after);
  if (!text) return complain(text.error());
  tell(*text);
  return 0;
}

Status write_reports(const EvalOptions& options, const Evaluation& evaluation) {
  if (!options.json.empty())
    LOCKSTEP_RETURN_IF_ERROR(write_file(options.json, to_json(evaluation)));
  if (options.html.empty()) return {};
  const Result<std::string> page = to_page(evaluation);
  return page ? write_file(options.html, *page) : page.error();
}

// One line for each bug that a trial missed: where it is, and how far the cases came. And the share
// of the bugs that were found of those that made a difference in some case.
std::string missed_block(const Evaluation& evaluation) {
  std::string out;
  std::size_t acted = 0;
  std::size_t found = 0;
  const std::vector<BugFigures> bugs = figures_of(evaluation);
  for (const BugFigures& bug : bugs) {
    const bool is_found = bug.found == bug.trials;
    found += is_found ? 1 : 0;
    acted += is_found || bug.triggered > 0 ? 1 : 0;
    if (is_found) continue;
    const auto planted = std::find_if(seeded::bugs().begin(), seeded::bugs().end(),
                                      [&](const seeded::Bug& each) { return each.id == bug.bug; });
    const std::string_view source = planted == seeded::bugs().end() ? "" : planted->source;
    const std::string_view what = planted == seeded::bugs().end() ? "" : planted->what;
    out += fmt::format("missed: {}, {}: {}: {}\n", bug.bug,
                       bug.triggered > 0 ? "made a difference"
                       : bug.reached > 0 ? "was reached"
                                         : "was never reached",
                       source, what);
  }
  const auto percent = [](std::size_t part, std::size_t whole) {
    return 100 * static_cast<double>(part) / static_cast<double>(std::max<std::size_t>(whole, 1));
  };
  return out + fmt::format(
                   "found in every trial: {} of {} ({:.1f} %); of those that made a difference "
                   "in some case: {} of {} ({:.1f} %)\n",
                   found, bugs.size(), percent(found, bugs.size()), found, acted,
                   percent(found, acted));
}

}  // namespace

int run_eval(const EvalOptions& options) {
  if (!options.compare.empty()) return compare_logs(options);
  watch_for_interrupt();
  const ScratchFolder scratch;
  Eval eval(options);
  if (const Status status = eval.run(); !status.ok()) return complain(status);
  const Evaluation evaluation = eval.result();
  if (evaluation.trials.empty() && !interrupted()) return complain("no trial was run");
  if (!evaluation.trials.empty()) tell(to_table(evaluation) + missed_block(evaluation));
  if (!evaluation.trials.empty())
    if (const Status status = write_reports(options, evaluation); !status.ok())
      return complain(status);
  if (interrupted() && !eval.is_whole()) {
    tell(fmt::format("interrupted after {} of {} trials; the same command goes on (log {})\n",
                     evaluation.trials.size(), eval.wanted(), options.log));
    return kInterrupted;
  }
  const bool all_found = std::all_of(evaluation.trials.begin(), evaluation.trials.end(),
                                     [](const BugTrial& trial) { return trial.found; });
  return all_found && !eval.has_doubts() ? 0 : kInconclusive;
}

}  // namespace lockstep::properties
