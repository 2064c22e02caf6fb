#include "properties/cli/matrix.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>
#include <utility>

#include "properties/case/case_json.h"
#include "properties/case/invalid.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/cli/scratch.h"
#include "properties/lane/needs.h"
#include "properties/process/terminal.h"
#include "properties/report/matrix.h"
#include "properties/report/matrix_rows.h"
#include "properties/subject/torch_subject.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kCheckEvery{1};  // how often the machine's resources are checked

bool is_failing(const Outcome& outcome) {
  return !outcome.verdict.ok() && outcome.verdict.failing != Failing::kInconclusive;
}

// The rows of a kept case: the section, and the label of its group.
MatrixRow row_of_kept(const fs::path& below, const std::string& stem) {
  const std::string folder = below.has_parent_path() ? below.begin()->string() : "";
  if (folder == "torch") return {"Findings in PyTorch, a case each", stem};
  if (folder.empty()) return {"Kept cases", "regression cases"};
  return {"Kept cases", folder == "seeded" ? "cases that show planted bugs"
                                           : fmt::format("cases of the folder {}", folder)};
}

class MatrixRun {
 public:
  explicit MatrixRun(const MatrixOptions& options) : options_(options) {
    matrix_.program = options.program;
    matrix_.command = options.command;
    matrix_.commit = kCommit;
    for (const PoolStation& column : options.columns) {
      const bool has_own = column.subject.profile.is_torch();
      matrix_.subjects.push_back({column.subject.name(), name_of(column.lane), has_own});
      stations_.push_back(column);
      hold_to_lockstep(stations_.back().subject);
    }
    // Failures are run again with the profile that the subject has.
    for (const PoolStation& column : options.columns) {
      own_station_.push_back(column.subject.profile.is_torch() ? stations_.size() : kNoStation);
      if (own_station_.back() != kNoStation) stations_.push_back(column);
    }
  }

  Status load() {
    if (!options_.phases.kinds.empty()) return make_phase_cases();
    generate_cases();
    return options_.corpus == "none" ? Status() : load_kept();
  }

  // Returns an error if the machine lacks what a lane needs.
  Status run() {
    const int jobs = jobs_at_once();
    for (const PoolStation& column : options_.columns) {
      needs_.push_back(needs_of(column.lane, column.subject, jobs));
      LOCKSTEP_RETURN_IF_ERROR(check_needs(needs_.back()));
    }
    CasePool pool(stations_, jobs);
    for (std::size_t s = 0; s < matrix_.subjects.size(); ++s) add_jobs(s, pool);
    while (!interrupted() && !pool.is_done()) {
      const std::vector<PoolResult> results = pool.wait(kTurnOfPool);
      if (interrupted()) break;
      for (const PoolResult& result : results) take(result, pool);
      show();
    }
    clear_aside();
    // After Ctrl-C nobody can say whether these are new.
    for (const auto& [c, subject] : awaited_) matrix_.cases[c].results[subject] = {};
    return {};
  }

  // Writes the generated cases that the commands in the reports replay.
  Status save_examples() {
    for (const MatrixExample& example : examples_of(matrix_)) {
      MatrixCase& each = matrix_.cases[example.index];
      if (!each.file.empty()) continue;
      each.file = fmt::format("{}/matrix-{}-{}.json", options_.out, options_.seed, example.index);
      const std::string about = fmt::format("{} on subject {}, lane {}: {}", name_of(example.kind),
                                            matrix_.subjects[example.subject].name,
                                            matrix_.subjects[example.subject].lane, each.name);
      LOCKSTEP_RETURN_IF_ERROR(write_case(each.file, values_[example.index], about));
    }
    return {};
  }

  const Matrix& matrix() const { return matrix_; }
  bool has(CellKind kind) const {
    return std::any_of(matrix_.cases.begin(), matrix_.cases.end(), [kind](const MatrixCase& each) {
      return std::any_of(each.results.begin(), each.results.end(),
                         [kind](const MatrixResult& result) { return result.kind == kind; });
    });
  }

 private:
  static constexpr std::size_t kNoStation = static_cast<std::size_t>(-1);

