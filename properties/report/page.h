// Page: a report as one HTML file that needs nothing else: no network, no other file. It follows
// the reader's choice of a light or dark screen. The charts are drawn by Chart.js, which is part of
// the file.
//
//   Page page("Planted bugs", "seed 1, 20 trials each");
//   page.add_heading("Results");
//   page.add_table({"bug", "found"}, {{"R01", "20 of 20"}});
//   page.add_chart("How long the bugs live", chart_json);
//   Result<std::string> html = page.html();
//
// Threads: one caller. All texts are escaped. Failure: html() says what to install if this program
// was built without Chart.js.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties {

class Page {
 public:
  Page(std::string title, std::string subtitle);

  void add_heading(std::string_view text);
  void add_paragraph(std::string_view text);
  // The lines of a summary, each "label: text", as two columns; a line without a label is a
  // paragraph.
  void add_summary(std::string_view lines);
  // Preformatted text, as a terminal shows it. Long lines are broken.
  void add_text(std::string_view text);
  // Cells that hold numbers are aligned to the right. A cell that begins with "!" is marked as bad,
  // one that begins with "~" is shaded; both are shown without the sign. Every row has as many
  // cells as there are headers.
  void add_table(const std::vector<std::string>& headers,
                 const std::vector<std::vector<std::string>>& rows);
  // `config`: a chart of Chart.js 3 as JSON: {"type": ..., "data": ..., "options": ...}. `height`
  // is in pixels of CSS. The title stands above the chart, and is what a screen reader says.
  void add_chart(std::string_view title, std::string_view config, int height = 360);

  Result<std::string> html() const;

 private:
  const std::string title_;
  const std::string subtitle_;
  std::string body_;
  int charts_ = 0;
};

// Escapes a text for HTML and XML, and leaves out characters that XML has no way to write.
std::string escaped(std::string_view text);

// A chart of a horizontal bar for each label. `what` names the values; `axis` has their options.
std::string bars_config(const std::vector<std::pair<std::string, double>>& bars,
                        const std::string& what, const nlohmann::ordered_json& axis);

// The source of Chart.js; empty if this program was built without it.
std::string_view chart_library();

}  // namespace lockstep::properties
