// CampaignSummary: what all parts of a campaign have done together, and their failures by how they
// end. Every case counts once.
//
// These are pure functions of their arguments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "properties/campaign/part_log.h"
#include "properties/campaign/plan.h"

namespace lockstep::properties {

// A failing case, and what is left of it after shrinking.
struct CampaignFailure {
  std::uint64_t part = 0;
  FailureRecord found;
  std::optional<ShrunkRecord> shrunk;  // nothing: it was not made small
};

// Failures with one exit code and oracle.
struct Ending {
  int exit_code = 0;
  std::string oracle;
  std::vector<std::uint64_t> indices;   // of all, ascending
  std::vector<std::string> case_files;  // of those that were made small and failed again
};

struct PartSummary {
  CampaignPart part;
  std::uint64_t cases = 0;
  std::optional<std::uint64_t> of_cases;  // if the campaign has an end
  std::uint64_t failures = 0;
  double seconds = 0;
  std::string state;  // such as "running"
};

struct CampaignSummary {
  CampaignPlan plan;
  std::vector<PartSummary> parts;      // all of the plan, also those that have not begun
  RunReport total;                     // without failures; seconds are those of all parts together
  std::optional<std::uint64_t> cases;  // of the whole campaign, if it has an end
  std::map<std::string, SmallCase> smallest;  // by feature
  std::vector<CampaignFailure> failures;      // ascending by index
  std::vector<std::string> remarks;           // what a person should know about the logs
  double last_feature_seconds = 0;            // since the campaign has seen a new feature
  std::uint64_t last_feature_cases = 0;
};

// `running` has the numbers of the parts that a process runs.
CampaignSummary summarize(const CampaignPlan& plan, const std::vector<PartHistory>& parts,
                          const std::set<std::uint64_t>& running);

// The failures of the summary, the ending of most of them first.
std::vector<Ending> endings_of(const CampaignSummary& summary);

// What the campaign excludes with 95 % confidence; empty before the first case that has passed.
std::string excluded_line(const CampaignSummary& summary);
// The names of all pairs of features.
std::vector<std::string> pairs_of_features();
// The command that writes a case of the campaign to a file. `program` is lockstep's name.
std::string generate_line(const CampaignPlan& plan, std::uint64_t index,
                          const std::string& program);

std::string to_text(const CampaignSummary& summary);
// A line for each ending, and commands that replay a case and make it smaller. `folder`: the
// campaign's; `program`: lockstep's name.
std::string failures_text(const CampaignSummary& summary, const std::string& folder,
                          const std::string& program);
std::string to_json(const CampaignSummary& summary);

}  // namespace lockstep::properties
