#include "properties/campaign/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "properties/case/case_json.h"
#include "properties/case/invalid.h"

namespace lockstep::properties {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxPlanBytes = 4u << 20u;

// A value of a plan, as people read it.
struct Entry {
  const char* name;
  std::string (*text)(const CampaignPlan&);
};

constexpr std::array<Entry, 8> kEntries{
    {{"parts", [](const CampaignPlan& plan) { return fmt::format("{}", plan.parts); }},
     {"seed", [](const CampaignPlan& plan) { return fmt::format("{}", plan.seed); }},
     {"lane", [](const CampaignPlan& plan) { return plan.lane; }},
     {"subject", [](const CampaignPlan& plan) { return plan.subject; }},
     {"--against", [](const CampaignPlan& plan) { return plan.against; }},
     {"--faults", [](const CampaignPlan& plan) { return plan.faults; }},
     {"--transport", [](const CampaignPlan& plan) { return plan.transport; }},
     {"--policy", [](const CampaignPlan& plan) { return plan.policy; }}}};

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

}  // namespace

std::string to_json(const CampaignPlan& plan) {
  return Json{{"lockstep_campaign", kCampaignVersion},
              {"program", plan.program},
              {"commit", plan.commit},
              {"parts", plan.parts},
              {"seed", plan.seed},
              {"lane", plan.lane},
              {"subject", plan.subject},
              {"against", plan.against},
              {"faults", plan.faults},
              {"transport", plan.transport},
              {"policy", plan.policy},
              {"features", plan.features}}
             .dump(1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

Result<CampaignPlan> plan_from_json(const std::string& text, const std::string& source) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("lockstep_campaign"))
    return failed(invalid(fmt::format(
        "{} is not the plan of a campaign: give another folder with --campaign", source)));
  try {
    const int version = json.at("lockstep_campaign");
    if (version != kCampaignVersion)
      return failed(
          invalid(fmt::format("{} has version {} of a campaign's files, and this program "
                              "reads version {}: use the lockstep that began it",
                              source, version, kCampaignVersion)));
    return CampaignPlan{json.at("program"), json.at("commit"),  json.at("parts"),
                        json.at("seed"),    json.at("lane"),    json.at("subject"),
                        json.at("against"), json.at("faults"),  json.at("transport"),
                        json.at("policy"),  json.at("features")};
  } catch (const Json::exception& error) {
    return failed(
        invalid(fmt::format("{} is not the plan of a campaign ({}): give another folder "
                            "with --campaign",
                            source, error.what())));
  }
}

std::string plan_difference(const CampaignPlan& theirs, const CampaignPlan& mine,
                            const std::string& folder) {
  if (theirs.program != mine.program || theirs.commit != mine.commit)
    return fmt::format(
        "the campaign in {} was begun by lockstep {} ({}), and this is {} ({}): a case may mean "
        "something else there; go on with that build, or begin another folder",
        folder, theirs.program, theirs.commit, mine.program, mine.commit);
  for (const Entry& each : kEntries)
    if (each.text(theirs) != each.text(mine))
      return fmt::format(
          "the campaign in {} has {} {}, and this run {}: give the same, or another folder", folder,
          each.name, or_none(each.text(theirs)), or_none(each.text(mine)));
  if (theirs.features != mine.features)
    return fmt::format(
        "the campaign in {} counts other features than this program, although both say that they "
        "are of commit {}: begin another folder",
        folder, mine.commit);
  return {};
}

std::string plan_file(const std::string& folder) { return folder + "/campaign.json"; }

Result<CampaignPlan> read_plan(const std::string& folder) {
  const std::string path = plan_file(folder);
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return failed(
        invalid(fmt::format("there is no campaign in {}: it has no campaign.json", folder)));
  const Result<std::string> text = read_file(path, kMaxPlanBytes);
  if (!text) return failed(text.error());
  return plan_from_json(*text, path);
}

Result<CampaignPlan> join_campaign(const std::string& folder, CampaignPlan mine, bool has_seed) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return failed(invalid(fmt::format("cannot make the folder {}: {}; give another with --campaign",
                                      folder, error.message())));
  const std::string path = plan_file(folder);
  if (!std::filesystem::exists(path, error)) {
    // A link appears at once, whole, and never replaces another.
    std::array<char, 256> host{};
    (void)::gethostname(host.data(), host.size() - 1);
    const std::string draft = fmt::format("{}.{}.{}", path, host.data(), ::getpid());
    if (const Status status = write_file(draft, to_json(mine)); !status.ok()) return failed(status);
    const bool is_linked = ::link(draft.c_str(), path.c_str()) == 0;
    const int why = errno;
    ::unlink(draft.c_str());
    if (!is_linked && why != EEXIST)
      return failed(
          invalid(fmt::format("cannot make {}: {}; give a folder of a file system that has "
                              "hard links",
                              path, std::strerror(why))));
  }
  Result<CampaignPlan> theirs = read_plan(folder);
  if (!theirs) return theirs;
  if (!has_seed) mine.seed = theirs->seed;
  if (std::string difference = plan_difference(*theirs, mine, folder); !difference.empty())
    return failed(invalid(std::move(difference)));
  return theirs;
}

FoundWith found_with(const CampaignPlan& plan) {
  return {plan.subject, plan.lane, plan.against, {}, {}, {}};
}

}  // namespace lockstep::properties
