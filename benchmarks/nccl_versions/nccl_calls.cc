#include "benchmarks/nccl_versions/nccl_calls.h"

namespace lockstep::benchmarks {
namespace {

constexpr NcclDataType kType = NcclDataType::kFloat32;
constexpr std::size_t kBytes = 64;

int number(NcclResult result) { return static_cast<int>(result); }

// Initializes a communicator of one rank.
int init(const NcclApi& api, int blocking) {
  NcclUniqueId id{};
  if (const NcclResult result = api.get_unique_id(&id); result != NcclResult::kSuccess)
    return number(result);
  NcclConfig config = make_nccl_config(api.version);
  config.blocking = blocking;
  NcclComm comm = nullptr;
  return number(api.comm_init_rank_config(&comm, 1, id, 0, &config));
}

int ask(NcclResult (*question)(NcclComm, int*)) {
  int answer = 0;
  return number(question(nullptr, &answer));
}

int init_scalable(const NcclApi& api) {
  NcclUniqueId id{};
  if (const NcclResult result = api.get_unique_id(&id); result != NcclResult::kSuccess)
    return number(result);
  NcclConfig config = make_nccl_config(api.version);
  NcclComm comm = nullptr;
  return number(api.comm_init_rank_scalable(&comm, 1, 0, 1, &id, &config));
}

std::vector<NcclCall> calls_of_communicators() {
  return {
      {"ncclGetVersion", "ncclGetVersion",
       [](const NcclApi& api) {
         int version = 0;
         return number(api.get_version(&version));
       }},
      {"ncclGetUniqueId", "ncclGetUniqueId",
       [](const NcclApi& api) {
         NcclUniqueId id{};
         return number(api.get_unique_id(&id));
       }},
      {"ncclCommInitRankConfig, one rank, blocking", "ncclCommInitRankConfig",
       [](const NcclApi& api) { return init(api, 1); }},
      {"ncclCommInitRankConfig, one rank, non-blocking", "ncclCommInitRankConfig",
       [](const NcclApi& api) { return init(api, 0); }},
      {"ncclCommInitRankScalable, one rank", "ncclCommInitRankScalable", init_scalable},
      {"ncclCommDestroy, null", "ncclCommDestroy",
       [](const NcclApi& api) { return number(api.comm_destroy(nullptr)); }},
      {"ncclCommAbort, null", "ncclCommAbort",
       [](const NcclApi& api) { return number(api.comm_abort(nullptr)); }},
      {"ncclCommFinalize, null", "ncclCommFinalize",
       [](const NcclApi& api) { return number(api.comm_finalize(nullptr)); }},
      {"ncclCommSplit, null", "ncclCommSplit",
       [](const NcclApi& api) {
         NcclComm child = nullptr;
         return number(api.comm_split(nullptr, 0, 0, &child, nullptr));
       }},
      {"ncclCommShrink, null", "ncclCommShrink",
       [](const NcclApi& api) {
         NcclComm child = nullptr;
         int excluded = 0;
         return number(api.comm_shrink(nullptr, &excluded, 1, &child, nullptr, kNcclShrinkDefault));
       }},
      {"ncclCommRevoke, null", "ncclCommRevoke",
       [](const NcclApi& api) { return number(api.comm_revoke(nullptr, kNcclRevokeDefault)); }},
      {"ncclCommGetUniqueId, null", "ncclCommGetUniqueId",
       [](const NcclApi& api) {
         NcclUniqueId id{};
         return number(api.comm_get_unique_id(nullptr, &id));
       }},
      {"ncclCommGrow, null", "ncclCommGrow",
       [](const NcclApi& api) {
         NcclUniqueId id{};
         NcclComm child = nullptr;
         return number(api.comm_grow(nullptr, 2, &id, 1, &child, nullptr));
       }},
      {"ncclCommSuspend, null", "ncclCommSuspend",
       [](const NcclApi& api) { return number(api.comm_suspend(nullptr, kNcclSuspendMemory)); }},
      {"ncclCommResume, null", "ncclCommResume",
       [](const NcclApi& api) { return number(api.comm_resume(nullptr)); }},
      {"ncclCommGetAsyncError, null", "ncclCommGetAsyncError",
       [](const NcclApi& api) {
         NcclResult state = NcclResult::kSuccess;
         return number(api.comm_get_async_error(nullptr, &state));
       }},
      {"ncclCommCount, null", "ncclCommCount",
       [](const NcclApi& api) { return ask(api.comm_count); }},
      {"ncclCommCuDevice, null", "ncclCommCuDevice",
       [](const NcclApi& api) { return ask(api.comm_cu_device); }},
      {"ncclCommUserRank, null", "ncclCommUserRank",
       [](const NcclApi& api) { return ask(api.comm_user_rank); }},
  };
}

std::vector<NcclCall> calls_of_operations() {
  return {
      {"ncclRedOpCreatePreMulSum, null", "ncclRedOpCreatePreMulSum",
       [](const NcclApi& api) {
         NcclRedOp op{};
         float factor = 1;
         return number(api.red_op_create_pre_mul_sum(&op, &factor, kType,
                                                     NcclScalarResidence::kHostImmediate, nullptr));
       }},
      {"ncclRedOpDestroy, null", "ncclRedOpDestroy",
       [](const NcclApi& api) { return number(api.red_op_destroy(NcclRedOp::kSum, nullptr)); }},
      {"ncclBroadcast, null", "ncclBroadcast",
       [](const NcclApi& api) {
         float data = 1;
         return number(api.broadcast(&data, &data, 1, kType, 0, nullptr, nullptr));
       }},
      {"ncclAllReduce, null", "ncclAllReduce",
       [](const NcclApi& api) {
         float data = 1;
         return number(api.all_reduce(&data, &data, 1, kType, NcclRedOp::kSum, nullptr, nullptr));
       }},
      {"ncclReduceScatter, null", "ncclReduceScatter",
       [](const NcclApi& api) {
         float data = 1;
         return number(
             api.reduce_scatter(&data, &data, 1, kType, NcclRedOp::kSum, nullptr, nullptr));
       }},
      {"ncclAllGather, null", "ncclAllGather",
       [](const NcclApi& api) {
         float data = 1;
         return number(api.all_gather(&data, &data, 1, kType, nullptr, nullptr));
       }},
      {"ncclSend, null", "ncclSend",
       [](const NcclApi& api) {
         float data = 1;
         return number(api.send(&data, 1, kType, 0, nullptr, nullptr));
       }},
      {"ncclRecv, null", "ncclRecv",
       [](const NcclApi& api) {
         float data = 1;
         return number(api.receive(&data, 1, kType, 0, nullptr, nullptr));
       }},
      {"ncclGroupStart", "ncclGroupStart",
       [](const NcclApi& api) { return number(api.group_start()); }},
      {"ncclGroupEnd, without a start", "ncclGroupEnd",
       [](const NcclApi& api) { return number(api.group_end()); }},
      {"ncclGroupEnd, of an empty group", "ncclGroupEnd",
       [](const NcclApi& api) {
         const NcclResult started = api.group_start();
         return started == NcclResult::kSuccess ? number(api.group_end()) : number(started);
       }},
      {"ncclMemAlloc", "ncclMemAlloc",
       [](const NcclApi& api) {
         void* data = nullptr;
         return number(api.mem_alloc(&data, kBytes));
       }},
      {"ncclMemFree, null", "ncclMemFree",
       [](const NcclApi& api) { return number(api.mem_free(nullptr)); }},
      {"ncclCommRegister, null", "ncclCommRegister",
       [](const NcclApi& api) {
         float data = 1;
         void* handle = nullptr;
         return number(api.comm_register(nullptr, &data, sizeof data, &handle));
       }},
      {"ncclCommDeregister, null", "ncclCommDeregister",
       [](const NcclApi& api) { return number(api.comm_deregister(nullptr, nullptr)); }},
  };
}

}  // namespace

const std::vector<NcclCall>& nccl_calls() {
  static const std::vector<NcclCall> all = [] {
    std::vector<NcclCall> calls = calls_of_communicators();
    for (const NcclCall& call : calls_of_operations()) calls.push_back(call);
    return calls;
  }();
  return all;
}

}  // namespace lockstep::benchmarks
