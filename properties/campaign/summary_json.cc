// The JSON form of a CampaignSummary.
#include <nlohmann/json.hpp>

#include "properties/campaign/summary.h"
#include "properties/generate/features.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportVersion = 1;

Json json_of_part(const PartSummary& part) {
  Json json = {{"part", part.part.number},
               {"cases", part.cases},
               {"failures", part.failures},
               {"seconds", part.seconds},
               {"state", part.state}};
  if (part.of_cases) json["of_cases"] = *part.of_cases;
  return json;
}

Json json_of_failure(const CampaignFailure& failure) {
  Json json = {{"index", failure.found.index},
               {"part", failure.part},
               {"exit_code", static_cast<int>(failure.found.failing)},
               {"oracle", failure.found.oracle},
               {"faults_fired", failure.found.fired}};
  if (failure.shrunk) {
    json["case_file"] = failure.shrunk->case_file;
    json["reproduced"] = failure.shrunk->reproduced;
  }
  return json;
}

Json json_of_pairs(const CampaignSummary& summary) {
  Json pairs = Json::object();
  for (const std::string& pair : pairs_of_features()) {
    const auto found = summary.smallest.find(pair);
    if (found == summary.smallest.end())
      pairs[pair] = nullptr;
    else
      pairs[pair] = {{"index", found->second.index}, {"size", to_string(found->second.size)}};
  }
  return pairs;
}

}  // namespace

std::string to_json(const CampaignSummary& summary) {
  const CampaignPlan& plan = summary.plan;
  const RunReport& total = summary.total;
  Json json = {{"lockstep_campaign_report", kReportVersion},
               {"commit", plan.commit},
               {"lane", plan.lane},
               {"subject", plan.subject},
               {"against", plan.against},
               {"seed", plan.seed},
               {"cases", total.counts.cases},
               {"ok", total.counts.ok},
               {"faulted_ok", total.counts.faulted_ok},
               {"seconds", total.seconds},
               {"excluded", excluded_line(summary)},
               {"coverage_cases", total.coverage.cases},
               {"coverage", Json(total.coverage.features)},
               {"faults_fired", Json(total.coverage.faults_fired)},
               {"errors_judged", total.counts.errors},
               {"unspecified", Json(total.counts.unspecified)},
               {"determinism",
                {{"pairs", total.determinism.pairs}, {"mismatches", total.determinism.mismatches}}},
               {"parts", Json::array()},
               {"failures", Json::array()},
               {"smallest", json_of_pairs(summary)},
               {"notes", summary.remarks}};
  if (summary.cases) json["of_cases"] = *summary.cases;
  for (const PartSummary& part : summary.parts) json["parts"].push_back(json_of_part(part));
  for (const CampaignFailure& failure : summary.failures)
    json["failures"].push_back(json_of_failure(failure));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::properties
