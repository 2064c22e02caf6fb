// Holds our declarations of NCCL (nccl_api.h) against the header of an installed one. Compiled only
// where there is nccl.h and the CUDA toolkit that it includes: most of it are static assertions,
// each for the version since which the header has what it names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "reducer/comm/nccl/nccl_api.h"

namespace lockstep {
namespace {

// Same<Ours, Theirs>: both are passed in the same way, by size and alignment; pointers to structs
// that correspond, and enums, count as the same.
template <typename Ours, typename Theirs>
constexpr bool corresponds() {
  if constexpr (std::is_same_v<Ours, Theirs>) {
    return true;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using A = std::remove_pointer_t<Ours>;
    using B = std::remove_pointer_t<Theirs>;
    if constexpr (std::is_const_v<A> != std::is_const_v<B>) return false;
    // A stream is void* here; a struct that grows, or that nobody sees into, is its name.
    else if constexpr (std::is_void_v<A>)
      return std::is_same_v<Theirs, cudaStream_t>;
    else if constexpr (std::is_same_v<A, NcclConfig>)
      return std::is_same_v<B, ncclConfig_t>;
    else if constexpr (std::is_same_v<A, NcclCommunicator>)
      return std::is_same_v<B, ncclComm>;
    else
      return corresponds<std::remove_const_t<A>, std::remove_const_t<B>>();
  } else if constexpr (std::is_enum_v<Ours> && std::is_enum_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs) &&
           (std::is_same_v<Ours, NcclResult> == std::is_same_v<Theirs, ncclResult_t>)&&(
               std::is_same_v<Ours, NcclDataType> ==
               std::is_same_v<Theirs, ncclDataType_t>)&&(std::is_same_v<Ours, NcclRedOp> ==
                                                         std::is_same_v<Theirs, ncclRedOp_t>);
  } else if constexpr (std::is_same_v<Ours, NcclUniqueId>) {
    // NOLINTNEXTLINE(misc-redundant-expression): the types are those of an instance
    return std::is_same_v<Theirs, ncclUniqueId> && sizeof(Ours) == sizeof(Theirs) &&
           alignof(Ours) == alignof(Theirs);
  } else {
    return false;
  }
}

template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
constexpr bool same_signature(OurResult (*)(Ours...), TheirResult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs))
    return false;
  else
    return corresponds<OurResult, TheirResult>() &&
           (... && corresponds<std::remove_const_t<Ours>, std::remove_const_t<Theirs>>());
}

#define SAME_FUNCTION(ours, theirs) \
  static_assert(same_signature(decltype(NcclApi::ours){nullptr}, decltype(&theirs){nullptr}))

SAME_FUNCTION(get_version, ncclGetVersion);
SAME_FUNCTION(get_unique_id, ncclGetUniqueId);
SAME_FUNCTION(comm_init_rank_config, ncclCommInitRankConfig);
SAME_FUNCTION(comm_destroy, ncclCommDestroy);
SAME_FUNCTION(comm_abort, ncclCommAbort);
SAME_FUNCTION(get_error_string, ncclGetErrorString);
SAME_FUNCTION(get_last_error, ncclGetLastError);
SAME_FUNCTION(comm_get_async_error, ncclCommGetAsyncError);
SAME_FUNCTION(comm_count, ncclCommCount);
SAME_FUNCTION(comm_cu_device, ncclCommCuDevice);
SAME_FUNCTION(comm_user_rank, ncclCommUserRank);
SAME_FUNCTION(red_op_create_pre_mul_sum, ncclRedOpCreatePreMulSum);
SAME_FUNCTION(red_op_destroy, ncclRedOpDestroy);
SAME_FUNCTION(broadcast, ncclBroadcast);
SAME_FUNCTION(all_reduce, ncclAllReduce);
SAME_FUNCTION(reduce_scatter, ncclReduceScatter);
SAME_FUNCTION(all_gather, ncclAllGather);
SAME_FUNCTION(send, ncclSend);
SAME_FUNCTION(receive, ncclRecv);
SAME_FUNCTION(group_start, ncclGroupStart);
SAME_FUNCTION(group_end, ncclGroupEnd);
SAME_FUNCTION(comm_finalize, ncclCommFinalize);
#if NCCL_VERSION_CODE >= 21801
SAME_FUNCTION(comm_split, ncclCommSplit);
#endif
#if NCCL_VERSION_CODE >= 21901
SAME_FUNCTION(mem_alloc, ncclMemAlloc);
SAME_FUNCTION(mem_free, ncclMemFree);
SAME_FUNCTION(comm_register, ncclCommRegister);
SAME_FUNCTION(comm_deregister, ncclCommDeregister);
#endif
#if NCCL_VERSION_CODE >= 22304
SAME_FUNCTION(comm_init_rank_scalable, ncclCommInitRankScalable);
#endif
#if NCCL_VERSION_CODE >= 22703
SAME_FUNCTION(comm_shrink, ncclCommShrink);
static_assert(kNcclShrinkDefault == NCCL_SHRINK_DEFAULT);
static_assert(kNcclShrinkAbort == NCCL_SHRINK_ABORT);
#endif
#if NCCL_VERSION_CODE >= 22807
SAME_FUNCTION(comm_revoke, ncclCommRevoke);
static_assert(kNcclRevokeDefault == NCCL_REVOKE_DEFAULT);
#endif
#if NCCL_VERSION_CODE >= 22902
SAME_FUNCTION(comm_get_unique_id, ncclCommGetUniqueId);
SAME_FUNCTION(comm_grow, ncclCommGrow);
#endif
#if NCCL_VERSION_CODE >= 22907
SAME_FUNCTION(comm_suspend, ncclCommSuspend);
SAME_FUNCTION(comm_resume, ncclCommResume);
static_assert(kNcclSuspendMemory == NCCL_SUSPEND_MEM);
#endif