  void add_case(Case value, std::string name, std::string file, std::vector<std::size_t> rows) {
    values_.push_back(std::move(value));
    matrix_.cases.push_back({std::move(name), std::move(file), std::move(rows),
                             std::vector<MatrixResult>(matrix_.subjects.size())});
  }

  // Every lane of the matrix can carry out these cases. They stay in turn within what each subject
  // is capable of; subjects that are capable of the same take one turn.
  void generate_cases() {
    for (const std::string& label : generated_rows())
      matrix_.rows.push_back({fmt::format("Generated cases (seed {}), by what they have; a case "
                                          "may be in several rows",
                                          options_.seed),
                              label});
    GenerateOptions generate_options;
    generate_options.is_interleaved = options_.is_interleaved;
    std::vector<Capabilities> turns;
    for (std::size_t s = 0; s < matrix_.subjects.size(); ++s) {
      const PoolStation& column = stations_[s];
      if (column.lane == LaneKind::kGloo) generate_options.lane = GenerateOptions::Lane::kGloo;
      if (std::find(turns.begin(), turns.end(), column.subject.capabilities) == turns.end())
        turns.push_back(column.subject.capabilities);
    }
    for (std::uint64_t i = 0; i < options_.cases; ++i) {
      generate_options.capabilities = turns[i % turns.size()];
      Case c = generate(options_.seed, i, generate_options);
      std::vector<std::size_t> rows = generated_rows_of(c);
      add_case(std::move(c), fmt::format("seed {}, case {}", options_.seed, i), "",
               std::move(rows));
    }
  }

  Status make_phase_cases() {
    for (const PhaseCase& each : phase_cases(options_.phases)) {
      const std::string label =
          fmt::format("{}, {} ranks", name_of(each.phase), each.value.program.world);
      for (std::uint64_t i = 0; i < options_.cases; ++i) {
        add_case(each.value, fmt::format("{}; {}", each.fault, label), "",
                 {index_of({each.fault, label})});
        matrix_.cases.back().timeout_s = each.value.timeout_ms / 1000.0;
        planned_.push_back(each.planned);
      }
    }
    return {};
  }

  // Whether the lane of the subject can carry out the fault that the case is about.
  bool can_plan(std::size_t subject, std::size_t c) const {
    if (planned_.empty() || options_.columns[subject].lane == LaneKind::kHosts) return true;
    const faults::Kind kind = planned_[c].kind;
    return !faults::is_of_host(kind) && !faults::is_of_node(kind);
  }

  // Notes what a case about one fault has shown, besides its verdict.
  void note_fault(const PoolResult& result, MatrixResult& cell) const {
    const faults::Fault& fault = planned_[result.job.id];
    cell.has_acted = result.outcome.fired[static_cast<std::size_t>(fault.kind)] > 0;
    for (const RankError& error : result.outcome.errors) {
      if (error.rank == fault.rank || error.took_us == 0) continue;
      const double seconds = static_cast<double>(error.took_us) / 1e6;
      if (cell.waits.empty() || cell.waits.back().rank != error.rank)
        cell.waits.push_back({error.rank, seconds});
      else
        cell.waits.back().seconds = std::max(cell.waits.back().seconds, seconds);
    }
  }

