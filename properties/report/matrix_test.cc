#include "properties/report/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "properties/generate/generate.h"
#include "properties/report/matrix_rows.h"

namespace lockstep::properties {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

MatrixResult right() { return {CellKind::kRight, Standing::kNew, "", ""}; }
MatrixResult failed(CellKind kind, Standing standing = Standing::kNew) {
  return {kind, standing, "bits", "rank 0, element 1:\n  expected 1\n  got      2\nmore"};
}

// Three generated cases, the last of them static, and a finding, on two subjects.
Matrix example() {
  Matrix matrix;
  matrix.program = "lockstep";
  matrix.command = "lockstep matrix --subjects reducer,torch";
  matrix.commit = "abc";
  matrix.subjects = {{"reducer", "sim", false}, {"torch", "gloo", true}};
  matrix.rows = {{"generated", "all"},
                 {"generated", "static"},
                 {"findings", "a_finding"},
                 {"findings", "empty"}};
  matrix.cases = {{"seed 1, case 0", "zero.json", {0}, {right(), failed(CellKind::kWrongBits)}},
                  {"seed 1, case 1",
                   "one.json",
                   {0},
                   {right(), failed(CellKind::kWrongBits, Standing::kKnown)}},
                  {"seed 1, case 2", "two.json", {0, 1}, {right(), failed(CellKind::kCrash)}},
                  {"found.json",
                   "found.json",
                   {2},
                   {right(), {CellKind::kNotApplicable, Standing::kNew, "", "sparse"}}}};
  return matrix;
}

TEST(Matrix, EveryVerdictHasItsKind) {
  const auto kind = [](Failing failing, const char* oracle) {
    return kind_of({failing, oracle, "", {}});
  };
  EXPECT_EQ(kind(Failing::kNothing, ""), CellKind::kRight);
  EXPECT_EQ(kind(Failing::kWrongBits, "bits"), CellKind::kWrongBits);
  EXPECT_EQ(kind(Failing::kWrongBits, "view"), CellKind::kWrongBits);
  EXPECT_EQ(kind(Failing::kWrongBits, "trace"), CellKind::kOtherBuckets);
  EXPECT_EQ(kind(Failing::kWrongBits, "layout"), CellKind::kOtherBuckets);
  EXPECT_EQ(kind(Failing::kWrongError, "error"), CellKind::kWrongError);
  EXPECT_EQ(kind(Failing::kDeadlock, "progress"), CellKind::kHang);
  EXPECT_EQ(kind(Failing::kLivelock, "progress"), CellKind::kHang);
  EXPECT_EQ(kind(Failing::kCrash, "crash"), CellKind::kCrash);
  EXPECT_EQ(kind(Failing::kLeak, "leak"), CellKind::kOther);
  EXPECT_EQ(kind(Failing::kInconclusive, "environment"), CellKind::kUnknown);
}

TEST(Matrix, ACellCountsKindsAndNamesTheWorstFirst) {
  const Matrix matrix = example();
  EXPECT_EQ(to_text(cell_of(matrix, 0, 0)), "3 right");
  EXPECT_EQ(to_text(cell_of(matrix, 0, 1)), "1 crash, 2 wrong bits of 3 (1 known)");
  EXPECT_EQ(to_short_text(cell_of(matrix, 0, 1)), "1 crash + 2 of 3 (1 known)");
  EXPECT_EQ(to_text(cell_of(matrix, 1, 0)), "right");
  EXPECT_EQ(to_text(cell_of(matrix, 1, 1)), "crash");
  EXPECT_EQ(to_text(cell_of(matrix, 2, 1)), "not applicable");
  EXPECT_EQ(to_text(cell_of(matrix, 3, 1)), "no case");
}

TEST(Matrix, ACellOfWhichAllFailuresAreKnownSaysSo) {
  Matrix matrix = example();
  for (MatrixCase& each : matrix.cases) each.results[1].standing = Standing::kUnmodelled;
  EXPECT_EQ(to_text(cell_of(matrix, 0, 1)), "1 crash, 2 wrong bits of 3 (unmodelled)");
  matrix.cases[2].results[1] = {CellKind::kUnknown, Standing::kNew, "", ""};
  EXPECT_EQ(to_text(cell_of(matrix, 0, 1)), "2 wrong bits, 1 unknown of 3 (unmodelled)");
  matrix.cases[0].results[1] = {};
  EXPECT_EQ(to_text(cell_of(matrix, 0, 1)), "1 wrong bits, 1 unknown of 2 (unmodelled)");
}

TEST(Matrix, NewFailuresAreTheExamplesAndOneCaseServesSeveralCells) {
  const Matrix matrix = example();
  const std::vector<MatrixExample> examples = examples_of(matrix);
  ASSERT_EQ(examples.size(), 3u);
  EXPECT_EQ(examples[0].kind, CellKind::kCrash);
  EXPECT_EQ(examples[0].index, 2u);
  EXPECT_EQ(examples[1].kind, CellKind::kWrongBits);
  EXPECT_EQ(examples[1].index, 0u);  // case 1 is known
  EXPECT_EQ(examples[2].row, 1u);
  EXPECT_EQ(examples[2].index, 2u);
  EXPECT_EQ(replay_command(matrix, examples[0]),
            "lockstep replay two.json --lane gloo --subject torch --contract lockstep");
}

TEST(Matrix, EveryFormHasCountsLanesAndCommands) {
  const Matrix matrix = example();
  const std::string command = "lockstep replay zero.json --lane gloo --subject torch";
  EXPECT_THAT(
      to_table(matrix),
      AllOf(HasSubstr("torch (gloo)"), HasSubstr("1 crash + 2 of 3 (1 known)"), HasSubstr(command),
            HasSubstr("element 1: expected 1, got      2\n"), Not(HasSubstr("empty"))));
  EXPECT_THAT(to_markdown(matrix),
              AllOf(HasSubstr("| group of cases | cases | reducer (sim) | torch (gloo) |"),
                    HasSubstr("| all | 3 | 3 right | 1 crash, 2 wrong bits of 3 (1 known) |"),
                    HasSubstr("a\\_finding"), HasSubstr(command)));
  const nlohmann::json json = nlohmann::json::parse(to_json(matrix));
  const nlohmann::json& cell = json.at("rows").at(0).at("cells").at(1);
  EXPECT_EQ(cell.at("cases"), 3);
  EXPECT_EQ(cell.at("counts").at("wrong bits"), 2);
  EXPECT_EQ(cell.at("failures").at("known"), 1);
  EXPECT_THAT(cell.at("examples").at(1).at("replay").get<std::string>(), HasSubstr(command));
  EXPECT_EQ(json.at("cases").at(3).at("results").at(1).at("lacks"), "sparse");
}

TEST(Matrix, TextOfOthersHasNoMeaningInMarkdown) {
  Matrix matrix = example();
  matrix.subjects[1].name = "./a|b <img src=x> [c](http://d) `e`\n# f \x1b[31m";
  matrix.command = "lockstep matrix ``g`\n";
  const std::string text = to_markdown(matrix);
  EXPECT_THAT(text, HasSubstr("./a\\|b \\<img src=x\\> \\[c\\](http://d) \\`e\\`\\\\n# f "
                              "\\\\u001b\\[31m"));
  EXPECT_THAT(text, HasSubstr("Made by ``` lockstep matrix ``g`\\n ``` (commit"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\n# f")));
}

TEST(Matrix, ThePageMarksWhatIsNewAndShadesWhatIsKnown) {
  Matrix matrix = example();
  matrix.cases[2].results[1] = failed(CellKind::kHang, Standing::kKnown);
  const Result<std::string> page = to_page(matrix);
  if (!page) GTEST_SKIP() << page.error().failure().detail;
  EXPECT_THAT(*page, HasSubstr("<td class=\" bad\">1\u00a0hang +\u00a02\u00a0of\u00a03 (2"));
  EXPECT_THAT(*page, HasSubstr("<td class=\" shaded\">hang (known)</td>"));
  EXPECT_THAT(*page, HasSubstr("lockstep replay zero.json --lane gloo"));
}

// A row that no case ever has would be a mistake in its list of features.
TEST(MatrixRows, EveryRowHasCasesAndNoneButTheFirstHasAll) {
  const std::vector<std::string> labels = generated_rows();
  std::vector<std::size_t> counts(labels.size(), 0);
  constexpr std::size_t kCases = 600;
  for (std::uint64_t i = 0; i < kCases; ++i)
    for (const std::size_t row : generated_rows_of(generate(1, i))) ++counts[row];
  EXPECT_EQ(counts[0], kCases);
  for (std::size_t r = 1; r < labels.size(); ++r) {
    EXPECT_GT(counts[r], 0u) << labels[r];
    EXPECT_LT(counts[r], kCases) << labels[r];
  }
}

TEST(MatrixRows, ACaseIsInTheRowsOfItsOptionsAndFaults) {
  Case c;
  c.program.options.mode = reference::Mode::kStatic;
  c.program.options.views = true;
  c.program.steps.resize(1);
  c.faults.faults.push_back({.kind = faults::Kind::kRankExit});
  normalize(c);
  std::vector<std::string> labels;
  for (const std::size_t row : generated_rows_of(c)) labels.push_back(generated_rows()[row]);
  for (const char* label :
       {"all generated cases", "static mode", "gradients as bucket views", "fault: a rank exits"})
    EXPECT_THAT(labels, Contains(label));
  for (const char* label : {"plain mode", "no fault", "sparse gradients"})
    EXPECT_THAT(labels, Not(Contains(label)));
}

}  // namespace
}  // namespace lockstep::properties
