#include "properties/report/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "properties/process/shell_word.h"
#include "properties/report/failure_report.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

constexpr std::array<const char*, kCellKinds> kNames = {
    "crash",         "hang",    "wrong bits", "wrong error",    "other failure",
    "other buckets", "unknown", "not run",    "not applicable", "right"};

constexpr std::array<const char*, kCellKinds> kPlurals = {
    "crashes",       "hangs",   "wrong bits", "wrong errors",   "other failures",
    "other buckets", "unknown", "not run",    "not applicable", "right"};

// Oracles that judge after all gradients and errors were found right (oracle/judge.cc).
constexpr std::array<const char*, 4> kBucketOracles = {"layout", "trace", "padding", "overlap"};

constexpr CellKind kind_at(std::size_t index) { return static_cast<CellKind>(index); }

// Whether a case with this kind has run. kUnknown has, and proved nothing.
bool has_run(CellKind kind) {
  return kind != CellKind::kNotRun && kind != CellKind::kNotApplicable;
}

}  // namespace

const char* name_of(CellKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

const char* name_of(Standing standing) {
  constexpr std::array<const char*, kStandings> kStandingNames = {"new", "known", "unmodelled"};
  return kStandingNames[static_cast<std::size_t>(standing)];
}

bool is_failure(CellKind kind) { return kind < CellKind::kUnknown; }

CellKind kind_of(const Verdict& verdict) {
  switch (verdict.failing) {
    case Failing::kNothing:
      return CellKind::kRight;
    case Failing::kInconclusive:
      return CellKind::kUnknown;
    case Failing::kWrongBits:
      return std::find(kBucketOracles.begin(), kBucketOracles.end(), verdict.oracle) !=
                     kBucketOracles.end()
                 ? CellKind::kOtherBuckets
                 : CellKind::kWrongBits;
    case Failing::kDeadlock:
    case Failing::kLivelock:
      return CellKind::kHang;
    case Failing::kCrash:
      return CellKind::kCrash;
    case Failing::kWrongError:
      return CellKind::kWrongError;
    case Failing::kUsage:
    case Failing::kNotDeterministic:
    case Failing::kLeak:
    case Failing::kSubjectsDiffer:
    case Failing::kRace:
    case Failing::kUnproven:
      break;
  }
  return CellKind::kOther;
}

std::size_t MatrixCell::cases() const {
  std::size_t out = 0;
  for (std::size_t k = 0; k < kCellKinds; ++k) out += has_run(kind_at(k)) ? counts[k] : 0;
  return out;
}

std::size_t MatrixCell::failing() const {
  return std::accumulate(failures.begin(), failures.end(), std::size_t{0});
}

MatrixCell cell_of(const Matrix& matrix, std::size_t row, std::size_t subject) {
  MatrixCell cell;
  for (const MatrixCase& each : matrix.cases) {
    if (!std::binary_search(each.rows.begin(), each.rows.end(), row)) continue;
    const MatrixResult& result = each.results[subject];
    ++cell.counts[static_cast<std::size_t>(result.kind)];
    if (is_failure(result.kind)) ++cell.failures[static_cast<std::size_t>(result.standing)];
    if (has_run(result.kind) && !result.has_acted) ++cell.idle;
    for (const MatrixResult::Wait& wait : result.waits) {
      if (wait.seconds <= cell.longest_s) continue;
      cell.longest_s = wait.seconds;
      cell.timeout_s = each.timeout_s;
    }
  }
  return cell;
}

namespace {

// " (2 known, 1 unmodelled)", " (known)" if all are; nothing if all are new.
std::string standings_of(const MatrixCell& cell) {
  std::string out;
  for (const Standing standing : {Standing::kKnown, Standing::kUnmodelled}) {
    const std::size_t count = cell.count(standing);
    if (count == 0) continue;
    if (count == cell.failing()) return fmt::format(" ({})", name_of(standing));
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, name_of(standing));
  }
  return out.empty() ? out : " (" + out + ")";
}

// Of a cell in which nothing failed.
std::string text_without_failure(const MatrixCell& cell) {
  if (cell.cases() == 1) return name_of(CellKind::kRight);
  if (cell.cases() > 0) return fmt::format("{} right", cell.cases());
  if (cell.count(CellKind::kNotRun) > 0) return name_of(CellKind::kNotRun);
  return cell.count(CellKind::kNotApplicable) > 0 ? name_of(CellKind::kNotApplicable) : "no case";
}

// What cases about one fault add: "; errors within 2.1 s (timeout 2 s); 1 fault did nothing".
std::string times_of(const MatrixCell& cell) {
  std::string out;
  if (cell.longest_s > 0)
    out += fmt::format("; errors within {:.2f} s (timeout {:g} s)", cell.longest_s, cell.timeout_s);
  if (cell.idle > 0 && cell.cases() == 1)
    out += "; the fault did nothing";
  else if (cell.idle > 0)
    out += fmt::format("; {} fault{} did nothing", cell.idle, cell.idle == 1 ? "" : "s");
  return out;
}

// The failures and what proved nothing, each with its count, the worst first.
std::vector<std::string> parts_of(const MatrixCell& cell) {
  std::vector<std::string> out;
  for (std::size_t k = 0; k < kCellKinds; ++k) {
    if (cell.counts[k] == 0) continue;
    if (!is_failure(kind_at(k)) && kind_at(k) != CellKind::kUnknown) continue;
    out.push_back(cell.cases() == 1 ? kNames[k]
                                    : fmt::format("{} {}", cell.counts[k],
                                                  cell.counts[k] == 1 ? kNames[k] : kPlurals[k]));
  }
  return out;
}

}  // namespace

