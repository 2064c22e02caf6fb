// Matrix: what `lockstep matrix` found: groups of cases by subjects (reducers). A cell says how the
// subject fared with the cases of the row, and has the command that replays one of each kind.
//
// Every subject is held to Lockstep's contract (reference/CONTRACT.md). A subject may have a
// profile of its own, which says what it does instead (subject/profile.h). It tells failures that
// are known from new ones.
//
// These are pure functions. Failure: see Page::html().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "properties/oracle/verdict.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

// What became of one case on one subject; the worst comes first.
enum class CellKind : std::uint8_t {
  kCrash,
  kHang,
  kWrongBits,
  kWrongError,  // a wrong or a missing error
  kOther,       // a leak, a race, a run that cannot be repeated
  // The gradients and errors are right; buckets or collectives are not those of the contract.
  kOtherBuckets,
  kUnknown,        // the run proved nothing
  kNotRun,         // the command was interrupted before
  kNotApplicable,  // the subject says that it lacks a capability
  kRight,
};
constexpr std::size_t kCellKinds = 10;
const char* name_of(CellKind kind);
bool is_failure(CellKind kind);
CellKind kind_of(const Verdict& verdict);

// What the subject's own profile says of a failure.
enum class Standing : std::uint8_t {
  kNew,         // it expects something else, or the subject has no profile
  kKnown,       // it expects the failure
  kUnmodelled,  // it does not say what comes out of the steps in which the case fails
};
constexpr std::size_t kStandings = 3;
const char* name_of(Standing standing);  // new, known, unmodelled

struct MatrixSubject {
  std::string name;
  std::string lane;
  bool has_own_profile = false;
};

struct MatrixResult {
  CellKind kind = CellKind::kNotRun;
  Standing standing = Standing::kNew;  // of a failure
  std::string oracle;
  std::string message;  // kNotApplicable: what the subject lacks
  // Of a case that is about one fault: whether that has acted, and the longest time that each rank
  // without the fault took from the beginning of a step to its error.
  bool has_acted = true;
  struct Wait {
    std::uint32_t rank = 0;
    double seconds = 0;
  };
  std::vector<Wait> waits = {};
};

struct MatrixCase {
  std::string name;                   // such as "seed 1, case 7", or the file
  std::string file;                   // empty as long as there is none
  std::vector<std::size_t> rows;      // ascending
  std::vector<MatrixResult> results;  // one for each subject
  double timeout_s = 0;               // of a case that is about one fault: how long its ranks wait
};

struct MatrixRow {
  std::string section;  // the heading; rows of one section stand together
  std::string label;
};

struct Matrix {
  std::string program;  // its name in the commands
  std::string command;  // that made the matrix
  std::string commit;
  std::vector<MatrixSubject> subjects;
  std::vector<MatrixRow> rows;
  std::vector<MatrixCase> cases;
};

struct MatrixCell {
  std::array<std::size_t, kCellKinds> counts{};
  std::array<std::size_t, kStandings> failures{};  // by what the subject's own profile says
  std::size_t idle = 0;                            // cases about one fault that did nothing
  double longest_s = 0;                            // until an error; 0: there was none
  double timeout_s = 0;                            // of that case
  std::size_t cases() const;                       // that ran
  std::size_t count(CellKind kind) const { return counts[static_cast<std::size_t>(kind)]; }
  std::size_t count(Standing standing) const {
    return failures[static_cast<std::size_t>(standing)];
  }
  std::size_t failing() const;
};
MatrixCell cell_of(const Matrix& matrix, std::size_t row, std::size_t subject);
// Such as "12 right", "1 crash, 3 wrong bits of 12 (2 known)", "wrong bits (known)" (of one case),
// "not applicable".
std::string to_text(const MatrixCell& cell);
// The same, with all failures but those of the worst kind as one number: "1 crash + 3 of 12 (2
// known)".
std::string to_short_text(const MatrixCell& cell);

// One case for each kind of failure of each cell, in the order of the rows, the subjects and the
// kinds. They are as few different cases as a simple search finds; new
// failures come first.
struct MatrixExample {
  std::size_t row = 0;
  std::size_t subject = 0;
  CellKind kind = CellKind::kRight;
  std::size_t index = 0;  // of the case
};
std::vector<MatrixExample> examples_of(const Matrix& matrix);
std::string replay_command(const Matrix& matrix, const MatrixExample& example);

// A table for a terminal, and one example of each kind of failure of each subject.
std::string to_table(const Matrix& matrix);
std::string to_markdown(const Matrix& matrix);
std::string to_json(const Matrix& matrix);
Result<std::string> to_page(const Matrix& matrix);

}  // namespace lockstep::properties
