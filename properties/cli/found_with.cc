#include "properties/cli/found_with.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "properties/case/case_json.h"

namespace lockstep::properties {
namespace {

bool loads_a_file(const std::string& subject) {
  return subject != "reducer" && !subject.starts_with("seeded:") && subject != "torch";
}

bool belongs_to_another_user(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && info.st_uid != ::geteuid() && info.st_uid != 0;
}

}  // namespace

std::string take_found_with(const CLI::App& command, const std::string& case_file,
                            const NamedByCase& options) {
  const Result<FoundWith> found = read_found_with(case_file);
  if (!found) return found.error().failure().detail;
  const auto is_named = [&](const char* option) {
    const CLI::Option* const known = command.get_option_no_throw(option);
    return known == nullptr || known->count() != 0;
  };
  const auto take = [&](const char* option, std::string& value, const std::string& of_case) {
    if (!is_named(option) && !of_case.empty()) value = of_case;
  };
  // The parser checks what the user names, and nobody what a file says.
  const auto is_one_of = [](const std::string& text, std::vector<std::string> words) {
    return text.empty() || std::find(words.begin(), words.end(), text) != words.end();
  };
  if (!is_one_of(found->lane, {"sim", "gloo", "nccl", "hosts"}) ||
      !is_one_of(found->contract, {"own", "lockstep"}) ||
      !is_one_of(found->values, {"own", "exact"}))
    return case_file + ": found_with names a lane, a contract or values that are none";
  if (is_named("--subject")) {
    const bool has_own_lane =
        options.subject.starts_with("torch") || options.subject.starts_with("python:");
    if (!has_own_lane) take("--lane", options.lane, found->lane);
    return {};
  }
  for (const std::string& each : {found->subject, found->against})
    if (!each.empty() && loads_a_file(each) && belongs_to_another_user(case_file))
      return fmt::format(
          "{} belongs to another user, so what it names, '{}', is not run: name it with --subject",
          case_file, each);
  take("--subject", options.subject, found->subject);
  take("--lane", options.lane, found->lane);
  take("--against", options.against, found->against);
  take("--contract", options.contract, found->contract);
  take("--values", options.values, found->values);
  take("--nccl", options.nccl, found->nccl);
  return {};
}

void add_contract(CLI::App& command, std::string& contract, std::string& values) {
  command
      .add_option("--contract", contract,
                  "what the subject is held to: own, which is what is known of it (for torch, "
                  "what PyTorch does), or lockstep")
      ->capture_default_str()
      ->check(CLI::IsMember({"own", "lockstep"}));
  command
      .add_option(
          "--values", values,
          "own: every bit, collective and error is as the contract says; exact: the subject "
          "may add in any order, divide where it likes, and lay out its buckets itself, and "
          "cases have values of which all sums are exact")
      ->capture_default_str()
      ->check(CLI::IsMember({"own", "exact"}));
}

}  // namespace lockstep::properties
