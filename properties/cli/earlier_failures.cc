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

constexpr const char* kOwnReducer = "reducer";

// Returns a name of a subject that can stand in the name of a file.
std::string slug(std::string name) {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  const std::size_t colon = name.find(':');
  const std::string kind = colon == std::string::npos ? "" : name.substr(0, colon + 1);
  std::string rest = name.substr(kind.size());
  if (rest.starts_with("./")) rest.erase(0, 2);
  const std::size_t slash = rest.rfind('/');
  const bool has_folder = slash != std::string::npos;
  if (has_folder) rest.erase(0, slash + 1);
  for (const char* const ending : {".so", ".py"})
    if (const std::size_t at = rest.find(ending); at != std::string::npos) rest.erase(at, 3);
  std::string out = kind + rest;
  for (char& c : out) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (!is_plain) c = '-';
  }
  constexpr std::size_t kLongest = 60;
  const bool is_long = out.size() > kLongest;
  if (is_long) out.resize(kLongest);
  return has_folder || is_long ? fmt::format("{}-{:04x}", out, hash & 0xffffu) : out;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::string file_stem(const FailureReport& failure) {
  std::string out = fmt::format("{}-{}-{}", failure.lane, failure.seed, failure.index);
  if (failure.subject != kOwnReducer || !failure.against.empty())
    out += "-" + slug(failure.subject);
  if (!failure.against.empty()) out += "-and-" + slug(failure.against);
  return out;
}

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
