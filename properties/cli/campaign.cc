#include "properties/cli/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "properties/campaign/part_files.h"
#include "properties/campaign/summary.h"
#include "properties/case/case_json.h"
#include "properties/cli/output.h"
#include "properties/subject/brings_code.h"

namespace lockstep::properties {
namespace {

Result<CampaignSummary> read_campaign(const std::string& folder) {
  const Result<CampaignPlan> plan = read_plan(folder);
  if (!plan) return failed(plan.error());
  const Result<std::vector<PartHistory>> parts = read_parts(folder);
  if (!parts) return failed(parts.error());
  std::set<std::uint64_t> running;
  for (const PartHistory& part : *parts)
    if (is_running(folder, part.part.number)) running.insert(part.part.number);
  return summarize(*plan, *parts, running);
}

int code_of(const CampaignSummary& summary) {
  if (!summary.failures.empty()) return static_cast<int>(summary.failures.front().found.failing);
  return summary.total.counts.cases == 0 ? kInconclusive : 0;
}

// What the campaign runs: the plan's lane, subject and options, resolved on this machine.
struct Resolved {
  FuzzOptions options;
  LaneKind lane = LaneKind::kSim;
};

// What to run for a subject that the plan names. The folder may be of somebody else, so a library
// or a file runs only if the user has named one.
Result<std::string> chosen_subject(const char* option, const std::string& planned,
                                   const std::string& given, const std::string& folder) {
  const auto refuse = [](std::string why) {
    return failed(Status(Code::kInvalidArgument, std::move(why)));
  };
  if (planned.empty() && !given.empty())
    return refuse(fmt::format("the campaign in {} has no {}: leave it out", folder, option));
  if (!brings_code(planned)) {
    if (given.empty() || given == planned) return planned;
    return refuse(fmt::format("the campaign in {} has {} {}, and this command {}: leave it out",
                              folder, option, planned, given));
  }
  if (!given.empty()) return given;
  return refuse(
      fmt::format("the campaign in {} names the subject {}, whose code this command would run: if "
                  "you trust it, give {} with what to run",
                  folder, planned, option));
}

Result<Resolved> resolve_plan(CampaignPlan plan, const CampaignCommandOptions& command) {
  for (const auto& [option, planned, given] :
       {std::tuple("--subject", &plan.subject, &command.subject),
        std::tuple("--against", &plan.against, &command.against)}) {
    Result<std::string> chosen = chosen_subject(option, *planned, *given, command.folder);
    if (!chosen) return failed(chosen.error());
    *planned = std::move(*chosen);
  }
  Resolved out;
  out.lane = plan.lane == "gloo"   ? LaneKind::kGloo
             : plan.lane == "nccl" ? LaneKind::kNccl
                                   : LaneKind::kSim;
  Result<Subject> subject = find_subject(plan.subject);
  if (!subject) return failed(subject.error());
  out.options.subject = std::move(*subject);
  if (!plan.against.empty()) {
    Result<Subject> against = find_subject(plan.against);
    if (!against) return failed(against.error());
    out.options.subject.against = std::make_shared<const Subject>(std::move(*against));
  }
  GenerateOptions& generate = out.options.generate;
  if (const Status status = parse_faults(plan.faults, generate); !status.ok())
    return failed(status);
  if (!plan.against.empty()) generate.faults = GenerateOptions::Faults::kNone;
  generate.transport = transport_of(plan.transport);
  if (!plan.policy.empty()) generate.policy = policy_of(plan.policy);
  return out;
}

// Cases of another build may be other ones.
Status refuse_other_build(const CampaignPlan& plan, const std::string& folder) {
  if (plan.commit == kCommit) return {};
  return {Code::kInvalidArgument,
          fmt::format("the campaign in {} is of commit {}, and this program of {}: its cases are "
                      "other ones here; use that build",
                      folder, plan.commit, kCommit)};
}

// A case that is the smallest one of several pairs is written once.
std::map<std::uint64_t, std::vector<std::string>> smallest_by_index(
    const CampaignSummary& summary) {
  std::map<std::uint64_t, std::vector<std::string>> out;
  for (const std::string& pair : pairs_of_features())
    if (const auto found = summary.smallest.find(pair); found != summary.smallest.end())
      out[found->second.index].push_back(pair);
  return out;
}

}  // namespace

int run_campaign_report(const CampaignCommandOptions& options) {
  const Result<CampaignSummary> summary = read_campaign(options.folder);
  if (!summary) return complain(summary.error());
  tell(to_text(*summary) + failures_text(*summary, options.folder, options.program));
  if (!options.json.empty())
    if (const Status status = write_file(options.json, to_json(*summary)); !status.ok())
      return complain(status);
  return code_of(*summary);
}

int run_campaign_merge(const CampaignCommandOptions& options) {
  const Result<CampaignSummary> summary = read_campaign(options.folder);
  if (!summary) return complain(summary.error());
  const CampaignPlan& plan = summary->plan;
  if (const Status status = refuse_other_build(plan, options.folder); !status.ok())
    return complain(status);
  const Result<Resolved> resolved = resolve_plan(plan, options);
  if (!resolved) return complain(resolved.error());
  const std::string out = options.out.empty() ? options.folder + "/merged" : options.out;
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error)
    return complain({Code::kInvalidArgument,
                     fmt::format("cannot make the folder {}: {}; give another with --out", out,
                                 error.message())});
  nlohmann::ordered_json list = nlohmann::ordered_json::object();
  const auto cases = smallest_by_index(*summary);
  for (const auto& [index, pairs] : cases) {
    const Case value =
        generate(plan.seed, index, generate_options_of(resolved->options, resolved->lane));
    const std::string about =
        fmt::format("the smallest case of the campaign with: {}", fmt::join(pairs, "; "));
    const std::string path = fmt::format("{}/{}.json", out, index);
    if (const Status status = write_case(path, value, about); !status.ok()) return complain(status);
    list[path] = pairs;
  }
  if (!options.json.empty())
    if (const Status status = write_file(options.json, list.dump(1) + "\n"); !status.ok())
      return complain(status);
  std::size_t pairs = 0;
  for (const auto& [index, names] : cases) pairs += names.size();
  tell(fmt::format("{} cases in {} are the smallest ones of {} pairs of features, of {}\n",
                   cases.size(), out, pairs, pairs_of_features().size()));
  return cases.empty() ? kInconclusive : 0;
}

}  // namespace lockstep::properties
