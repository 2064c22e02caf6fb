// The simulated NCCL as a library that load_nccl() finds by its path.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "faults/sim/nccl/test_nccl_run.h"

namespace lockstep::simulated {
namespace {

using Install = void (*)(const NcclApi*);

Install install_of(const NcclApi& loaded) {
  void* const library = ::dlopen(loaded.library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(library, nullptr);
  return reinterpret_cast<Install>(::dlsym(library, "lockstep_nccl_sim_install"));
}

TEST(SimNcclLibrary, IsLoadedAndDoesNothingBeforeATableIsThere) {
  const Result<NcclApi> api = load_nccl(LOCKSTEP_NCCL_SIM_LIBRARY);
  ASSERT_TRUE(api.has_value()) << api.error().to_string();
  EXPECT_EQ(api->version, 22809);
  for (const char* name : {"ncclCommFinalize", "ncclCommSplit", "ncclCommShrink", "ncclCommRevoke"})
    EXPECT_TRUE(api->lacking(name).ok()) << name;
  NcclUniqueId id;
  EXPECT_EQ(api->get_unique_id(&id), NcclResult::kInvalidUsage);
  NcclComm comm = nullptr;
  EXPECT_EQ(api->comm_init_rank_config(&comm, 1, id, 0, nullptr), NcclResult::kInvalidUsage);
  EXPECT_EQ(api->comm_abort(nullptr), NcclResult::kInvalidUsage);
  EXPECT_EQ(api->group_start(), NcclResult::kInvalidUsage);
  EXPECT_EQ(api->comm_shrink(nullptr, nullptr, 0, nullptr, nullptr, 0), NcclResult::kInvalidUsage);
  EXPECT_THAT(api->get_last_error(nullptr), ::testing::HasSubstr("no table"));
  EXPECT_THAT(api->get_error_string(NcclResult::kSuccess), ::testing::HasSubstr("no table"));
}

TEST(SimNcclLibrary, RunsWhatIsInstalled) {
  const Result<NcclApi> api = load_nccl(LOCKSTEP_NCCL_SIM_LIBRARY);
  ASSERT_TRUE(api.has_value()) << api.error().to_string();
  const Install install = install_of(*api);
  ASSERT_NE(install, nullptr);
  NcclRun run(3);
  run.before = [&](NcclApi& of_run) {
    static NcclApi table;
    table = of_run;
    install(&table);
    of_run = *api;
  };
  const simulation::End end = run.run([&](SimRank& on) {
    EXPECT_EQ(on.api().all_reduce, api->all_reduce);
    int version = 0;
    EXPECT_EQ(on.api().get_version(&version), NcclResult::kSuccess);
    EXPECT_EQ(version, run.options.version);
    const NcclComm comm = on.connected();
    const Tensor data = on.made(std::vector<float>(100, 2));
    EXPECT_EQ(on.settled(comm, on.api().all_reduce(data.data(), data.data(), 100, kNcclFloat,
                                                   NcclRedOp::kSum, comm, on.native())),
              NcclResult::kSuccess);
    EXPECT_EQ(on.values(data), std::vector<float>(100, 6));
    on.destroy(comm);
  });
  EXPECT_EQ(end, simulation::End::kFinished) << run.wait_graph;
  NcclUniqueId id;  // the run is over
  EXPECT_EQ(api->get_unique_id(&id), NcclResult::kInvalidUsage);
  install(nullptr);
  EXPECT_EQ(api->group_start(), NcclResult::kInvalidUsage);
}

}  // namespace
}  // namespace lockstep::simulated
