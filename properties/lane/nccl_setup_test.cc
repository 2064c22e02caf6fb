// What a rank of the nccl lane has in its environment, and what is said of what a user asks for.
#include "properties/lane/nccl_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace lockstep::properties {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Pair;

class NcclSetupTest : public ::testing::Test {
 protected:
  ~NcclSetupTest() override {
    for (const char* name : {"LOCKSTEP_NCCL", "LOCKSTEP_NCCL_NET", "LOCKSTEP_NCCL_PLUGIN"})
      ::unsetenv(name);
  }
  static std::string refusal() {
    const Result<NcclSetup> setup = nccl_setup();
    return setup ? "" : setup.error().failure().detail;
  }
};

TEST_F(NcclSetupTest, UsualOneHasThePluginAndTheLibraryThatTheLoaderFinds) {
  const Result<NcclSetup> setup = nccl_setup();
  ASSERT_TRUE(setup.has_value());
  EXPECT_EQ(setup->library, "libnccl.so.2");
  EXPECT_TRUE(setup->uses_plugin);
  EXPECT_STREQ(setup->network(), "Lockstep");
  EXPECT_THAT(setup->plugin, HasSubstr("libnccl-net-lockstep.so"));
}

TEST_F(NcclSetupTest, WhatMakesNoSenseIsRefusedInOneLine) {
  ::setenv("LOCKSTEP_NCCL_NET", "ib", 1);
  EXPECT_THAT(refusal(), HasSubstr("LOCKSTEP_NCCL_NET is 'ib': use lockstep"));
  ::setenv("LOCKSTEP_NCCL_NET", "socket", 1);
  EXPECT_EQ(refusal(), "");
  ::setenv("LOCKSTEP_NCCL_PLUGIN", "/no/such/file.so", 1);
  EXPECT_THAT(refusal(), HasSubstr("there is no file /no/such/file.so"));
}

TEST_F(NcclSetupTest, EveryRankIsAMachineOfItsOwnAndPinnedToOneWayOfAdding) {
  NcclSetup setup;
  const Variables list = nccl_variables(setup, "77", 2, "/proc/self/fd/9");
  const std::map<std::string, std::string> variables(list.begin(), list.end());
  EXPECT_EQ(variables.size(), list.size());  // each once
  EXPECT_THAT(
      variables,
      IsSupersetOf({Pair("NCCL_HOSTID", "lockstep-77-r2"), Pair("NCCL_NET", "Lockstep"),
                    Pair("NCCL_NET_PLUGIN", "lockstep"), Pair("NCCL_ALGO", "Ring"),
                    Pair("NCCL_NET_PLUGIN_REF_COUNT", "1"), Pair("NCCL_PROTO", "Simple"),
                    Pair("NCCL_TUNER_PLUGIN", "none"), Pair("NCCL_BUFFSIZE", "4194304"),
                    Pair("NCCL_MIN_NCHANNELS", "1"), Pair("NCCL_MAX_NCHANNELS", "1"),
                    Pair("NCCL_P2P_DISABLE", "1"), Pair("NCCL_SHM_DISABLE", "1"),
                    Pair("NCCL_DEBUG", "INFO"), Pair("NCCL_DEBUG_SUBSYS", "INIT,NET,TUNING"),
                    Pair("NCCL_DEBUG_FILE", "/proc/self/fd/9"), Pair("LOCKSTEP_RANK", "2"),
                    Pair("CUDA_MODULE_LOADING", "EAGER")}));
  const Variables other = nccl_variables(setup, "77", 1, "/proc/self/fd/9");
  EXPECT_NE(list[0].second, other[0].second);
}

TEST_F(NcclSetupTest, WithSocketsNoPluginIsLookedFor) {
  NcclSetup setup;
  setup.uses_plugin = false;
  setup.plugin = "/no/such/file.so";
  const Variables list = nccl_variables(setup, "77", 0, "log");
  const std::map<std::string, std::string> variables(list.begin(), list.end());
  EXPECT_EQ(variables.at("NCCL_NET"), "Socket");
  EXPECT_EQ(variables.at("NCCL_NET_PLUGIN"), "none");
  EXPECT_TRUE(load_plugin(setup).ok());
}

TEST_F(NcclSetupTest, PluginThatIsNotThereOrNoneIsRefusedWithAdvice) {
  NcclSetup setup;
  setup.plugin = "/no/such/file.so";
  EXPECT_THAT(load_plugin(setup).failure().detail, HasSubstr("LOCKSTEP_NCCL_NET=socket"));
  setup.plugin = "/proc/self/exe";
  EXPECT_THAT(load_plugin(setup).failure().detail, HasSubstr("cannot be loaded"));
  setup.plugin = LOCKSTEP_SMALL_NCCL;
  EXPECT_THAT(load_plugin(setup).failure().detail, HasSubstr("is not our net plug-in"));
  setup.plugin = LOCKSTEP_NET_PLUGIN;
  EXPECT_TRUE(load_plugin(setup).ok());
}

TEST_F(NcclSetupTest, VersionsWhoseRingIsNotKnownAreRefused) {
  EXPECT_TRUE(check_nccl_version(22809, "libnccl.so.2").ok());
  EXPECT_TRUE(check_nccl_version(22203, "libnccl.so.2").ok());
  EXPECT_THAT(check_nccl_version(22105, "old.so").failure().detail,
              HasSubstr("old.so is NCCL 2.21"));
  EXPECT_TRUE(check_nccl_version(23203, "libnccl.so.2").ok());
  EXPECT_THAT(check_nccl_version(23301, "new.so").failure().detail,
              HasSubstr("new.so is NCCL 2.33: it is not known whether it adds as 2.22 to 2.32 do"));
}

}  // namespace
}  // namespace lockstep::properties