  Status load_kept() {
    std::error_code error;
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(options_.corpus, error))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    if (error)
      return invalid(fmt::format(
          "cannot read the folder {}: {}; name that of the kept cases with --corpus, or none",
          options_.corpus, error.message()));
    if (files.empty())
      return invalid(fmt::format("there is no case (*.json) in {}", options_.corpus));
    // The findings come last, so that each section is in one place.
    std::sort(files.begin(), files.end(), [this](const fs::path& a, const fs::path& b) {
      return std::pair(is_finding(a), a) < std::pair(is_finding(b), b);
    });
    for (const fs::path& file : files) {
      Result<Case> c = read_case(file.string());
      if (!c) return c.error();
      const MatrixRow row =
          row_of_kept(file.lexically_relative(options_.corpus), file.stem().string());
      add_case(std::move(*c), file.string(), file.string(), {index_of(row)});
    }
    return {};
  }

  bool is_finding(const fs::path& file) const {
    return *file.lexically_relative(options_.corpus).begin() == "torch";
  }

  std::size_t index_of(const MatrixRow& row) {
    const auto found =
        std::find_if(matrix_.rows.begin(), matrix_.rows.end(), [&row](const MatrixRow& each) {
          return each.section == row.section && each.label == row.label;
        });
    if (found != matrix_.rows.end()) return static_cast<std::size_t>(found - matrix_.rows.begin());
    matrix_.rows.push_back(row);
    return matrix_.rows.size() - 1;
  }

  int jobs_at_once() const {
    if (options_.jobs != 0) return options_.jobs;
    int jobs = 1;
    for (const PoolStation& column : options_.columns)
      jobs = std::max(jobs, usual_jobs(column.lane));
    return jobs;
  }

  void add_jobs(std::size_t subject, CasePool& pool) {
    for (std::size_t c = 0; c < values_.size(); ++c) {
      if (!can_plan(subject, c)) {
        MatrixResult& result = matrix_.cases[c].results[subject];
        result.kind = CellKind::kNotApplicable;
        result.message = "the lane hosts carries out the fault";
        continue;
      }
      const Capabilities lacks = missing(values_[c], stations_[subject].subject.capabilities);
      if (!lacks.empty()) {
        MatrixResult& result = matrix_.cases[c].results[subject];
        result.kind = CellKind::kNotApplicable;
        result.message = fmt::format("{}", fmt::join(names(lacks), ", "));
        continue;
      }
      pool.add({subject, c, &values_[c]});
      ++all_;
    }
  }

  void take(const PoolResult& result, CasePool& pool) {
    const std::size_t columns = options_.columns.size();
    if (result.job.station >= columns) return take_own(result);
    MatrixResult& cell = matrix_.cases[result.job.id].results[result.job.station];
    Verdict verdict = result.outcome.verdict;
    if (is_failing(result.outcome))
      if (const std::string lacks = lacking(result.job.station); !lacks.empty())
        verdict = not_run(lacks);
    cell.kind = kind_of(verdict);
    cell.oracle = verdict.ok() ? "" : verdict.oracle;
    cell.message = verdict.ok() ? "" : verdict.message;
    if (!planned_.empty()) note_fault(result, cell);
    ++done_;
    const std::size_t own = own_station_[result.job.station];
    if (!is_failure(cell.kind) || own == kNoStation) return;
    // The contract has programs that the subject's own profile knows nothing of.
    if (!missing(*result.job.value, stations_[own].subject.capabilities).empty()) {
      cell.standing = Standing::kUnmodelled;
      return;
    }
    pool.add({own, result.job.id, result.job.value});
    awaited_.emplace(result.job.id, result.job.station);
    ++all_;
  }

  // The same case, judged by the subject's own profile. It ran up to the first step that is not
  // modelled (CaseRunner).
  void take_own(const PoolResult& result) {
    const auto found = std::find(own_station_.begin(), own_station_.end(), result.job.station);
    const auto subject = static_cast<std::size_t>(found - own_station_.begin());
    MatrixResult& cell = matrix_.cases[result.job.id].results[subject];
    const bool is_whole = is_modelled({subject, result.job.id, result.job.value});
    if (result.outcome.verdict.ok())
      cell.standing = is_whole ? Standing::kKnown : Standing::kUnmodelled;
    awaited_.erase({result.job.id, subject});
    ++done_;
  }

  // Whether the subject's profile says of every step what comes out.
  bool is_modelled(const PoolJob& job) const {
    const Profile& profile = options_.columns[job.station].subject.profile;
    return modelled_steps(*job.value, profile) == job.value->program.steps.size();
  }

  // A failure proves nothing if the machine has run out of what the lane needs.
  // Looks at most once in a while, as failures may be many.
  const std::string& lacking(std::size_t subject) {
    const Clock::time_point now = Clock::now();
    if (now - checked_ < kCheckEvery) return lacks_;
    checked_ = now;
    const Status status = check_needs(still_needed(needs_[subject]));
    lacks_ = status.ok() ? "" : status.failure().detail;
    return lacks_;
  }

  void show() {
    const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
    if (done_ == shown_) return;
    if (!is_terminal &&
        done_ / std::max<std::size_t>(all_ / 10, 1) == shown_ / std::max<std::size_t>(all_ / 10, 1))
      return;
    shown_ = done_;
    replace_aside(fmt::format("{} of {} runs", done_, all_));
  }

  const MatrixOptions& options_;
  Matrix matrix_;
  std::vector<Case> values_;            // of matrix_.cases
  std::vector<faults::Fault> planned_;  // of cases about one fault, for each case; otherwise empty
  std::vector<PoolStation> stations_;
  std::vector<std::size_t> own_station_;  // for each subject: of its own profile, or kNoStation
  std::vector<Needs> needs_;              // for each subject
  Clock::time_point checked_;             // when lacks_ was found
  std::string lacks_;
  // Failures that the subject's own profile has not judged yet: the case, and the subject.
  std::set<std::pair<std::size_t, std::size_t>> awaited_;
  std::size_t all_ = 0;
  std::size_t done_ = 0;
  std::size_t shown_ = 0;
};

