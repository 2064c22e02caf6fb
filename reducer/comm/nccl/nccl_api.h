// NcclApi is the functions of one NCCL library, as a table of typed pointers that is filled at run
// time.
//
// Building this needs neither NCCL nor CUDA: the declarations are our own, and nccl_header_test.cc
// compares them with the real header where there is one. The table is plain data, so a simulated
// NCCL fills its own. A process may load several versions, or several copies of one version, from
// different files. Calls through one table stay in that library unless the program itself is linked
// with NCCL, whose symbols then take precedence for all of them.
//
// Versions: 2.14 and newer 2.x. Functions that came later are null where a library lacks them;
// lacking() explains that to a person. NCCL appends to its configuration structure:
// make_nccl_config() returns one with the version and the size that this library's own header would
// give it.
//
// Threads: load_nccl() from any thread. A table never changes after that; NCCL defines which thread
// may call which function.
// Ownership: a library that was loaded stays loaded until the process ends, as it has threads of
// its own; one that was refused is closed again.
// Failure: kInvalidArgument, which says what to do, for a file that is missing, cannot be loaded,
// is not NCCL, has a version not known here, or lacks a function that every version has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,  // Since 2.30.
};

enum class NcclDataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

// Operations made by red_op_create_pre_mul_sum() have other values than these.
enum class NcclRedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

enum class NcclScalarResidence : int { kDevice = 0, kHostImmediate = 1 };

constexpr int kNcclShrinkDefault = 0;
constexpr int kNcclShrinkAbort = 1;
constexpr int kNcclRevokeDefault = 0;
constexpr int kNcclSuspendMemory = 1;
constexpr int kNcclNoColor = -1;

struct NcclUniqueId {
  char internal[128];
};

struct NcclCommunicator;  // NCCL's own type, which is never defined here.
using NcclComm = NcclCommunicator*;
using CudaStreamHandle = void*;  // A cudaStream_t.

// The newest configuration known here. Fields keep NCCL's names and order; the numbers are the
// versions that added them. A library ignores fields that it does not know.
struct NcclConfig {
  std::size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;  // 2.17
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;        // 2.18
  int trafficClass;      // 2.26
  const char* commName;  // 2.27
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;  // 2.28
  int nvlinkCentricSched;
  int graphUsageMode;  // 2.29.2
  int numRmaCtx;
  int maxP2pPeers;          // 2.30.3
  int graphStreamOrdering;  // 2.30.7
  int launchOrderImplicit;  // 2.31.2
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode;
  int nvlsHostMode;  // 2.32.3
};

constexpr unsigned int kNcclConfigMagic = 0xcafebeef;

// The functions of every library that can be loaded here, in the order of NCCL's header.
struct NcclRequiredFunctions {
  NcclResult (*get_version)(int* version) = nullptr;
  NcclResult (*get_unique_id)(NcclUniqueId* id) = nullptr;
  NcclResult (*comm_init_rank_config)(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                                      NcclConfig* config) = nullptr;
  NcclResult (*comm_destroy)(NcclComm comm) = nullptr;
  NcclResult (*comm_abort)(NcclComm comm) = nullptr;
  const char* (*get_error_string)(NcclResult result) = nullptr;
  const char* (*get_last_error)(NcclComm comm) = nullptr;
  NcclResult (*comm_get_async_error)(NcclComm comm, NcclResult* error) = nullptr;
  NcclResult (*comm_count)(NcclComm comm, int* count) = nullptr;
  NcclResult (*comm_cu_device)(NcclComm comm, int* device) = nullptr;
  NcclResult (*comm_user_rank)(NcclComm comm, int* rank) = nullptr;
  NcclResult (*red_op_create_pre_mul_sum)(NcclRedOp* op, void* scalar, NcclDataType type,
                                          NcclScalarResidence residence, NcclComm comm) = nullptr;
  NcclResult (*red_op_destroy)(NcclRedOp op, NcclComm comm) = nullptr;
  NcclResult (*broadcast)(const void* send, void* receive, std::size_t count, NcclDataType type,
                          int root, NcclComm comm, CudaStreamHandle stream) = nullptr;
  NcclResult (*all_reduce)(const void* send, void* receive, std::size_t count, NcclDataType type,
                           NcclRedOp op, NcclComm comm, CudaStreamHandle stream) = nullptr;
  NcclResult (*reduce_scatter)(const void* send, void* receive, std::size_t receive_count,
                               NcclDataType type, NcclRedOp op, NcclComm comm,
                               CudaStreamHandle stream) = nullptr;
  NcclResult (*all_gather)(const void* send, void* receive, std::size_t send_count,
                           NcclDataType type, NcclComm comm, CudaStreamHandle stream) = nullptr;
  NcclResult (*send)(const void* data, std::size_t count, NcclDataType type, int peer,
                     NcclComm comm, CudaStreamHandle stream) = nullptr;
  NcclResult (*receive)(void* data, std::size_t count, NcclDataType type, int peer, NcclComm comm,
                        CudaStreamHandle stream) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
};

// The functions that came after 2.14.0; null where a library lacks them.
struct NcclOptionalFunctions {
  NcclResult (*comm_finalize)(NcclComm comm) = nullptr;
  NcclResult (*comm_split)(NcclComm comm, int color, int key, NcclComm* child,
                           NcclConfig* config) = nullptr;
  NcclResult (*mem_alloc)(void** data, std::size_t size) = nullptr;
  NcclResult (*mem_free)(void* data) = nullptr;
  NcclResult (*comm_register)(NcclComm comm, void* data, std::size_t size, void** handle) = nullptr;
  NcclResult (*comm_deregister)(NcclComm comm, void* handle) = nullptr;
  NcclResult (*comm_init_rank_scalable)(NcclComm* comm, int ranks, int rank, int ids,
                                        NcclUniqueId* id, NcclConfig* config) = nullptr;
  NcclResult (*comm_shrink)(NcclComm comm, int* excluded_ranks, int excluded_count, NcclComm* child,
                            NcclConfig* config, int flags) = nullptr;
  NcclResult (*comm_revoke)(NcclComm comm, int flags) = nullptr;
  NcclResult (*comm_get_unique_id)(NcclComm comm, NcclUniqueId* id) = nullptr;
  NcclResult (*comm_grow)(NcclComm comm, int ranks, const NcclUniqueId* id, int rank,
                          NcclComm* child, NcclConfig* config) = nullptr;
  NcclResult (*comm_suspend)(NcclComm comm, int flags) = nullptr;
  NcclResult (*comm_resume)(NcclComm comm) = nullptr;
};

struct NcclApi : NcclRequiredFunctions, NcclOptionalFunctions {
  int version = 0;      // As ncclGetVersion returns it: 22809 is 2.28.9.
  std::string library;  // The file that the library was loaded from.

  // Ok when the library has this function, named as NCCL names it ("ncclCommShrink"); otherwise an
  // error that says since which version NCCL has it.
  Status lacking(std::string_view function) const;
};

constexpr const char* kNcclDefaultLibrary = "libnccl.so.2";

// Loads a library. `library` is a path, or a name that the loader looks for. If a library of that
// name is in the process already, the loader returns that one; give paths to load several.
Result<NcclApi> load_nccl(const std::string& library = kNcclDefaultLibrary);

// Formats a version: "2.28.9".
std::string nccl_version_text(int version);

// Makes a configuration for a library of this version, in which nothing is chosen yet.
NcclConfig make_nccl_config(int version);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
