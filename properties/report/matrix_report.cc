// The forms of a matrix: text, Markdown, JSON and a page.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "properties/process/terminal.h"
#include "properties/report/matrix.h"
#include "properties/report/page.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

// Such as "torch (gloo)". Of a library the name of the file is enough.
std::string head_of(const MatrixSubject& subject) {
  const std::size_t slash = subject.name.rfind('/');
  const bool is_library = slash != std::string::npos && subject.name.find(':') == std::string::npos;
  return fmt::format("{} ({})", is_library ? subject.name.substr(slash + 1) : subject.name,
                     subject.lane);
}

std::vector<std::string> headers_of(const Matrix& matrix, std::string first) {
  std::vector<std::string> out = {std::move(first), "cases"};
  for (const MatrixSubject& subject : matrix.subjects) out.push_back(head_of(subject));
  return out;
}

std::size_t cases_of(const Matrix& matrix, std::size_t row) {
  return static_cast<std::size_t>(
      std::count_if(matrix.cases.begin(), matrix.cases.end(), [row](const MatrixCase& each) {
        return std::binary_search(each.rows.begin(), each.rows.end(), row);
      }));
}

// A row of the matrix as text.
struct TextRow {
  std::string section;
  std::vector<std::string> texts;  // the label, the number of cases, a text for each subject
};

// The rows that have a case. `text_of` makes the text of a cell.
std::vector<TextRow> text_rows(const Matrix& matrix, std::string (*text_of)(const MatrixCell&)) {
  std::vector<TextRow> out;
  for (std::size_t r = 0; r < matrix.rows.size(); ++r) {
    const std::size_t cases = cases_of(matrix, r);
    if (cases == 0) continue;
    TextRow row{matrix.rows[r].section, {matrix.rows[r].label, fmt::format("{}", cases)}};
    for (std::size_t s = 0; s < matrix.subjects.size(); ++s)
      row.texts.push_back(text_of(cell_of(matrix, r, s)));
    out.push_back(std::move(row));
  }
  return out;
}

// What the words mean that occur in the matrix.
std::vector<std::string> legend_of(const Matrix& matrix) {
  std::set<CellKind> kinds;
  std::set<Standing> standings;
  for (const MatrixCase& each : matrix.cases)
    for (const MatrixResult& result : each.results) {
      kinds.insert(result.kind);
      if (is_failure(result.kind)) standings.insert(result.standing);
    }
  std::vector<std::string> out = {
      "Every subject is held to Lockstep's contract (reference/CONTRACT.md), bit for bit. A case "
      "counts in every row that names something that it has."};
  const auto is_about_a_fault = [](const MatrixCase& each) { return each.timeout_s > 0; };
  if (std::any_of(matrix.cases.begin(), matrix.cases.end(), is_about_a_fault)) {
    out.emplace_back(
        "Each row is one fault, of rank 1, in one phase of training. Right: no wrong bit, no hang, "
        "and every other rank ended as the contract allows, where the fault tells who is to blame "
        "with that name; after a failure all ranks recovered, and the steps after it were exact.");
    out.emplace_back(
        "errors within: the longest time that a rank without the fault took from the beginning of "
        "a step to its error, beside the timeout of its collectives.");
  }
  if (!standings.empty())
    out.emplace_back("1 crash + 3 of 40: of 40 cases one crashed, and 3 failed in less bad ways.");
  if (standings.contains(Standing::kKnown))
    out.emplace_back(
        "known: the subject's own profile expects this failure (for torch see FINDINGS.md).");
  if (standings.contains(Standing::kUnmodelled))
    out.emplace_back(
        "unmodelled: that profile does not say what comes out of the steps in which the case "
        "fails.");
  if (kinds.contains(CellKind::kOtherBuckets))
    out.emplace_back(
        "other buckets: all gradients and errors are right, but buckets or collectives are not "
        "those of the contract.");
  if (kinds.contains(CellKind::kOther))
    out.emplace_back("other failure: a leak, a race, or a run that cannot be repeated.");
  if (kinds.contains(CellKind::kNotApplicable))
    out.emplace_back(
        "not applicable: the subject says that it lacks what the case needs. Such cases are left "
        "out of the other counts.");
  if (kinds.contains(CellKind::kUnknown))
    out.emplace_back("unknown: the run proved nothing, as the machine lacked something.");
  if (kinds.contains(CellKind::kNotRun))
    out.emplace_back("The command was interrupted: this is what had run by then.");
  return out;
}

// The first line of a message. If it ends in a colon, the two lines below it belong to it.
std::string first_line(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  std::getline(lines, out);
  if (!out.ends_with(':')) return out;
  for (std::string line; out.size() < text.size() && std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(' '));
    out += (out.ends_with(':') ? " " : ", ") + line;
    if (line.starts_with("got")) break;
  }
  return out;
}

