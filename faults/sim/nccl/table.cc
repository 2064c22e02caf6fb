// The table of SimNccl's functions, and those functions. They find the current SimNccl.
#include "faults/sim/nccl/sim_nccl.h"
#include "faults/sim/nccl/state.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

// Without a SimNccl, or outside of a run, every call returns the error for invalid usage.
struct SimNccl::Functions {
  static SimNccl* nccl() {
    return simulation::Scheduler::running() == nullptr ? nullptr : running_;
  }
  template <class Body>
  static NcclResult with(Body&& body) {
    SimNccl* const here = nccl();
    return here == nullptr ? NcclResult::kInvalidUsage : body(*here);
  }
  static NcclResult move(const char* function, NcclComm comm, const Operation& operation,
                         CudaStreamHandle stream) {
    return with([&](SimNccl& on) { return on.enqueue(function, comm, operation, stream); });
  }

  static NcclResult get_version(int* version) {
    if (running_ == nullptr || version == nullptr) return NcclResult::kInvalidArgument;
    *version = running_->options_.version;
    return NcclResult::kSuccess;
  }
  static NcclResult get_unique_id(NcclUniqueId* id) {
    return with([&](SimNccl& on) { return on.unique_id(id); });
  }
  static NcclResult comm_init_rank_config(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                                          NcclConfig* config) {
    return with([&](SimNccl& on) { return on.init(comm, ranks, id, rank, config); });
  }
  static NcclResult comm_destroy(NcclComm comm) {
    return with([&](SimNccl& on) { return on.destroy(comm); });
  }
  static NcclResult comm_abort(NcclComm comm) {
    return with([&](SimNccl& on) { return on.abort(comm); });
  }
  static const char* get_error_string(NcclResult result) {
    switch (result) {
      case NcclResult::kSuccess: return "no error";
      case NcclResult::kUnhandledCudaError: return "unhandled cuda error";
      case NcclResult::kSystemError: return "unhandled system error";
      case NcclResult::kInternalError: return "internal error";
      case NcclResult::kInvalidArgument: return "invalid argument";
      case NcclResult::kInvalidUsage: return "invalid usage";
      case NcclResult::kRemoteError: return "remote process exited or there was a network error";
      case NcclResult::kInProgress: return "NCCL operation in progress";
      case NcclResult::kTimeout: return "timeout";
    }
    return "unknown result code";
  }
  static const char* get_last_error(NcclComm) {
    SimNccl* const here = nccl();
    return here == nullptr ? "there is no simulated NCCL" : here->process().last_error.c_str();
  }
  static NcclResult comm_get_async_error(NcclComm comm, NcclResult* error) {
    return with([&](SimNccl& on) { return on.async_error(comm, error); });
  }
  static NcclResult comm_count(NcclComm comm, int* count) {
    return with([&](SimNccl& on) { return on.property("ncclCommCount", comm, count); });
  }
  static NcclResult comm_cu_device(NcclComm comm, int* device) {
    return with([&](SimNccl& on) { return on.property("ncclCommCuDevice", comm, device); });
  }
  static NcclResult comm_user_rank(NcclComm comm, int* rank) {
    return with([&](SimNccl& on) { return on.property("ncclCommUserRank", comm, rank); });
  }
  static NcclResult red_op_create_pre_mul_sum(NcclRedOp* op, void* scalar, NcclDataType type,
                                              NcclScalarResidence residence, NcclComm comm) {
    return with([&](SimNccl& on) { return on.create_factor(op, scalar, type, residence, comm); });
  }
  static NcclResult red_op_destroy(NcclRedOp op, NcclComm comm) {
    return with([&](SimNccl& on) { return on.destroy_factor(op, comm); });
  }

  static const std::byte* from(const void* data) { return static_cast<const std::byte*>(data); }
  static std::byte* to(void* data) { return static_cast<std::byte*>(data); }
  using Kind = Operation::Kind;