// What the check itself can tell apart.
static_assert(!corresponds<void*, const void*>());
static_assert(!corresponds<NcclResult, ncclRedOp_t>());
static_assert(!corresponds<NcclConfig*, ncclUniqueId*>());
static_assert(!corresponds<int, std::size_t>());
static_assert(!same_signature(decltype(NcclApi::send){nullptr}, &ncclRecv));
static_assert(!same_signature(decltype(NcclApi::all_reduce){nullptr}, &ncclBroadcast));

#define SAME_VALUE(ours, theirs) static_assert(static_cast<int>(ours) == theirs)
SAME_VALUE(NcclResult::kSuccess, ncclSuccess);
SAME_VALUE(NcclResult::kUnhandledCudaError, ncclUnhandledCudaError);
SAME_VALUE(NcclResult::kSystemError, ncclSystemError);
SAME_VALUE(NcclResult::kInternalError, ncclInternalError);
SAME_VALUE(NcclResult::kInvalidArgument, ncclInvalidArgument);
SAME_VALUE(NcclResult::kInvalidUsage, ncclInvalidUsage);
SAME_VALUE(NcclResult::kRemoteError, ncclRemoteError);
SAME_VALUE(NcclResult::kInProgress, ncclInProgress);
#if NCCL_VERSION_CODE >= 23003
SAME_VALUE(NcclResult::kTimeout, ncclTimeout);
#endif
SAME_VALUE(NcclDataType::kInt8, ncclInt8);
SAME_VALUE(NcclDataType::kUint8, ncclUint8);
SAME_VALUE(NcclDataType::kInt32, ncclInt32);
SAME_VALUE(NcclDataType::kUint32, ncclUint32);
SAME_VALUE(NcclDataType::kInt64, ncclInt64);
SAME_VALUE(NcclDataType::kUint64, ncclUint64);
SAME_VALUE(NcclDataType::kFloat16, ncclFloat16);
SAME_VALUE(NcclDataType::kFloat32, ncclFloat32);
SAME_VALUE(NcclDataType::kFloat64, ncclFloat64);
SAME_VALUE(NcclDataType::kBfloat16, ncclBfloat16);
SAME_VALUE(NcclRedOp::kSum, ncclSum);
SAME_VALUE(NcclRedOp::kProd, ncclProd);
SAME_VALUE(NcclRedOp::kMax, ncclMax);
SAME_VALUE(NcclRedOp::kMin, ncclMin);
SAME_VALUE(NcclRedOp::kAvg, ncclAvg);
SAME_VALUE(NcclScalarResidence::kDevice, ncclScalarDevice);
SAME_VALUE(NcclScalarResidence::kHostImmediate, ncclScalarHostImmediate);

// --- The configuration, field by field: the bytes between fields and behind the last one are
// nobody's, and later versions put fields there.