std::string to_text(const MatrixCell& cell) {
  const std::vector<std::string> parts = parts_of(cell);
  if (parts.empty()) return text_without_failure(cell) + times_of(cell);
  const std::string of = cell.cases() == 1 ? "" : fmt::format(" of {}", cell.cases());
  return fmt::format("{}{}{}{}", fmt::join(parts, ", "), of, standings_of(cell), times_of(cell));
}

std::string to_short_text(const MatrixCell& cell) {
  const std::vector<std::string> parts = parts_of(cell);
  if (parts.size() < 2) return to_text(cell);
  const std::size_t worst = *std::find_if(cell.counts.begin(), cell.counts.end(),
                                          [](std::size_t count) { return count > 0; });
  return fmt::format("{} + {} of {}{}{}", parts.front(),
                     cell.failing() + cell.count(CellKind::kUnknown) - worst, cell.cases(),
                     standings_of(cell), times_of(cell));
}

std::vector<MatrixExample> examples_of(const Matrix& matrix) {
  // For each kind of failure of each cell: the cases, new failures first.
  using Key = std::tuple<std::size_t, std::size_t, CellKind>;
  std::map<Key, std::vector<std::pair<Standing, std::size_t>>> candidates;
  for (std::size_t c = 0; c < matrix.cases.size(); ++c) {
    LOCKSTEP_CHECK_EQ(matrix.cases[c].results.size(), matrix.subjects.size());
    for (const std::size_t row : matrix.cases[c].rows)
      for (std::size_t s = 0; s < matrix.subjects.size(); ++s)
        if (const MatrixResult& result = matrix.cases[c].results[s]; is_failure(result.kind))
          candidates[{row, s, result.kind}].emplace_back(result.standing, c);
  }
  std::vector<MatrixExample> out;
  std::set<std::size_t> chosen;
  for (auto& candidate : candidates) {
    const auto& key = candidate.first;
    auto& cases = candidate.second;
    std::sort(cases.begin(), cases.end());
    const auto end = std::find_if(cases.begin(), cases.end(), [&cases](const auto& each) {
      return each.first != cases.front().first;
    });
    const auto again = std::find_if(
        cases.begin(), end, [&chosen](const auto& each) { return chosen.contains(each.second); });
    const std::size_t index = again == end ? cases.front().second : again->second;
    chosen.insert(index);
    out.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), index});
  }
  return out;
}

std::string replay_command(const Matrix& matrix, const MatrixExample& example) {
  const MatrixSubject& subject = matrix.subjects[example.subject];
  std::string out = fmt::format("{} replay {} --lane {}", shell_word(matrix.program),
                                shell_word(matrix.cases[example.index].file), subject.lane);
  if (subject.name != "reducer") out += " --subject " + shell_word(subject.name);
  if (subject.has_own_profile) out += " --contract lockstep";
  return out;
}

}  // namespace lockstep::properties
