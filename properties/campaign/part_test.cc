// Claim: the number of a part is what the command line or the cluster's variables say, and numbers
// that cannot be right are refused with a line that names the variable.
#include "properties/campaign/part.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace lockstep::properties {
namespace {

using Variables = std::map<std::string, std::string>;

Result<CampaignPart> resolve(const std::string& text, const Variables& variables,
                             std::optional<std::uint64_t> parts = std::nullopt) {
  return resolve_part(text, parts, [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect_part(const Result<CampaignPart>& part, std::uint64_t number, std::uint64_t count) {
  ASSERT_TRUE(part) << part.error().failure().detail;
  EXPECT_EQ(part->number, number);
  EXPECT_EQ(part->count, count);
}

void expect_refused(const Result<CampaignPart>& part, const std::string& text) {
  ASSERT_FALSE(part) << part->to_string();
  EXPECT_NE(part.error().failure().detail.find(text), std::string::npos)
      << part.error().failure().detail;
}

Variables array(const char* id, const char* count, const char* least, const char* most) {
  return {{"SLURM_ARRAY_TASK_ID", id},
          {"SLURM_ARRAY_TASK_COUNT", count},
          {"SLURM_ARRAY_TASK_MIN", least},
          {"SLURM_ARRAY_TASK_MAX", most}};
}

TEST(CampaignPart, TheCommandLineNamesIt) {
  expect_part(resolve("3/16", {}), 3, 16);
  expect_part(resolve("0/1", array("7", "8", "0", "7")), 0, 1);
}

TEST(CampaignPart, EachClusterNamesIt) {
  expect_part(resolve("auto", array("2", "4", "0", "3")), 2, 4);
  expect_part(resolve("auto", array("4", "4", "1", "4")), 3, 4);
  expect_part(resolve("auto", {{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}}), 5, 6);
  expect_part(resolve("auto", {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}}), 1,
              3);
  expect_part(resolve("auto", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), 0, 2);
  expect_part(resolve("auto", {{"JOB_COMPLETION_INDEX", "9"}}, 10), 9, 10);
}

TEST(CampaignPart, TheInnermostLauncherCounts) {
  Variables variables{{"SLURM_PROCID", "0"},
                      {"SLURM_NTASKS", "2"},
                      {"OMPI_COMM_WORLD_RANK", "7"},
                      {"OMPI_COMM_WORLD_SIZE", "8"}};
  expect_part(resolve("auto", variables), 7, 8);
}

TEST(CampaignPart, RanksOfAnArrayCountThrough) {
  Variables variables = array("1", "3", "0", "2");
  variables["SLURM_PROCID"] = "0";
  variables["SLURM_NTASKS"] = "2";  // a batch script has these, too, and is one process
  expect_part(resolve("auto", variables), 1, 3);
  variables["SLURM_PROCID"] = "1";
  variables["SLURM_STEP_NUM_TASKS"] = "2";  // a step of srun
  expect_part(resolve("auto", variables), 3, 6);
}

TEST(CampaignPart, SomeTasksOfAnArrayNeedTheCount) {
  expect_refused(resolve("auto", array("7", "2", "3", "7")), "give --parts N");
  expect_part(resolve("auto", array("7", "2", "3", "7"), 8), 7, 8);
}

TEST(CampaignPart, NumbersOutOfRangeAreRefused) {
  expect_refused(resolve("4/4", {}), "there is no part 4 of 4; they are numbered from 0 to 3");
  expect_refused(resolve("0/0", {}), "--part: a campaign has 1 to 1000000 parts, and not 0");
  expect_refused(resolve("0/1000001", {}), "and not 1000001");
  expect_refused(resolve("auto", {{"JOB_COMPLETION_INDEX", "16"}}, 16), "JOB_COMPLETION_INDEX");
  expect_refused(resolve("auto", {{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), "there is no part 2");
}

TEST(CampaignPart, OtherTextIsRefused) {
  for (const char* text : {"", "/", "1/", "/2", "-1/2", "1/2/3", "one/2", "1.5/2", "Auto"})
    expect_refused(resolve(text, {}), "is neither auto nor a part such as 0/4");
  expect_refused(resolve("auto", {}), "nothing in the environment says which part this is");
  expect_refused(resolve("auto", {{"JOB_COMPLETION_INDEX", "0"}}), "give --parts N");
  expect_refused(resolve("auto", {{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}), "PMI_RANK='x'");
  expect_refused(resolve("auto", {{"SLURM_ARRAY_TASK_ID", "1"}}), "no SLURM_ARRAY_TASK_COUNT");
  expect_refused(resolve("0/4", {}, 5), "contradict each other");
  expect_refused(resolve("auto", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, 3), "has 2 processes");
}

}  // namespace
}  // namespace lockstep::properties