// Gives visit(name, our field, their field) each field that this header has.
template <class Ours, class Theirs, class Visitor>
void visit_fields(Ours& ours, Theirs& theirs, Visitor&& visit) {
#define SAME_FIELD(name)                                                                   \
  static_assert(offsetof(NcclConfig, name) == offsetof(ncclConfig_t, name));               \
  static_assert(std::is_same_v<decltype(NcclConfig::name), decltype(ncclConfig_t::name)>); \
  visit(#name, ours.name, theirs.name)
  SAME_FIELD(size);
  SAME_FIELD(magic);
  SAME_FIELD(version);
  SAME_FIELD(blocking);
#if NCCL_VERSION_CODE >= 21701
  SAME_FIELD(cgaClusterSize);
  SAME_FIELD(minCTAs);
  SAME_FIELD(maxCTAs);
  SAME_FIELD(netName);
#endif
#if NCCL_VERSION_CODE >= 21801
  SAME_FIELD(splitShare);
#endif
#if NCCL_VERSION_CODE >= 22602
  SAME_FIELD(trafficClass);
#endif
#if NCCL_VERSION_CODE >= 22703
  SAME_FIELD(commName);
  SAME_FIELD(collnetEnable);
  SAME_FIELD(CTAPolicy);
  SAME_FIELD(shrinkShare);
  SAME_FIELD(nvlsCTAs);
#endif
#if NCCL_VERSION_CODE >= 22803
  SAME_FIELD(nChannelsPerNetPeer);
  SAME_FIELD(nvlinkCentricSched);
#endif
#if NCCL_VERSION_CODE >= 22902
  SAME_FIELD(graphUsageMode);
  SAME_FIELD(numRmaCtx);
#endif
#if NCCL_VERSION_CODE >= 23003
  SAME_FIELD(maxP2pPeers);
#endif
#if NCCL_VERSION_CODE >= 23007
  SAME_FIELD(graphStreamOrdering);
#endif
#if NCCL_VERSION_CODE >= 23102
  SAME_FIELD(launchOrderImplicit);
  SAME_FIELD(numRmaSig);
  SAME_FIELD(rmaEagerInit);
  SAME_FIELD(hostCftMode);
#endif
#if NCCL_VERSION_CODE >= 23203
  SAME_FIELD(nvlsHostMode);
#endif
#undef SAME_FIELD
}

// How many fields a struct has, by how many values it can be made of.
struct AnyValue {
  template <class T>
  operator T() const;
};
template <class Struct, class... Values>
constexpr std::size_t field_count() {
  if constexpr (requires { Struct{Values{}..., AnyValue{}}; })
    return field_count<Struct, Values..., AnyValue>();
  else
    return sizeof...(Values);
}

struct Pair {
  int one;
  const char* two;
};
static_assert(field_count<Pair>() == 2);

std::vector<std::string> differing_fields(NcclConfig ours, ncclConfig_t theirs) {
  std::vector<std::string> names;
  visit_fields(ours, theirs, [&](const char* name, const auto& our, const auto& their) {
    if (our != their) names.emplace_back(name);
  });
  return names;
}

TEST(NcclHeader, OurConfigurationHasTheFieldsOfTheHeadersInitializer) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours = make_nccl_config(NCCL_VERSION_CODE);
  EXPECT_EQ(ours.size, sizeof theirs);
  EXPECT_THAT(differing_fields(ours, theirs), ::testing::IsEmpty());
}

// A field that a later header puts into what is padding up to now would not show in its size.
TEST(NcclHeader, TheHeadersConfigurationHasNoFieldThatIsNotKnownHere) {
  std::size_t known = 0;
  NcclConfig ours = make_nccl_config(NCCL_VERSION_CODE);
  ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  visit_fields(ours, theirs, [&](const char*, const auto&, const auto&) { ++known; });
  EXPECT_EQ(known, field_count<ncclConfig_t>());
}

TEST(NcclHeader, AFieldThatDiffersIsNamedAndWhatLiesBehindTheFieldsIsNot) {
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours = make_nccl_config(NCCL_VERSION_CODE);
  ncclConfig_t theirs = initial;
  std::vector<std::string> names;
  visit_fields(ours, theirs, [&](const char* name, const auto&, auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    const Field before = field;
    std::memset(&field, 1, sizeof field);
    EXPECT_THAT(differing_fields(ours, theirs), ::testing::ElementsAre(name));
    field = before;
    names.emplace_back(name);
  });
  EXPECT_GE(names.size(), 4U);
  // All bytes differ, and then every field is as it was.
  std::memset(&theirs, 1, sizeof theirs);
  ncclConfig_t from = initial;
  visit_fields(from, theirs, [](const char*, const auto& value, auto& field) { field = value; });
  EXPECT_THAT(differing_fields(ours, theirs), ::testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep
