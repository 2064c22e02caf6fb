// NCCL itself, on a GPU that is played, does what the reducer relies on: the tests that the
// simulated NCCL passes, with ranks as processes, over our plug-in and over NCCL's sockets.
#include <gtest/gtest.h>

#include "properties/lane/test_played_nccl.h"
#include "reducer/comm/nccl/test_nccl_group_conformance.h"
#include "reducer/comm/nccl/test_nccl_processes.h"
#include "reducer/comm/nccl/test_nccl_states.h"

namespace lockstep {
namespace {

using OverPlugin = NcclProcesses<testing::PlayedNccl<testing::PlayedNetwork::kPlugin>>;
// The process group runs in every ctest on a machine with an NCCL that can be played.
using OverAnyNccl = NcclProcesses<testing::PlayedNccl<testing::PlayedNetwork::kPlugin, true>>;
using OverSockets = NcclProcesses<testing::PlayedNccl<testing::PlayedNetwork::kSockets>>;

INSTANTIATE_TYPED_TEST_SUITE_P(PlayedNccl, NcclConformance, OverPlugin);
INSTANTIATE_TYPED_TEST_SUITE_P(PlayedNccl, NcclGroupConformance, OverAnyNccl);
INSTANTIATE_TYPED_TEST_SUITE_P(PlayedNccl, NcclStates, OverPlugin);
INSTANTIATE_TYPED_TEST_SUITE_P(PlayedNcclOverSockets, NcclConformance, OverSockets);
INSTANTIATE_TYPED_TEST_SUITE_P(PlayedNcclOverSockets, NcclGroupConformance, OverSockets);

}  // namespace
}  // namespace lockstep
