// liblockstep_nccl_sim.so: exports NCCL's functions by name, and forwards them to a table that the
// program installs (lockstep_nccl_sim_install). So code that loads an NCCL library by its path
// finds a simulated one. The library knows nothing of simulators: the program owns the table.
//
// Before a table is installed, and for functions that the table lacks, a call returns
// ncclInvalidUsage, and ncclGetVersion returns the version below, because a loader asks for it
// before anybody could install a table. A library has one table for all threads; null removes it.
#include "reducer/comm/nccl/nccl_api.h"

#define LOCKSTEP_NCCL_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace lockstep;

constexpr int kVersion = 22809;
const NcclApi* installed = nullptr;

template <auto kFunction, class... Arguments>
NcclResult forward(Arguments... arguments) {
  if (installed == nullptr || installed->*kFunction == nullptr) return NcclResult::kInvalidUsage;
  return (installed->*kFunction)(arguments...);
}

template <auto kFunction>
const char* text(auto argument) {
  if (installed == nullptr || installed->*kFunction == nullptr)
    return "no table is installed in the simulated NCCL library";
  return (installed->*kFunction)(argument);
}

}  // namespace

LOCKSTEP_NCCL_EXPORT void lockstep_nccl_sim_install(const NcclApi* table) { installed = table; }

LOCKSTEP_NCCL_EXPORT NcclResult ncclGetVersion(int* version) {
  if (installed != nullptr) return forward<&NcclApi::get_version>(version);
  *version = kVersion;
  return NcclResult::kSuccess;
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  return forward<&NcclApi::get_unique_id>(id);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id,
                                                       int rank, NcclConfig* config) {
  return forward<&NcclApi::comm_init_rank_config>(comm, ranks, id, rank, config);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommDestroy(NcclComm comm) {
  return forward<&NcclApi::comm_destroy>(comm);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommAbort(NcclComm comm) {
  return forward<&NcclApi::comm_abort>(comm);
}
LOCKSTEP_NCCL_EXPORT const char* ncclGetErrorString(NcclResult result) {
  return text<&NcclApi::get_error_string>(result);
}
LOCKSTEP_NCCL_EXPORT const char* ncclGetLastError(NcclComm comm) {
  return text<&NcclApi::get_last_error>(comm);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* error) {
  return forward<&NcclApi::comm_get_async_error>(comm, error);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommCount(NcclComm comm, int* count) {
  return forward<&NcclApi::comm_count>(comm, count);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommCuDevice(NcclComm comm, int* device) {
  return forward<&NcclApi::comm_cu_device>(comm, device);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommUserRank(NcclComm comm, int* rank) {
  return forward<&NcclApi::comm_user_rank>(comm, rank);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclRedOpCreatePreMulSum(NcclRedOp* op, void* scalar,
                                                         NcclDataType type,
                                                         NcclScalarResidence residence,
                                                         NcclComm comm) {
  return forward<&NcclApi::red_op_create_pre_mul_sum>(op, scalar, type, residence, comm);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclRedOpDestroy(NcclRedOp op, NcclComm comm) {
  return forward<&NcclApi::red_op_destroy>(op, comm);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclBroadcast(const void* send, void* receive, std::size_t count,
                                              NcclDataType type, int root, NcclComm comm,
                                              CudaStreamHandle stream) {
  return forward<&NcclApi::broadcast>(send, receive, count, type, root, comm, stream);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclAllReduce(const void* send, void* receive, std::size_t count,
                                              NcclDataType type, NcclRedOp op, NcclComm comm,
                                              CudaStreamHandle stream) {
  return forward<&NcclApi::all_reduce>(send, receive, count, type, op, comm, stream);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclReduceScatter(const void* send, void* receive,
                                                  std::size_t count, NcclDataType type,
                                                  NcclRedOp op, NcclComm comm,
                                                  CudaStreamHandle stream) {
  return forward<&NcclApi::reduce_scatter>(send, receive, count, type, op, comm, stream);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclAllGather(const void* send, void* receive, std::size_t count,
                                              NcclDataType type, NcclComm comm,
                                              CudaStreamHandle stream) {
  return forward<&NcclApi::all_gather>(send, receive, count, type, comm, stream);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclSend(const void* data, std::size_t count, NcclDataType type,
                                         int peer, NcclComm comm, CudaStreamHandle stream) {
  return forward<&NcclApi::send>(data, count, type, peer, comm, stream);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclRecv(void* data, std::size_t count, NcclDataType type, int peer,
                                         NcclComm comm, CudaStreamHandle stream) {
  return forward<&NcclApi::receive>(data, count, type, peer, comm, stream);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclGroupStart() { return forward<&NcclApi::group_start>(); }
LOCKSTEP_NCCL_EXPORT NcclResult ncclGroupEnd() { return forward<&NcclApi::group_end>(); }
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommFinalize(NcclComm comm) {
  return forward<&NcclApi::comm_finalize>(comm);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommSplit(NcclComm comm, int color, int key, NcclComm* child,
                                              NcclConfig* config) {
  return forward<&NcclApi::comm_split>(comm, color, key, child, config);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommShrink(NcclComm comm, int* excluded, int count,
                                               NcclComm* child, NcclConfig* config, int flags) {
  return forward<&NcclApi::comm_shrink>(comm, excluded, count, child, config, flags);
}
LOCKSTEP_NCCL_EXPORT NcclResult ncclCommRevoke(NcclComm comm, int flags) {
  return forward<&NcclApi::comm_revoke>(comm, flags);
}
