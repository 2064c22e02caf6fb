#include "properties/subject/subject.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "faults/seeded/seeded.h"
#include "properties/subject/brings_code.h"
#include "properties/subject/declared_sums.h"
#include "properties/subject/loader.h"
#include "properties/subject/probe_library.h"
#include "properties/subject/python_subject.h"
#include "properties/subject/torch_subject.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

constexpr std::string_view kSeededPrefix = "seeded:";
constexpr std::string_view kTorch = "torch";
constexpr std::string_view kTorchPrefix = "torch:";
constexpr std::string_view kPythonPrefix = "python:";

std::string known_bugs() {
  std::string out;
  for (const seeded::Bug& bug : seeded::bugs())
    out += (out.empty() ? "" : " ") + std::string(bug.id);
  return out;
}

bool names_library(const std::string& text) {
  return text != "reducer" && text != kTorch && !text.starts_with(kTorchPrefix) &&
         !text.starts_with(kPythonPrefix) && !text.starts_with(kSeededPrefix);
}

}  // namespace

std::string Subject::name() const {
  switch (kind) {
    case Kind::kProduction:
      return "reducer";
    case Kind::kSeeded:
      return std::string(kSeededPrefix) + id;
    case Kind::kHosted:
      return id;
    case Kind::kTorch:
      return id.empty() ? std::string(kTorch) : std::string(kTorchPrefix) + id;
    case Kind::kPython:
      return std::string(kPythonPrefix) + id;
  }
  return id;
}

Capabilities common_capabilities(const Subject& subject) {
  if (!subject.against) return subject.capabilities;
  const std::uint64_t both = subject.capabilities.bits() & subject.against->capabilities.bits();
  return Capabilities::from_bits(both).without_errors();
}

std::string planted_bug_of(const Subject& subject) {
  if (subject.kind == Subject::Kind::kSeeded) return subject.id;
  return subject.against ? planted_bug_of(*subject.against) : std::string();
}

Result<Subject> parse_subject(const std::string& text) {
  Subject subject;
  if (text == "reducer") return subject;
  if (text.starts_with(kSeededPrefix)) {
    subject.kind = Subject::Kind::kSeeded;
    subject.id = text.substr(kSeededPrefix.size());
    if (!subject.id.empty() && seeded::select(subject.id)) return subject;
    return failed(Status(
        Code::kInvalidArgument,
        fmt::format("there is no planted bug '{}'; there are: {}", subject.id, known_bugs())));
  }
  if (text == kTorch) return torch_subject();
  if (text.starts_with(kTorchPrefix)) {
    const std::string which = text.substr(kTorchPrefix.size());
    if (!which.empty()) return torch_subject(which);
    return failed(Status(Code::kInvalidArgument,
                         "'torch:' needs a version, as torch:2.9.1, or the folder of a PyTorch"));
  }
  if (text.starts_with(kPythonPrefix)) return python_subject(text.substr(kPythonPrefix.size()));
  subject.kind = Subject::Kind::kHosted;
  subject.id = text;
  LOCKSTEP_CHECK(names_library(text));
  if (const Status status = open_subject(subject); !status.ok()) return failed(status);
  return subject;
}

Result<Subject> find_subject(const std::string& text) {
  if (!names_library(text)) return parse_subject(text);
  const Result<LoadedSubject> found = probe_library(text);
  if (!found) return failed(found.error());
  Subject subject;
  subject.kind = Subject::Kind::kHosted;
  subject.id = text;
  subject.capabilities = found->capabilities;
  subject.profile.sums = *declared_sums({}, found->scale);
  return subject;
}

bool brings_code(const std::string& text) {
  return !text.empty() && (names_library(text) || text.starts_with(kTorchPrefix) ||
                            text.starts_with(kPythonPrefix));
}

void hold_to_values_alone(Subject& subject) {
  subject.profile.any_arithmetic = true;
  subject.capabilities = subject.capabilities.without(Capability::kRounding);
}

Status open_subject(Subject& subject) {
  if (subject.kind == Subject::Kind::kSeeded) LOCKSTEP_CHECK(seeded::select(subject.id));
  if (subject.kind == Subject::Kind::kHosted && subject.table == nullptr) {
    Result<LoadedSubject> loaded = load_subject(subject.id);
    if (!loaded) return loaded.error();
    subject.table = loaded->table;
    subject.capabilities = loaded->capabilities;
    subject.profile.sums = *declared_sums({}, loaded->scale);
  }
  if (!subject.against) return {};
  Subject other = *subject.against;
  LOCKSTEP_RETURN_IF_ERROR(open_subject(other));
  subject.against = std::make_shared<const Subject>(std::move(other));
  return {};
}

}  // namespace lockstep::properties
