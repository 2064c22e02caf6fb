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

#include "properties/campaign/campaign_page.h"
#include "properties/campaign/shard_files.h"
#include "properties/campaign/summary.h"
#include "properties/case/case_json.h"
#include "properties/cli/interrupt.h"
#include "properties/cli/output.h"
#include "properties/cli/scratch.h"
#include "properties/lane/needs.h"
#include "properties/process/terminal.h"
#include "properties/subject/brings_code.h"

namespace lockstep::properties {
namespace {

// Whether the file that a log names is in the campaign's folder, also where it is a link.
bool is_inside(const std::string& folder, const std::string& file) {
  const std::filesystem::path relative(file);
  std::error_code error;
  const auto root = std::filesystem::canonical(folder, error);
  if (error || relative.is_absolute()) return false;
  const auto whole = std::filesystem::weakly_canonical(root / relative, error);
  if (error) return false;
  const auto [end, unused] = std::mismatch(root.begin(), root.end(), whole.begin(), whole.end());
  return end == root.end() && whole != root;
}

// Reads the small cases of the failures. One that is gone or cannot be read counts as not made
// small, with a remark.
void read_small_cases(const std::string& folder, CampaignSummary& summary) {
  for (CampaignFailure& failure : summary.failures) {
    if (!failure.shrunk || !failure.shrunk->reproduced) continue;
    if (!is_inside(folder, failure.shrunk->case_file)) {
      summary.remarks.push_back(fmt::format(
          "the log names the case file {}, which is not in the campaign's folder, and is not read",
          failure.shrunk->case_file));
      continue;
    }
    Result<Case> small = read_case(folder + "/" + failure.shrunk->case_file);
    if (small)
      failure.small = std::move(*small);
    else
      summary.remarks.push_back(small.error().failure().detail);
  }
}

Result<CampaignSummary> read_campaign(const std::string& folder) {
  const Result<CampaignPlan> plan = read_plan(folder);
  if (!plan) return failed(plan.error());
  const Result<std::vector<ShardHistory>> shards = read_shards(folder);
  if (!shards) return failed(shards.error());
  std::set<std::uint64_t> running;
  for (const ShardHistory& shard : *shards)
    if (is_running(folder, shard.shard.number)) running.insert(shard.shard.number);
  CampaignSummary summary = summarize(*plan, *shards, running);
  read_small_cases(folder, summary);
  group_failures(summary);
  return summary;
}

Status write_reports(const CampaignCommandOptions& options, const CampaignSummary& summary) {
  if (!options.json.empty()) LOCKSTEP_RETURN_IF_ERROR(write_file(options.json, to_json(summary)));
  if (options.html.empty()) return {};
  const Result<std::string> page = campaign_page(summary, options.program);
  return page ? write_file(options.html, *page) : page.error();
}

int code_of(const CampaignSummary& summary) {
  if (!summary.failures.empty()) return static_cast<int>(summary.failures.front().found.failing);
  return summary.total.cases == 0 ? kInconclusive : 0;
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

class Triage {
 public:
  Triage(const CampaignCommandOptions& options, CampaignSummary summary, Resolved resolved)
      : options_(options), summary_(std::move(summary)), resolved_(std::move(resolved)) {}

  Status run() {
    std::error_code error;
    std::filesystem::create_directories(options_.folder + "/triage", error);
    if (error)
      return {Code::kInvalidArgument, fmt::format("cannot make the folder {}/triage: {}",
                                                  options_.folder, error.message())};
    if (options_.all) LOCKSTEP_RETURN_IF_ERROR(shrink_rest());
    group_failures(summary_);
    for (FailureGroup& group : summary_.groups)
      if (!interrupted() && options_.shrink_seconds > 0)
        LOCKSTEP_RETURN_IF_ERROR(shrink(group.leader, Case(*group.leader.small)));
    // Smaller leaders may turn out to be alike.
    merge_groups(summary_);
    for (FailureGroup& group : summary_.groups) group.block = block_of(group.leader);
    return {};
  }

  const CampaignSummary& summary() const { return summary_; }

 private:
  Case case_at(std::uint64_t index) const {
    return generate(summary_.plan.seed, index,
                    generate_options_of(resolved_.options, resolved_.lane));
  }

  Status shrink_rest() {
    for (CampaignFailure& failure : summary_.failures) {
      const bool is_of_case = failure.found.failing != Failing::kUnproven;
      if (failure.small || !is_of_case || interrupted()) continue;
      LOCKSTEP_RETURN_IF_ERROR(shrink(failure, case_at(failure.found.index)));
    }
    return {};
  }

  Status shrink(CampaignFailure& failure, const Case& value) {
    write_aside(
        fmt::format("making case {} small ({})...\n", failure.found.index, failure.found.oracle));
    Outcome outcome;
    outcome.verdict = verdict_of(failure.found);
    const Shrunk small = shrink_failure(value, outcome, resolved_.lane, resolved_.options.subject,
                                        options_.shrink_seconds);
    if (interrupted() || (failure.small && !small.reproduced)) return {};
    ShrunkRecord record;
    record.index = failure.found.index;
    record.reproduced = small.reproduced;
    record.case_file = fmt::format("triage/{}.json", failure.found.index);
    record.message = small.outcome.verdict.message;
    record.diagnosis = small.outcome.diagnosis;
    record.irrelevant = small.irrelevant;
    record.executions = small.executions;
    const std::string about =
        fmt::format("{} ({}) on subject {}, lane {}: seed {}, case {}",
                    name_of(failure.found.failing), failure.found.oracle, summary_.plan.subject,
                    summary_.plan.lane, summary_.plan.seed, failure.found.index);
    LOCKSTEP_RETURN_IF_ERROR(write_case(options_.folder + "/" + record.case_file, small.value,
                                        about, found_with(summary_.plan)));
    failure.shrunk = std::move(record);
    if (small.reproduced) failure.small = small.value;
    return {};
  }

  std::string block_of(const CampaignFailure& leader) const {
    FailureReport report;
    report.value = *leader.small;
    report.outcome.verdict = {leader.found.failing, leader.found.oracle, leader.shrunk->message};
    report.outcome.diagnosis = leader.shrunk->diagnosis;
    report.lane = summary_.plan.lane;
    report.subject = summary_.plan.subject;
    report.against = summary_.plan.against;
    report.commit = summary_.plan.commit;
    report.seed = summary_.plan.seed;
    report.index = leader.found.index;
    report.shrink_executions = leader.shrunk->executions;
    report.irrelevant = leader.shrunk->irrelevant;
    report.case_file = options_.folder + "/" + leader.shrunk->case_file;
    report.program = options_.program;
    return failure_block(report) + fmt::format("found:  seed {}, case {}, by shard {}\n",
                                               report.seed, report.index, leader.shard);
  }

  const CampaignCommandOptions& options_;
  CampaignSummary summary_;
  Resolved resolved_;
};

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
  tell(to_text(*summary) + (summary->failures.empty() ? "" : "\n" + groups_text(*summary)));
  if (const Status status = write_reports(options, *summary); !status.ok()) return complain(status);
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

int run_campaign_triage(const CampaignCommandOptions& options) {
  Result<CampaignSummary> summary = read_campaign(options.folder);
  if (!summary) return complain(summary.error());
  if (summary->failures.empty()) {
    tell(to_text(*summary) + "there is no failure\n");
    const Status status = write_reports(options, *summary);
    return status.ok() ? code_of(*summary) : complain(status);
  }
  if (const Status status = refuse_other_build(summary->plan, options.folder); !status.ok())
    return complain(status);
  Result<Resolved> resolved = resolve_plan(summary->plan, options);
  if (!resolved) return complain(resolved.error());
  const Status needed = check_needs(needs_of(resolved->lane, resolved->options.subject, 1));
  if (!needed.ok()) return complain(needed, kInconclusive);
  watch_for_interrupt();
  const ScratchFolder scratch;
  Triage triage(options, std::move(*summary), std::move(*resolved));
  if (const Status status = triage.run(); !status.ok()) return complain(status);
  const CampaignSummary& result = triage.summary();
  tell(groups_text(result) + fmt::format("{} failing cases in {} groups\n", result.failures.size(),
                                         result.groups.size()));
  if (const Status status = write_reports(options, result); !status.ok()) return complain(status);
  return interrupted() ? kInterrupted : code_of(result);
}

}  // namespace lockstep::properties
