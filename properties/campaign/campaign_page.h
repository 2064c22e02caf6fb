// A page for a campaign: cases and features over time, the shards, the groups of failures, and the
// smallest case of every pair of features.
//
// A pure function. Failure: see Page::html().
#pragma once

#include <string>

#include "properties/campaign/summary.h"

namespace lockstep::properties {

// `program` is lockstep's name in commands.
Result<std::string> campaign_page(const CampaignSummary& summary, const std::string& program);

}  // namespace lockstep::properties
