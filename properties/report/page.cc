#include "properties/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --text: #1c2024; --back: #ffffff; --line: #d5dae0;
  --soft: #f3f5f7;
  --quiet: #5b6570; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ec; --back: #14171a; --line: #3a4249;
  --soft: #1e2327; --quiet: #a0a9b2; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1400px; padding: 1.5rem 1rem 3rem; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
.subtitle { color: var(--quiet); margin: 0 0 1rem; }
p, dd { max-width: 70rem; }
dl { display: grid; grid-template-columns: 1fr; gap: 0 1.5rem; margin: 1rem 0 1.5rem; }
dt { color: var(--quiet); }
dd { margin: 0 0 .6rem; }
@media (min-width: 50rem) { dl { grid-template-columns: 17rem 1fr; } dt { margin: 0 0 .6rem; } }
.wide { overflow: auto; max-height: 85vh; }
table { border-collapse: separate; border-spacing: 0; font-size: 15px; line-height: 22px; }
th, td { text-align: left; padding: 5px 8px; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: normal; }
th { position: sticky; top: 0; background: var(--back); font-size: 14px; line-height: 18px;
  vertical-align: bottom; }
td:first-child { min-width: 8rem; }
td:first-child:not(.shaded), th:first-child { position: sticky; left: 0; background: var(--back); }
th:first-child { z-index: 1; }
@media (min-width: 60rem) { td:first-child { min-width: 13rem; } .many td:first-child { min-width:
  19rem; } }
.many th, .many td { padding: 4px 6px; }
.number { text-align: right; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.shaded { background: color-mix(in srgb, #e08a00 22%, var(--back)); }
td.bad { outline: 2px solid var(--bad); outline-offset: -2px; }
.bad { color: var(--bad); font-weight: 600; }
pre { background: var(--soft); border: 1px solid var(--line); padding: .7rem .9rem;
  white-space: pre-wrap;
  font: 14px/1.45 ui-monospace, monospace; overflow-wrap: break-word; }
figure { margin: 1.5rem 0 1rem; }
figcaption { font-weight: 600; margin-bottom: .3rem; }
.chart { position: relative; width: 100%; }
)";

// Draws every chart of the page. The colours of axes and texts follow the page's.
constexpr const char* kDraw = R"(
const style = getComputedStyle(document.documentElement);
Chart.defaults.color = style.getPropertyValue("--text");
Chart.defaults.borderColor = style.getPropertyValue("--line");
Chart.defaults.font.size = 13;
Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;
for (const source of document.querySelectorAll("script.chart-source"))
  new Chart(document.getElementById(source.dataset.canvas), JSON.parse(source.textContent));
document.documentElement.dataset.back = style.getPropertyValue("--back").trim();
document.documentElement.dataset.drawn = document.querySelectorAll("canvas").length;
)";

// A number may have an interval behind it; 2.28.9 is none.
bool is_number(std::string_view text) {
  const bool begins = !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 ||
                                        (text.size() > 1 && text[0] == '-'));
  const std::string_view first = text.substr(0, text.find('['));
  return begins && std::count(first.begin(), first.end(), '.') <= 1 &&
         std::none_of(text.begin(), text.end(), [](char c) {
           return std::isalpha(static_cast<unsigned char>(c)) != 0 && c != 's' && c != 'e';
         });
}

// What a cell's first character says is not part of its text.
bool is_bad(std::string_view cell) { return cell.starts_with('!'); }
bool is_shaded(std::string_view cell) { return cell.starts_with('~'); }
std::string_view text_of(std::string_view cell) {
  return cell.substr(is_bad(cell) || is_shaded(cell) ? 1 : 0);
}

// A column of numbers, some of which may be missing; the first one has the names of the rows.
bool has_numbers(const std::vector<std::vector<std::string>>& rows, std::size_t column) {
  bool found = false;
  for (const std::vector<std::string>& row : rows) {
    const std::string_view text = text_of(row[column]);
    if (is_number(text))
      found = true;
    else if (!text.empty() && text != "-")
      return false;
  }
  return found && column > 0;
}

