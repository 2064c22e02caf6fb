// CampaignSummary: what all shards of a campaign have done together, and their failures in groups.
// Every case counts once.
//
// These are pure functions of their arguments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "properties/campaign/plan.h"
#include "properties/campaign/shard_log.h"
#include "properties/campaign/signature.h"

namespace lockstep::properties {

// A failing case, and what is left of it after shrinking.
struct CampaignFailure {
  std::uint64_t shard = 0;
  FailureRecord found;
  std::optional<ShrunkRecord> shrunk;  // nothing: it was not made small
  std::optional<Case> small;           // of a case that was, and failed again
};

// Failures with one signature. The leader is the smallest of them.
struct FailureGroup {
  Signature signature;
  CampaignFailure leader;
  std::vector<std::uint64_t> indices;  // of all, ascending
  std::string block;                   // what people read about the leader; empty without triage
};

// Failures without a small case.
struct OtherFailures {
  int exit_code = 0;
  std::string oracle;
  std::uint64_t not_shrunk = 0;
  std::uint64_t not_reproduced = 0;  // they did not fail again
};

struct ShardSummary {
  Shard shard;
  std::uint64_t cases = 0;
  std::optional<std::uint64_t> of_cases;  // if the campaign has an end
  std::uint64_t failures = 0;
  double seconds = 0;
  std::string state;  // such as "running"
};

struct CampaignSummary {
  CampaignPlan plan;
  std::vector<ShardSummary> shards;    // all of the plan, also those that have not begun
  RunReport total;                     // without failures; seconds are those of all shards together
  std::optional<std::uint64_t> cases;  // of the whole campaign, if it has an end
  std::map<std::string, SmallCase> smallest;  // by feature
  std::vector<CampaignFailure> failures;      // ascending by index
  std::vector<FailureGroup> groups;           // the largest first
  std::vector<OtherFailures> others;
  std::vector<std::string> remarks;  // what a person should know about the logs
  double last_feature_seconds = 0;   // since the campaign has seen a new feature
  std::uint64_t last_feature_cases = 0;
};

// `running` has the numbers of the shards that a process runs.
CampaignSummary summarize(const CampaignPlan& plan, const std::vector<ShardHistory>& shards,
                          const std::set<std::uint64_t>& running);

// Sorts the failures of the summary into groups. Their small cases must be there.
void group_failures(CampaignSummary& summary);
// Makes one group of those whose leaders have the same signature, after leaders have changed.
void merge_groups(CampaignSummary& summary);

// What the campaign excludes with 95 % confidence; empty before the first case that has passed.
std::string excluded_line(const CampaignSummary& summary);
// The names of all pairs of features.
std::vector<std::string> pairs_of_features();
// The command that writes a case of the campaign to a file. `program` is lockstep's name.
std::string generate_line(const CampaignPlan& plan, std::uint64_t index,
                          const std::string& program);

std::string to_text(const CampaignSummary& summary);
std::string groups_text(
    const CampaignSummary& summary);  // the groups, with blocks if there are any
std::string to_json(const CampaignSummary& summary);

}  // namespace lockstep::properties