// Looks, before anything runs, whether cases can be written. The reports were checked (usage.h).
Status check_out(const MatrixOptions& options) {
  std::error_code error;
  fs::create_directories(options.out, error);
  if (error || ::access(options.out.c_str(), W_OK) != 0)
    return invalid(fmt::format("cannot write to the folder {} ({}): give another with --out",
                               options.out, error ? error.message() : "no permission"));
  return {};
}

Status write_reports(const MatrixOptions& options, const Matrix& matrix) {
  if (!options.markdown.empty())
    LOCKSTEP_RETURN_IF_ERROR(write_file(options.markdown, to_markdown(matrix)));
  if (!options.json.empty()) LOCKSTEP_RETURN_IF_ERROR(write_file(options.json, to_json(matrix)));
  if (options.html.empty()) return {};
  const Result<std::string> page = to_page(matrix);
  return page ? write_file(options.html, *page) : page.error();
}

int code_of(CellKind kind) {
  switch (kind) {
    case CellKind::kCrash:
      return static_cast<int>(Failing::kCrash);
    case CellKind::kHang:
      return static_cast<int>(Failing::kDeadlock);
    case CellKind::kWrongBits:
      return static_cast<int>(Failing::kWrongBits);
    case CellKind::kOther:
      return static_cast<int>(Failing::kLeak);
    default:
      return static_cast<int>(Failing::kWrongError);
  }
}

// The exit code for the worst failure of the first subject.
int worst_code(const Matrix& matrix) {
  CellKind worst = CellKind::kRight;
  for (const MatrixCase& each : matrix.cases)
    if (is_failure(each.results[0].kind)) worst = std::min(worst, each.results[0].kind);
  return is_failure(worst) ? code_of(worst) : 0;
}

}  // namespace

Status choose_cases(const std::string& faults, MatrixOptions& options) {
  constexpr std::uint64_t kUsualCases = 200;
  if (options.cases == 0) options.cases = faults.empty() ? kUsualCases : 1;
  if (faults.empty()) return {};
  GenerateOptions parsed;
  if (faults != "all") LOCKSTEP_RETURN_IF_ERROR(parse_faults(faults, parsed));
  if (faults != "all" && parsed.faults != GenerateOptions::Faults::kList)
    return invalid("--faults: write kinds of faults with commas between them, or all");
  options.phases.kinds = faults == "all" ? FaultKinds::all() : parsed.kinds;
  if (!phase_cases(options.phases).empty()) return {};
  return invalid(fmt::format("--faults: the matrix has no case with {}", faults));
}

int run_matrix(const MatrixOptions& options) {
  if (const Status status = check_out(options); !status.ok()) return complain(status);
  watch_for_interrupt();
  const ScratchFolder scratch;
  MatrixRun run(options);
  if (const Status status = run.load(); !status.ok()) return complain(status);
  if (const Status status = run.run(); !status.ok()) return complain(status, kInconclusive);
  const Status saved = run.save_examples();
  tell(to_table(run.matrix()));
  if (!saved.ok()) return complain(saved);
  if (const Status status = write_reports(options, run.matrix()); !status.ok())
    return complain(status);
  if (interrupted()) return kInterrupted;
  // A table of kept and generated cases compares subjects, and says what is known of them.
  const bool is_of_faults = !options.phases.kinds.empty();
  if (const int code = is_of_faults ? worst_code(run.matrix()) : 0; code != 0) return code;
  return run.has(CellKind::kUnknown) ? kInconclusive : 0;
}

}  // namespace lockstep::properties