// JSON inside an element of HTML: "</script>" in a text would end it.
std::string for_script(std::string_view json) {
  std::string out;
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

// A text that may be broken behind a character.
std::string breakable(std::string_view text, char behind) {
  std::string out;
  for (const char c : escaped(text)) {
    out += c;
    if (c == behind) out += "<wbr>";
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t')
      out += c;
  }
  return out;
}

std::string bars_config(const std::vector<std::pair<std::string, double>>& bars,
                        const std::string& what, const nlohmann::ordered_json& axis) {
  using Json = nlohmann::ordered_json;
  Json labels = Json::array();
  Json values = Json::array();
  for (const auto& [label, value] : bars) {
    labels.push_back(label);
    values.push_back(value);
  }
  return Json{
      {"type", "bar"},
      {"data",
       {{"labels", labels},
        {"datasets",
         Json::array(
             {{{"label", what}, {"data", values}, {"backgroundColor", "hsl(210, 65%, 50%)"}}})}}},
      {"options",
       {{"indexAxis", "y"},
        {"plugins", {{"legend", {{"display", false}}}}},
        {"scales", {{"x", axis}, {"y", {{"ticks", {{"autoSkip", false}}}}}}}}}}
      .dump();
}

Page::Page(std::string title, std::string subtitle)
    : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

void Page::add_heading(std::string_view text) {
  body_ += fmt::format("<h2>{}</h2>\n", escaped(text));
}

void Page::add_paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", escaped(text));
}

void Page::add_summary(std::string_view lines) {
  constexpr std::size_t kLongestLabel = 60;
  std::istringstream in{std::string(lines)};
  bool is_in_list = false;
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    const bool has_label = colon <= kLongestLabel;
    if (has_label != is_in_list) body_ += has_label ? "<dl>\n" : "</dl>\n";
    is_in_list = has_label;
    if (has_label)
      body_ += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(line.substr(0, colon)),
                           escaped(line.substr(colon + 2)));
    else
      add_paragraph(line);
  }
  if (is_in_list) body_ += "</dl>\n";
}

void Page::add_text(std::string_view text) {
  body_ += fmt::format("<pre>{}</pre>\n", escaped(text));
}

void Page::add_table(const std::vector<std::string>& headers,
                     const std::vector<std::vector<std::string>>& rows) {
  constexpr std::size_t kMany = 12;
  for (const std::vector<std::string>& row : rows) LOCKSTEP_CHECK_EQ(row.size(), headers.size());
  std::vector<const char*> kinds;
  for (std::size_t column = 0; column < headers.size(); ++column)
    kinds.push_back(has_numbers(rows, column) ? "number" : "");
  body_ += fmt::format("<div class=\"wide\"><table{}>\n<thead><tr>",
                       headers.size() > kMany ? " class=\"many\"" : "");
  for (std::size_t column = 0; column < headers.size(); ++column)
    body_ +=
        fmt::format("<th class=\"{}\">{}</th>", kinds[column], breakable(headers[column], '_'));
  body_ += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    body_ += "<tr>";
    for (std::size_t column = 0; column < headers.size(); ++column) {
      const std::string_view cell = row[column];
      const char* const mark = is_bad(cell) ? " bad" : is_shaded(cell) ? " shaded" : "";
      body_ += fmt::format("<td class=\"{}{}\">{}</td>", kinds[column], mark,
                           breakable(text_of(cell), '/'));
    }
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

void Page::add_chart(std::string_view title, std::string_view config, int height) {
  const int number = charts_++;
  body_ += fmt::format(
      "<figure><figcaption>{0}</figcaption><div class=\"chart\" style=\"height: {1}px\">"
      "<canvas id=\"chart-{2}\" role=\"img\" aria-label=\"{0}\"></canvas></div>\n"
      "<script type=\"application/json\" class=\"chart-source\" data-canvas=\"chart-{2}\">"
      "{3}</script></figure>\n",
      escaped(title), height, number, for_script(config));
}

Result<std::string> Page::html() const {
  if (charts_ > 0 && chart_library().empty())
    return failed(Status(Code::kInvalidArgument,
                         "this program cannot draw charts, as it was built without Chart.js: "
                         "install libjs-chart.js (ci/setup does), and build anew"));
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n"
      "<p class=\"subtitle\">{2}</p>\n",
      escaped(title_), kStyle, escaped(subtitle_));
  out += body_;
  if (charts_ > 0) {
    out += "<script>\n";
    out += chart_library();
    out += fmt::format("\n</script>\n<script>{}</script>\n", kDraw);
  }
  return out + "</body>\n</html>\n";
}

}  // namespace lockstep::properties