const MatrixResult& result_of(const Matrix& matrix, const MatrixExample& example) {
  return matrix.cases[example.index].results[example.subject];
}

// "wrong bits (oracle: bits; known): rank 0, step 1, ..."
std::string what_of(const Matrix& matrix, const MatrixExample& example) {
  const MatrixResult& result = result_of(matrix, example);
  return fmt::format(
      "{} (oracle: {}{}): {}", name_of(example.kind), result.oracle,
      result.standing == Standing::kNew ? "" : std::string("; ") + name_of(result.standing),
      first_line(result.message));
}

// The first example of each kind of failure of each subject.
std::vector<MatrixExample> few_examples(const Matrix& matrix) {
  std::set<std::pair<std::size_t, CellKind>> seen;
  std::vector<MatrixExample> out;
  for (const MatrixExample& each : examples_of(matrix))
    if (seen.emplace(each.subject, each.kind).second) out.push_back(each);
  return out;
}

std::string title_of(const Matrix& matrix) {
  return fmt::format("{} cases on {} subject{}", matrix.cases.size(), matrix.subjects.size(),
                     matrix.subjects.size() == 1 ? "" : "s");
}

// Text of others without the signs of Markdown and HTML, in one line.
std::string for_markdown(const std::string& text) {
  constexpr std::string_view kSigns = "\\`*_[]<>|&~$";
  std::string out;
  for (const char c : printable_line(text)) {
    if (kSigns.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Code in a line: between more backticks than the text has in a row.
std::string code_for_markdown(const std::string& text) {
  const std::string line = printable_line(text);
  std::size_t longest = 0;
  std::size_t run = 0;
  for (const char c : line) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return longest == 0 ? fence + line + fence : fence + " " + line + " " + fence;
}

std::string markdown_row(const std::vector<std::string>& texts) {
  std::string out = "|";
  for (const std::string& text : texts) out += " " + for_markdown(text) + " |";
  return out + "\n";
}

Json json_of(const MatrixCell& cell) {
  Json out = {{"cases", cell.cases()}};
  for (std::size_t k = 0; k < kCellKinds; ++k) {
    if (cell.counts[k] == 0) continue;
    const char* name = name_of(static_cast<CellKind>(k));
    out["counts"][name] = cell.counts[k];
  }
  if (cell.failing() > 0)
    for (const Standing each : {Standing::kNew, Standing::kKnown, Standing::kUnmodelled})
      out["failures"][name_of(each)] = cell.count(each);
  return out;
}

Json json_of(const Matrix& matrix, const MatrixExample& example) {
  const MatrixResult& result = result_of(matrix, example);
  return {{"verdict", name_of(example.kind)},
          {"profile", name_of(result.standing)},
          {"oracle", result.oracle},
          {"message", result.message},
          {"case", matrix.cases[example.index].name},
          {"replay", replay_command(matrix, example)}};
}

Json json_of(const MatrixCase& value) {
  Json results = Json::array();
  for (const MatrixResult& result : value.results) {
    Json each = {{"verdict", name_of(result.kind)}};
    if (is_failure(result.kind)) each["profile"] = name_of(result.standing);
    if (!result.oracle.empty()) each["oracle"] = result.oracle;
    if (result.kind == CellKind::kNotApplicable) each["lacks"] = result.message;
    if (value.timeout_s > 0 && result.kind != CellKind::kNotApplicable)
      each["fault_acted"] = result.has_acted;
    for (const MatrixResult::Wait& wait : result.waits)
      each["seconds_to_error"].push_back({{"rank", wait.rank}, {"seconds", wait.seconds}});
    results.push_back(std::move(each));
  }
  Json out = {{"case", value.name}, {"rows", value.rows}, {"results", results}};
  if (value.timeout_s > 0) out["timeout_seconds"] = value.timeout_s;
  return out;
}

// One part of a bar.
struct Share {
  const char* label;
  const char* colour;
  bool (*holds)(const MatrixResult&);
};

bool is_new(const MatrixResult& result, std::initializer_list<CellKind> kinds) {
  return result.standing == Standing::kNew &&
         std::find(kinds.begin(), kinds.end(), result.kind) != kinds.end();
}

bool has(const MatrixResult& result, Standing standing) {
  return is_failure(result.kind) && result.standing == standing;
}

constexpr Share kShares[] = {
    {"right", "hsl(140, 45%, 42%)",
     [](const MatrixResult& r) { return r.kind == CellKind::kRight; }},
    {"known", "hsl(40, 80%, 50%)", [](const MatrixResult& r) { return has(r, Standing::kKnown); }},
    {"unmodelled", "hsl(55, 60%, 62%)",
     [](const MatrixResult& r) { return has(r, Standing::kUnmodelled); }},
    {"wrong bits", "hsl(5, 70%, 48%)",
     [](const MatrixResult& r) { return is_new(r, {CellKind::kWrongBits}); }},
    {"wrong error", "hsl(320, 50%, 50%)",
     [](const MatrixResult& r) { return is_new(r, {CellKind::kWrongError}); }},
    {"hang or crash", "hsl(275, 50%, 45%)",
     [](const MatrixResult& r) {
       return is_new(r, {CellKind::kHang, CellKind::kCrash});
     }},
    {"other failure or buckets", "hsl(200, 60%, 50%)",
     [](const MatrixResult& r) {
       return is_new(r, {CellKind::kOther, CellKind::kOtherBuckets});
     }},
    {"not applicable, not run or unknown", "hsl(210, 10%, 60%)",
     [](const MatrixResult& r) { return !is_failure(r.kind) && r.kind != CellKind::kRight; }},
};

// One bar a subject: how many of its cases ended how.
std::string shares_config(const Matrix& matrix) {
  Json labels = Json::array();
  for (const MatrixSubject& subject : matrix.subjects) {
    const std::string head = head_of(subject);
    const std::size_t lane = head.rfind(" (");
    labels.push_back({head.substr(0, lane), head.substr(lane + 1)});  // two lines
  }
  Json sets = Json::array();
  for (const Share& part : kShares) {
    Json data = Json::array();
    std::size_t all = 0;
    for (std::size_t s = 0; s < matrix.subjects.size(); ++s) {
      const auto count =
          std::count_if(matrix.cases.begin(), matrix.cases.end(),
                        [&](const MatrixCase& each) { return part.holds(each.results[s]); });
      data.push_back(count);
      all += static_cast<std::size_t>(count);
    }
    if (all == 0) continue;
    sets.push_back({{"label", part.label}, {"data", data}, {"backgroundColor", part.colour}});
  }
  return Json{{"type", "bar"},
              {"data", {{"labels", labels}, {"datasets", sets}}},
              {"options",
               {{"indexAxis", "y"},
                {"scales",
                 {{"x", {{"stacked", true}, {"title", {{"display", true}, {"text", "cases"}}}}},
                  {"y", {{"stacked", true}, {"ticks", {{"autoSkip", false}}}}}}}}}}
      .dump();
}

// A cell with a new failure is marked as bad, one with others is shaded. Its lines break before a
// plus and the parentheses, and after a comma alone.
std::string page_text(const MatrixCell& cell) {
  constexpr const char* kNoBreakSpace = "\u00a0";
  std::string out = cell.failing() == 0 ? "" : cell.count(Standing::kNew) == 0 ? "~" : "!";
  const std::string text = to_short_text(cell);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : ' ';
    const bool may_break = next == '(' || next == '+' || (i > 0 && text[i - 1] == ',');
    if (text[i] == ' ' && !may_break)
      out += kNoBreakSpace;
    else
      out += text[i];
  }
  return out;
}

void add_examples(const Matrix& matrix, Page& page) {
  const std::vector<MatrixExample> examples = examples_of(matrix);
  if (examples.empty()) return;
  page.add_heading("One case of each kind of failure, and the command that replays it");
  // Cells that have the same case stand together.
  std::vector<std::pair<std::string, std::string>> blocks;
  for (const MatrixExample& each : examples) {
    const std::string command = replay_command(matrix, each);
    const MatrixRow& row = matrix.rows[each.row];
    auto block = std::find_if(blocks.begin(), blocks.end(),
                              [&command](const auto& b) { return b.first == command; });
    if (block == blocks.end())
      blocks.emplace_back(command, head_of(matrix.subjects[each.subject]) + ", " +
                                       what_of(matrix, each) + "\nin: " + row.label);
    else
      block->second += "; " + row.label;
  }
  for (const auto& [command, text] : blocks) page.add_text(text + "\n\n" + command);
}

}  // namespace

std::string to_table(const Matrix& matrix) {
  const std::vector<TextRow> rows = text_rows(matrix, to_short_text);
  const std::vector<std::string> headers = headers_of(matrix, "");
  std::vector<std::size_t> widths;
  for (const std::string& header : headers) widths.push_back(header.size());
  for (const TextRow& row : rows)
    for (std::size_t i = 0; i < row.texts.size(); ++i)
      widths[i] = std::max(widths[i], row.texts[i].size() + (i == 0 ? 2 : 0));
  const auto line_of = [&widths](const std::vector<std::string>& texts) {
    std::string line;
    for (std::size_t i = 0; i < texts.size(); ++i)
      line += i == 1 ? fmt::format("{:>{}}  ", texts[i], widths[i])
                     : fmt::format("{:<{}}  ", texts[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  };
  std::string out = line_of(headers);
  std::string section;
  for (const TextRow& row : rows) {
    if (row.section != section) out += row.section + "\n";
    section = row.section;
    std::vector<std::string> texts = row.texts;
    texts[0] = "  " + texts[0];
    out += line_of(texts);
  }
  for (const std::string& line : legend_of(matrix)) out += line + "\n";
  const std::vector<MatrixExample> examples = few_examples(matrix);
  if (!examples.empty())
    out +=
        "One case of each kind of failure (--markdown, --json and --html have one for each "
        "cell):\n";
  for (const MatrixExample& each : examples)
    out += fmt::format("  {}: {}\n    {}\n", matrix.subjects[each.subject].name,
                       what_of(matrix, each), replay_command(matrix, each));
  return out;
}

std::string to_markdown(const Matrix& matrix) {
  std::string out = fmt::format("# {}\n\nMade by {} (commit {}).\n\n", title_of(matrix),
                                code_for_markdown(matrix.command), for_markdown(matrix.commit));
  for (const std::string& line : legend_of(matrix)) out += line + "\n";
  std::string section;
  for (const TextRow& row : text_rows(matrix, to_text)) {
    if (row.section != section) {
      section = row.section;
      out += fmt::format("\n## {}\n\n", section);
      const std::vector<std::string> headers = headers_of(matrix, "group of cases");
      out += markdown_row(headers) + "|";
      for (std::size_t i = 0; i < headers.size(); ++i) out += i == 1 ? "---:|" : "---|";
      out += "\n";
    }
    out += markdown_row(row.texts);
  }
  const std::vector<MatrixExample> examples = examples_of(matrix);
  if (!examples.empty()) out += "\n## One case of each kind of failure of each cell\n";
  const MatrixExample* before = nullptr;
  for (const MatrixExample& each : examples) {
    if (before == nullptr || before->row != each.row)
      out += fmt::format("\n{}:\n\n", for_markdown(matrix.rows[each.row].label));
    before = &each;
    out += fmt::format("- {}, {}: {}\n", for_markdown(matrix.subjects[each.subject].name),
                       name_of(each.kind), code_for_markdown(replay_command(matrix, each)));
  }
  return out;
}

std::string to_json(const Matrix& matrix) {
  Json subjects = Json::array();
  for (const MatrixSubject& subject : matrix.subjects)
    subjects.push_back({{"name", subject.name}, {"lane", subject.lane}});
  Json rows = Json::array();
  for (std::size_t r = 0; r < matrix.rows.size(); ++r) {
    Json cells = Json::array();
    for (std::size_t s = 0; s < matrix.subjects.size(); ++s)
      cells.push_back(json_of(cell_of(matrix, r, s)));
    rows.push_back({{"section", matrix.rows[r].section},
                    {"label", matrix.rows[r].label},
                    {"cases", cases_of(matrix, r)},
                    {"cells", cells}});
  }
  for (const MatrixExample& each : examples_of(matrix))
    rows[each.row]["cells"][each.subject]["examples"].push_back(json_of(matrix, each));
  Json cases = Json::array();
  for (const MatrixCase& each : matrix.cases) cases.push_back(json_of(each));
  return Json{{"lockstep_matrix", 1},
              {"command", matrix.command},
              {"commit", matrix.commit},
              {"subjects", subjects},
              {"rows", rows},
              {"cases", cases}}
             .dump(1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

Result<std::string> to_page(const Matrix& matrix) {
  Page page(title_of(matrix), fmt::format("{} (commit {})", matrix.command, matrix.commit));
  for (const std::string& line : legend_of(matrix)) page.add_paragraph(line);
  constexpr int kBar = 44;
  page.add_chart("How the cases ended on each subject", shares_config(matrix),
                 130 + kBar * static_cast<int>(matrix.subjects.size()));
  const std::vector<TextRow> rows = text_rows(matrix, page_text);
  for (std::size_t begin = 0; begin < rows.size();) {
    page.add_heading(rows[begin].section);
    std::vector<std::vector<std::string>> texts;
    std::size_t end = begin;
    for (; end < rows.size() && rows[end].section == rows[begin].section; ++end) {
      texts.push_back(rows[end].texts);
    }
    page.add_table(headers_of(matrix, "group of cases"), texts);
    begin = end;
  }
  add_examples(matrix, page);
  return page.html();
}

}  // namespace lockstep::properties