  static NcclResult broadcast(const void* send, void* receive, std::size_t count, NcclDataType type,
                              int root, NcclComm comm, CudaStreamHandle stream) {
    return move("ncclBroadcast", comm,
                {Kind::kBroadcast, from(send), to(receive), count, type, NcclRedOp::kSum, root},
                stream);
  }
  static NcclResult all_reduce(const void* send, void* receive, std::size_t count,
                               NcclDataType type, NcclRedOp op, NcclComm comm,
                               CudaStreamHandle stream) {
    return move("ncclAllReduce", comm, {Kind::kAllReduce, from(send), to(receive), count, type, op},
                stream);
  }
  static NcclResult reduce_scatter(const void* send, void* receive, std::size_t count,
                                   NcclDataType type, NcclRedOp op, NcclComm comm,
                                   CudaStreamHandle stream) {
    return move("ncclReduceScatter", comm,
                {Kind::kReduceScatter, from(send), to(receive), count, type, op}, stream);
  }
  static NcclResult all_gather(const void* send, void* receive, std::size_t count,
                               NcclDataType type, NcclComm comm, CudaStreamHandle stream) {
    return move("ncclAllGather", comm, {Kind::kAllGather, from(send), to(receive), count, type},
                stream);
  }
  static NcclResult send(const void* data, std::size_t count, NcclDataType type, int peer,
                         NcclComm comm, CudaStreamHandle stream) {
    return move("ncclSend", comm,
                {Kind::kSend, from(data), nullptr, count, type, NcclRedOp::kSum, peer}, stream);
  }
  static NcclResult receive(void* data, std::size_t count, NcclDataType type, int peer,
                            NcclComm comm, CudaStreamHandle stream) {
    return move("ncclRecv", comm,
                {Kind::kReceive, nullptr, to(data), count, type, NcclRedOp::kSum, peer}, stream);
  }
  static NcclResult group_start() {
    return with([](SimNccl& on) { return on.start_group(); });
  }
  static NcclResult group_end() {
    return with([](SimNccl& on) { return on.end_group(); });
  }

  static NcclResult comm_finalize(NcclComm comm) {
    return with([&](SimNccl& on) { return on.finalize(comm); });
  }
  static NcclResult comm_split(NcclComm comm, int color, int key, NcclComm* child,
                               NcclConfig* config) {
    return with([&](SimNccl& on) { return on.split(comm, color, key, child, config); });
  }
  static NcclResult comm_shrink(NcclComm comm, int* excluded, int count, NcclComm* child,
                                NcclConfig* config, int flags) {
    return with(
        [&](SimNccl& on) { return on.shrink(comm, excluded, count, child, config, flags); });
  }
  static NcclResult comm_revoke(NcclComm comm, int flags) {
    return with([&](SimNccl& on) { return on.revoke(comm, flags); });
  }
};

NcclApi SimNccl::api() const {
  NcclApi api;
  api.version = options_.version;
  api.library = "the simulated NCCL";
  api.get_version = Functions::get_version;
  api.get_unique_id = Functions::get_unique_id;
  api.comm_init_rank_config = Functions::comm_init_rank_config;
  api.comm_destroy = Functions::comm_destroy;
  api.comm_abort = Functions::comm_abort;
  api.get_error_string = Functions::get_error_string;
  api.get_last_error = Functions::get_last_error;
  api.comm_get_async_error = Functions::comm_get_async_error;
  api.comm_count = Functions::comm_count;
  api.comm_cu_device = Functions::comm_cu_device;
  api.comm_user_rank = Functions::comm_user_rank;
  api.red_op_create_pre_mul_sum = Functions::red_op_create_pre_mul_sum;
  api.red_op_destroy = Functions::red_op_destroy;
  api.broadcast = Functions::broadcast;
  api.all_reduce = Functions::all_reduce;
  api.reduce_scatter = Functions::reduce_scatter;
  api.all_gather = Functions::all_gather;
  api.send = Functions::send;
  api.receive = Functions::receive;
  api.group_start = Functions::group_start;
  api.group_end = Functions::group_end;
  if (api.version >= 21403) api.comm_finalize = Functions::comm_finalize;
  if (api.version >= 21801) api.comm_split = Functions::comm_split;
  if (api.version >= 22703) api.comm_shrink = Functions::comm_shrink;
  if (api.version >= 22807) api.comm_revoke = Functions::comm_revoke;
  return api;
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
