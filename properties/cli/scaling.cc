#include "properties/cli/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "properties/case/case_json.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/output.h"
#include "properties/oracle/verdict.h"
#include "properties/process/terminal.h"
#include "properties/report/scaling_report.h"

namespace lockstep::properties {
namespace {

// Writes nothing without a name.
bool write(const std::string& file, const Result<std::string>& text) {
  if (file.empty()) return true;
  const Status status = text ? write_file(file, *text) : text.error();
  if (!status.ok()) remark(status.failure().detail);
  return status.ok();
}

}  // namespace

int run_scaling(ScalingOptions options) {
  std::sort(options.ranks.begin(), options.ranks.end());
  options.ranks.erase(std::unique(options.ranks.begin(), options.ranks.end()), options.ranks.end());
  ScalingPoints points;
  for (const std::uint32_t ranks : options.ranks) {
    const scaling::Run run = scaling::measure(ranks);
    if (!run.problem.empty()) {
      remark(fmt::format("{} ranks: {}", ranks, run.problem));
      return static_cast<int>(Failing::kDeadlock);
    }
    points.insert(points.end(), run.points.begin(), run.points.end());
  }
  tell(scaling_text(points));
  const bool is_written =
      write(options.json, scaling_json(points, kCommit)) &&
      write(options.html, options.html.empty() ? std::string() : scaling_page(points, kCommit));
  return is_written ? 0 : kUsage;
}

}  // namespace lockstep::properties
