#include "properties/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::properties {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string html_of(const Page& page) {
  const Result<std::string> html = page.html();
  EXPECT_TRUE(html.has_value());
  return html ? *html : "";
}

TEST(Page, TextsCannotBreakOutOfTheirElements) {
  Page page("a < b & c", "\"quoted\"");
  page.add_heading("<script>alert(1)</script>");
  page.add_paragraph("1 > 0");
  page.add_text("<pre>");
  page.add_table({"<h>"}, {{"<td>"}});
  const std::string html = html_of(page);
  EXPECT_THAT(html, HasSubstr("<title>a &lt; b &amp; c</title>"));
  EXPECT_THAT(html, HasSubstr("&quot;quoted&quot;"));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(html, HasSubstr("1 &gt; 0"));
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, HasSubstr("<pre>&lt;pre&gt;</pre>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"\">&lt;td&gt;</td>"));
}

TEST(Page, NumbersAreAlignedAndBadCellsMarked) {
  Page page("t", "s");
  page.add_table({"a", "b", "c", "d"}, {{"12 of 20", "3.50", "!-1", "!missed"}});
  const std::string html = html_of(page);
  EXPECT_THAT(html, HasSubstr("<td class=\"\">12 of 20</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"number\">3.50</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"number bad\">-1</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\" bad\">missed</td>"));
}

TEST(Page, ASummaryHasALabelForEachLineThatHasOne) {
  Page page("t", "s");
  page.add_summary("a line\ncases: 3 <of> 4\nseen: x: y\nthe last line\n");
  EXPECT_THAT(html_of(page), HasSubstr("<p>a line</p>\n<dl>\n"
                                       "<dt>cases</dt><dd>3 &lt;of&gt; 4</dd>\n"
                                       "<dt>seen</dt><dd>x: y</dd>\n</dl>\n"
                                       "<p>the last line</p>\n"));
}

TEST(Page, NothingComesFromTheNetwork) {
  Page page("t", "s");
  const std::string html = html_of(page);
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("href=")));
  EXPECT_THAT(html, Not(HasSubstr("Chart")));  // a page without a chart does not carry the library
}

TEST(Page, AChartIsDrawnByTheLibraryInThePageOrRefused) {
  Page page("t", "s");
  page.add_chart("Steps </script>", R"({"type": "line", "data": {"label": "</script>"}})");
  const Result<std::string> html = page.html();
  if (chart_library().empty()) {
    ASSERT_FALSE(html.has_value());
    EXPECT_THAT(html.error().failure().detail, HasSubstr("libjs-chart.js"));
    return;
  }
  ASSERT_TRUE(html.has_value());
  EXPECT_THAT(*html, HasSubstr(chart_library()));
  EXPECT_THAT(*html, HasSubstr("<canvas id=\"chart-0\""));
  EXPECT_THAT(*html, HasSubstr(R"("label": "\u003c/script>")"));
}

}  // namespace
}  // namespace lockstep::properties
