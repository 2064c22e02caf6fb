#include "properties/campaign/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>

#include "properties/case/fields.h"

namespace lockstep::properties {
namespace {

constexpr const char* kOneRank = "one rank";
constexpr const char* kSeveralRanks = "several ranks";

// Replaces every number by one sign.
std::string without_numbers(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0)
      out += c;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<std::string> sorted(const std::set<std::string>& values) {
  return {values.begin(), values.end()};
}

// Which values a case still has that are not the simplest ones, by the rows of case/fields.h.
struct Needs {
  std::set<std::string> clauses;
  std::set<std::string> shape;
};

template <typename Field, typename Record>
void note_field(const Field& field, const Record& record, Needs& needs) {
  using T = std::remove_cvref_t<decltype(field.get(record))>;
  if constexpr (std::is_same_v<Record, faults::Fault> || std::is_same_v<Record, Schedule> ||
                std::is_same_v<Record, Schedule::Deviation>) {
    return;  // faults are a part of their own, and the schedule is a matter of luck
  } else if constexpr (std::is_enum_v<T>) {
    if (!fields::is_set(field, record)) return;
    const std::string kind =
        field.row.each != nullptr ? field.row.each : field.name + std::string(" ");
    // What zero_grad does instead seldom matters: gradients remain in one way or another.
    const bool is_zero_grad = std::is_same_v<T, reference::ZeroGrad>;
    needs.shape.insert(is_zero_grad ? field.name : kind + fields::name_of(field.get(record)));
    if (*field.row.clause != '\0') needs.clauses.insert(field.row.clause);
  } else {
    const std::string_view name = field.name;
    const bool is_limit = name == "first_bucket_bytes" || name == "bucket_bytes";
    const bool has_meaning = std::is_same_v<T, bool> || *field.row.clause != '\0';
    if (!has_meaning || is_limit || field.row.has_own_moves || !fields::is_set(field, record))
      return;
    needs.shape.insert(field.name);
    if (*field.row.clause != '\0') needs.clauses.insert(field.row.clause);
  }
}

Needs needs_of_case(const Case& value) {
  Needs needs;
  const auto note = [&needs](const auto& field, const auto& record) {
    note_field(field, record, needs);
  };
  fields::visit_fields(value.program, note);
  fields::visit_fields(value.torch, note);
  needs.shape.insert(value.program.world == 1 ? kOneRank : kSeveralRanks);
  return needs;
}

}  // namespace

std::string shape_of_waits(const std::string& message) {
  std::set<std::string> waits;
  std::istringstream lines(message);
  bool has_circle = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_circle = line.starts_with("  circle:");
    const std::size_t at = line.find("waits for ");
    if (!is_circle && (at == std::string::npos || !line.starts_with("  fiber "))) continue;
    if (is_circle && !std::exchange(has_circle, true)) waits.clear();  // the circle says it all
    if (is_circle == has_circle)
      waits.insert(without_numbers(is_circle ? line.substr(10) : line.substr(at)));
  }
  return fmt::format("{}", fmt::join(waits, "; "));
}

Signature signature_of(const std::string& subject, const Verdict& verdict,
                       const std::optional<Case>& small, const std::vector<std::string>& fired) {
  Signature signature;
  signature.subject = subject;
  signature.exit_code = static_cast<int>(verdict.failing);
  signature.oracle = verdict.oracle;
  signature.waits = shape_of_waits(verdict.message);
  std::set<std::string> kinds(fired.begin(), fired.end());
  if (small) {
    Needs needs = needs_of_case(*small);
    signature.clauses = sorted(needs.clauses);
    signature.shape = sorted(needs.shape);
    signature.is_small = true;
    kinds.clear();
    for (const faults::Fault& fault : small->faults.faults)
      kinds.insert(faults::name_of(fault.kind));
  }
  signature.faults = sorted(kinds);
  return signature;
}

bool needs_more_than(const Signature& signature, const Signature& other) {
  const auto has_all = [](std::vector<std::string> all, const std::vector<std::string>& some) {
    // Several ranks are more than one.
    if (std::erase(all, kSeveralRanks) > 0) all.insert(all.end(), {kSeveralRanks, kOneRank});
    std::sort(all.begin(), all.end());
    std::vector<std::string> parts = some;
    std::sort(parts.begin(), parts.end());
    return std::includes(all.begin(), all.end(), parts.begin(), parts.end());
  };
  return signature != other && signature.exit_code == other.exit_code &&
         signature.oracle == other.oracle && signature.subject == other.subject &&
         has_all(signature.shape, other.shape) && has_all(signature.faults, other.faults);
}

std::string to_string(const Signature& signature) {
  std::string out = fmt::format("exit code {} (oracle: {}), subject {}\n", signature.exit_code,
                                signature.oracle, signature.subject);
  if (signature.is_small)
    out += fmt::format("needs:   {}\nclauses: {}\n", joined(signature.shape),
                       joined(signature.clauses));
  out += fmt::format("faults:  {}\n", joined(signature.faults));
  if (!signature.waits.empty()) out += fmt::format("waits:   {}\n", signature.waits);
  return out;
}

std::string id_of(const Signature& signature) {
  std::uint32_t hash = 0x811c9dc5u;  // FNV-1a
  for (const char c : to_string(signature))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return fmt::format("{:08x}", hash);
}

}  // namespace lockstep::properties
