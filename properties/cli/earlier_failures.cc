#include "properties/cli/earlier_failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "properties/case/capabilities.h"
#include "properties/case/case_json.h"
#include "properties/process/terminal.h"

namespace lockstep::properties {
namespace {

std::string found_on(const std::string& subject, const std::string& against,
                     const std::string& lane, const std::string& nccl) {
  const std::string both = against.empty() ? subject : subject + " against " + against;
  return fmt::format(" on subject {}, lane {}{}: ", both, lane,
                     nccl.empty() ? "" : ", NCCL " + nccl);
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::string about_found(const FailureReport& failure) {
  const Verdict& verdict = failure.outcome.verdict;
  return fmt::format("{} ({}){}seed {}, case {}", name_of(verdict.failing), verdict.oracle,
                     found_on(failure.subject, failure.against, failure.lane, failure.nccl),
                     failure.seed, failure.index);
}

std::vector<EarlierFailure> earlier_failures(const std::string& folder, LaneKind lane,
                                             const Subject& subject) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_shrunk = ends_with(name, ".json") && !ends_with(name, ".found.json") &&
                           !ends_with(name, ".unanswered.json");
    if (is_shrunk && name.rfind(std::string(name_of(lane)) + "-", 0) == 0)
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  const std::string against = subject.against ? subject.against->name() : "";
  const std::string wanted = found_on(subject.name(), against, name_of(lane), subject.profile.nccl);
  std::vector<EarlierFailure> found;
  for (const std::string& file : files) {
    if (found.size() == kMaxEarlier) break;
    std::string about;
    Result<Case> c = read_case(file, &about);
    if (!c) remark("not run: " + c.error().failure().detail);
    if (!c || about.find(wanted) == std::string::npos) continue;
    if (missing_message(*c, common_capabilities(subject), subject.name()).empty())
      found.push_back({file, std::move(*c)});
  }
  return found;
}

}  // namespace lockstep::properties
