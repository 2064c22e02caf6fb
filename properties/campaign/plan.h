// CampaignPlan: what all parts of a campaign have in common. The first part writes it to
// campaign.json in the campaign's folder, and every process that comes later must agree with it.
// Counters in the logs of the parts are in the order of the plan's features.
//
// Threads: any. Failure: one line that says which value differs, and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/case/case_json.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

constexpr int kCampaignVersion = 2;  // of the files

struct CampaignPlan {
  std::string program;  // the version of lockstep
  std::string commit;
  std::uint64_t parts = 1;
  std::uint64_t seed = 1;
  std::string lane;
  std::string subject;
  std::string against;    // the other subject; empty if there is none
  std::string faults;     // as on the command line, like the next two
  std::string transport;  // empty: all kinds
  std::string policy;     // empty: the generator draws policies
  std::vector<std::string> features;
};

std::string to_json(const CampaignPlan& plan);
// `source` names the text in errors.
Result<CampaignPlan> plan_from_json(const std::string& text, const std::string& source);

// Says in one line how a run of `mine` differs from the campaign `theirs` in the folder, and what
// to do; empty if they agree.
std::string plan_difference(const CampaignPlan& theirs, const CampaignPlan& mine,
                            const std::string& folder);

std::string plan_file(const std::string& folder);
Result<CampaignPlan> read_plan(const std::string& folder);

// Begins the campaign of the folder, or joins the one that is there. Without `has_seed` a campaign
// that is there gives its seed to `mine`. Returns the plan that counts. If several processes begin
// it at the same time, one of them does, and the others join it.
Result<CampaignPlan> join_campaign(const std::string& folder, CampaignPlan mine, bool has_seed);

// Returns the record of how a case was found, for the case files of the campaign.
FoundWith found_with(const CampaignPlan& plan);

}  // namespace lockstep::properties
