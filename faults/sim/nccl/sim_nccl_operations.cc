// The part of SimNccl that moves data: calls, groups, and operations on streams.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "faults/sim/nccl/sim_nccl.h"
#include "faults/sim/nccl/state.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

// --- Factors of sums.

NcclResult SimNccl::create_factor(NcclRedOp* op, const void* scalar, NcclDataType type,
                                  NcclScalarResidence residence, NcclComm handle) {
  const Call call(*this, "ncclRedOpCreatePreMulSum", handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  NcclResult result = start_call("ncclRedOpCreatePreMulSum", false, nullptr);
  if (result != NcclResult::kSuccess) return result;
  if (handle == nullptr || op == nullptr || scalar == nullptr || size_of(type) == 0)
    return refuse(NcclResult::kInvalidArgument, "ncclRedOpCreatePreMulSum: a missing argument");
  Communicator& comm = of(handle);
  if (result = ready(comm); result != NcclResult::kSuccess) return result;
  Communicator::Factor factor{type};
  const auto* const data = static_cast<const std::byte*>(scalar);
  if (residence == NcclScalarResidence::kDevice) {
    factor.on_device = data;
  } else {
    factor.value = read_scalar(type, data);
  }
  comm.factors.all[comm.factors.next] = factor;
  *op = static_cast<NcclRedOp>(comm.factors.next++);
  return NcclResult::kSuccess;
}

NcclResult SimNccl::destroy_factor(NcclRedOp op, NcclComm handle) {
  const Call call(*this, "ncclRedOpDestroy", handle);
  if (call.is_refused()) return NcclResult::kInvalidArgument;
  const NcclResult result = start_call("ncclRedOpDestroy", false, nullptr);
  if (result != NcclResult::kSuccess) return result;
  if (handle == nullptr || of(handle).factors.all.erase(static_cast<int>(op)) == 0)
    return refuse(NcclResult::kInvalidArgument, "ncclRedOpDestroy of an operation there is not");
  return NcclResult::kSuccess;
}

// --- Calls that move data.

NcclResult SimNccl::check(const Communicator& comm, Operation& operation, CudaStreamHandle stream) {
  using Kind = Operation::Kind;
  const auto wrong = [&](const std::string& what) {
    return refuse(NcclResult::kInvalidArgument, comm.name + ": " + what);
  };
  if (size_of(operation.type) == 0) return wrong("a data type that there is not");
  const bool has_peer = operation.is_direct() || operation.kind == Kind::kBroadcast;
  if (has_peer && (operation.peer < 0 || operation.peer >= comm.size))
    return wrong("rank " + std::to_string(operation.peer) + " is not one of the communicator");
  const bool sends = operation.kind != Kind::kReceive &&
                     (operation.kind != Kind::kBroadcast || operation.peer == comm.rank);
  const bool lacks_from = sends && operation.from == nullptr;
  const bool lacks_to = operation.kind != Kind::kSend && operation.to == nullptr;
  if (operation.count > 0 && (lacks_from || lacks_to)) return wrong("elements without memory");
  if (stream == nullptr) return wrong("the stream is not one of a simulated device");
  const bool is_sum = operation.kind == Kind::kAllReduce || operation.kind == Kind::kReduceScatter;
  if (!is_sum || operation.op == NcclRedOp::kSum) return NcclResult::kSuccess;
  const auto found = comm.factors.all.find(static_cast<int>(operation.op));
  if (found == comm.factors.all.end()) return wrong("an operation that is not simulated");
  if (found->second.type != operation.type) return wrong("a factor of another type");
  operation.reduction = {true, found->second.value};
  operation.device_factor = found->second.on_device;
  return NcclResult::kSuccess;
}

NcclResult SimNccl::enqueue(const char* function, NcclComm handle, Operation operation,
                            CudaStreamHandle stream) {
  const Call call(*this, function, handle);
  const SimNcclFault* fault = nullptr;
  Group& group = groups_[scheduler_.current_id()];
  const auto note = [&](NcclResult result) {
    if (group.depth > 0 && group.error == NcclResult::kSuccess) group.error = result;
    return result;
  };
  if (call.is_refused()) return note(NcclResult::kInvalidArgument);
  if (handle == nullptr)
    return note(refuse(NcclResult::kInvalidArgument, std::string(function) + " without one"));
  Communicator& comm = of(handle);
  if (comm.ending.is_revoked || comm.ending.is_finalized ||
      (comm.ending.is_cut && !comm.ending.is_leaving))
    return note(refuse(NcclResult::kInvalidUsage, comm.name + " was revoked or finalized"));
  ++group.depth;
  NcclResult result = start_call(function, true, &fault);
  if (result == NcclResult::kSuccess) result = ready(comm);
  if (result == NcclResult::kSuccess) result = check(comm, operation, stream);
  if (result != NcclResult::kSuccess) {
    note(result);
    if (!comm.is_blocking) comm.state = result;
  } else if (operation.count > 0 && comm.size == 1 && !operation.is_direct()) {
    result = launch_alone(comm, operation, SimDevice::stream_of(stream), fault);
  } else if (operation.count > 0 || operation.is_direct()) {
    add(group, comm, operation, SimDevice::stream_of(stream), fault);
  }
  const NcclResult ended = leave_group(group);
  if (comm.is_blocking) return result != NcclResult::kSuccess ? result : ended;
  if (state_of(comm) == NcclResult::kSuccess)
    finish_job(comm);  // this call itself queries the state
  const NcclResult state = state_of(comm);
  const bool is_early = state == NcclResult::kInProgress && profile_.collectives_succeed_early;
  return is_early ? NcclResult::kSuccess : state;
}

void SimNccl::add(Group& group, Communicator& comm, const Operation& operation,
                  const Stream& stream, const SimNcclFault* fault) {
  const auto found = std::find_if(group.launches.begin(), group.launches.end(),
                                  [&](const Launch& one) { return one.comm == &comm; });
  const bool is_new = found == group.launches.end();
  Launch& launch = is_new ? group.launches.emplace_back() : *found;
  launch.comm = &comm;
  launch.operations.push_back(operation);
  const bool is_known =
      std::any_of(launch.streams.begin(), launch.streams.end(), [&](const Stream& one) {
        return one.device == stream.device && one.handle == stream.handle;
      });
  if (!is_known) launch.streams.push_back(stream);
  if (launch.fault == nullptr) launch.fault = fault;
}

NcclResult SimNccl::start_group() {
  const Call call(*this, "ncclGroupStart", nullptr);
  const NcclResult result = start_call("ncclGroupStart", false, nullptr);
  if (result == NcclResult::kSuccess) ++groups_[scheduler_.current_id()].depth;
  return result;
}

NcclResult SimNccl::end_group() {
  const Call call(*this, "ncclGroupEnd", nullptr);
  const NcclResult result = start_call("ncclGroupEnd", false, nullptr);
  Group& group = groups_[scheduler_.current_id()];
  if (group.depth == 0) return refuse(NcclResult::kInvalidUsage, "ncclGroupEnd without a start");
  if (result != NcclResult::kSuccess && group.error == NcclResult::kSuccess) group.error = result;
  return leave_group(group);
}

NcclResult SimNccl::leave_group(Group& group) {
  if (--group.depth > 0) return NcclResult::kSuccess;
  std::vector<Launch> launches = std::exchange(group.launches, {});
  NcclResult result = std::exchange(group.error, NcclResult::kSuccess);
  if (result == NcclResult::kSuccess) result = check_group(launches);
  if (result == NcclResult::kSuccess) return begin(std::move(launches));
  for (const Launch& launch : launches)
    if (!launch.comm->is_blocking) launch.comm->state = result;
  return result;
}

// A rank that sends to itself must receive it in the same group.
NcclResult SimNccl::check_group(const std::vector<Launch>& launches) {
  for (const Launch& launch : launches) {
    if (launch.comm->is_blocking != launches.front().comm->is_blocking)
      return refuse(NcclResult::kInvalidArgument,
                    "a group of blocking and non-blocking communicators");
    for (const Stream& stream : launch.streams)
      if (stream.device != launch.streams.front().device)
        return refuse(NcclResult::kInvalidArgument, "a communicator on two devices");
    std::ptrdiff_t unmatched = 0;
    for (const Operation& one : launch.operations)
      if (one.is_direct() && one.peer == launch.comm->rank)
        unmatched += one.kind == Operation::Kind::kSend ? 1 : -1;
    if (unmatched != 0)
      return refuse(NcclResult::kInvalidUsage, "a send to itself without a receive, or the other");
  }
  return NcclResult::kSuccess;
}

// Numbers the launch, and carries out what is planned for it before it begins.
NcclResult SimNccl::prepare(Launch& one) {
  Communicator& comm = *one.comm;
  one.sequence = comm.work.sequence++;
  if (comm.process < network_.injector().world())
    one.planned = network_.injector().on_operation(comm.process);
  if (one.planned.exit) {
    network_.exit_rank(comm.process);
    leave_if_exited();
    return refuse(NcclResult::kSystemError, "the process exited");
  }
  if (one.planned.pause_us > 0)
    scheduler_.pause_group(comm.process,
                           scheduler_.now() + std::chrono::microseconds(one.planned.pause_us));
  return NcclResult::kSuccess;
}

// A collective of one rank reaches its stream within the call, in a group, too.
NcclResult SimNccl::launch_alone(Communicator& comm, const Operation& operation,
                                 const Stream& stream, const SimNcclFault* fault) {
  const auto launch = std::make_shared<Launch>();
  launch->comm = &comm;
  launch->operations.push_back(operation);
  launch->streams.push_back(stream);
  launch->fault = fault;
  const NcclResult result = prepare(*launch);
  return result == NcclResult::kSuccess ? submit(launch) : result;
}

NcclResult SimNccl::begin(std::vector<Launch> launches) {
  NcclResult result = NcclResult::kSuccess;
  for (Launch& one : launches) {
    Communicator& comm = *one.comm;
    if (const NcclResult prepared = prepare(one); prepared != NcclResult::kSuccess) return prepared;
    const auto launch = std::make_shared<Launch>(std::move(one));
    const NcclResult began = run_job(comm, "launch", [this, &comm, launch] {
      if (!comm.is_blocking && !sleep(comm, "the end of a launch", options_.launch_time))
        return NcclResult::kInternalError;
      return submit(launch);
    });
    if (began != NcclResult::kSuccess) result = began;
  }
  return result;
}

// --- Execution on the stream.

const char* SimNccl::Operation::name() const {
  switch (kind) {
    case Kind::kAllReduce: return "ncclAllReduce";
    case Kind::kReduceScatter: return "ncclReduceScatter";
    case Kind::kBroadcast: return "ncclBroadcast";
    case Kind::kAllGather: return "ncclAllGather";
    case Kind::kSend: return "ncclSend";
    case Kind::kReceive: return "ncclRecv";
  }
  return "";
}

// Adds the bytes that the operation reads and writes. An in-place operation reads what it writes.
void SimNccl::Operation::add_touches(std::vector<Touch>& touches, int rank,
                                     std::size_t ranks) const {
  const bool reads = kind != Kind::kReceive && (kind != Kind::kBroadcast || peer == rank);
  const bool writes =
      kind != Kind::kSend && (kind != Kind::kBroadcast || peer != rank || to != from);
  const std::size_t read = kind == Kind::kReduceScatter ? ranks * bytes() : bytes();
  const std::size_t written = kind == Kind::kAllGather ? ranks * bytes() : bytes();
  const bool is_in_place = from == to && writes && written >= read;
  if (reads && read > 0 && !is_in_place) touches.push_back({from, read, false});
  if (writes && written > 0) touches.push_back({to, written, true});
  if (device_factor != nullptr) touches.push_back({device_factor, size_of(type), false});
}

NcclResult SimNccl::submit(const std::shared_ptr<Launch>& launch) {
  Communicator& comm = *launch->comm;
  const Stream stream = launch->streams.front();
  auto& device = dynamic_cast<SimDevice&>(*stream.device);
  std::vector<Touch> touches;
  for (const Operation& one : launch->operations)
    one.add_touches(touches, comm.rank, static_cast<std::size_t>(comm.size));
  if (comm.work.last_stream && comm.work.last_stream->device == stream.device &&
      comm.work.last_stream->handle != stream.handle)
    device.wait(stream, device.record(*comm.work.last_stream));
  for (std::size_t i = 1; i < launch->streams.size(); ++i)
    device.wait(stream, device.record(launch->streams[i]));
  comm.work.last_stream = stream;
  const std::string name = launch->operations.size() == 1
                               ? std::string(launch->operations.front().name())
                               : "nccl group of " + std::to_string(launch->operations.size());
  device.submit(
      stream, name, std::move(touches),
      [this, launch, call = std::make_shared<AsyncCall>(comm, scheduler_)] { execute(*launch); });
  for (std::size_t i = 1; i < launch->streams.size(); ++i)
    device.wait(launch->streams[i], device.record(stream));
  return NcclResult::kSuccess;
}

void SimNccl::execute(Launch& launch) {
  Communicator& comm = *launch.comm;
  if (comm.ending.is_cut) return;
  for (Mesh* mesh : {comm.clique->ring, comm.clique->direct, comm.clique->receipts})
    mesh->set_worker(comm.rank, scheduler_.current_id());
  if (!wait_as_planned(launch) || !exchange(launch)) {
    comm.clique->ring->pause(comm.rank, "the abort of a communicator", simulation::kNever);
    return;
  }
  scheduler_.trace(static_cast<std::uint64_t>(comm.process) << 48 |
                   static_cast<std::uint64_t>(launch.sequence));
}

// Returns false if the operation never reaches its exchange.
bool SimNccl::wait_as_planned(Launch& launch) {
  Communicator& comm = *launch.comm;
  if (launch.fault != nullptr) {
    if (launch.fault->kind == SimNcclFault::Kind::kAsyncError)
      fail(comm, launch.fault->result, "the fault of the plan");
    return false;
  }
  if (launch.planned.error) {
    if (profile_.reports_network_errors)
      fail(comm, NcclResult::kSystemError, "the transport of this rank failed");
    return false;
  }
  if (launch.planned.stall) return false;
  if (launch.planned.delay_us == 0) return true;
  const Duration until = scheduler_.now() + std::chrono::microseconds(launch.planned.delay_us);
  return comm.clique->ring->pause(comm.rank, "the end of a delay", until) == Trouble::kTimeout;
}

// Returns copies of the frames that this launch sends, by rank, with the planned faults applied;
// the frame for this rank is zeros. Returns nothing if the launch sends no frames.
std::vector<std::byte> SimNccl::disturbed_frames(const Launch& launch) {
  Communicator& comm = *launch.comm;
  if (!options_.disturbs_frames || comm.process >= network_.injector().world()) return {};
  const auto ranks = static_cast<std::size_t>(comm.size);
  std::vector<const Operation*> sends(ranks, nullptr);
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (const Operation& one : launch.operations) {
    if (one.kind != Operation::Kind::kSend || one.peer == comm.rank) continue;
    const Operation*& place = sends[static_cast<std::size_t>(one.peer)];
    if (place != nullptr || one.bytes() == 0 || (count > 0 && one.bytes() != bytes)) return {};
    place = &one;
    bytes = one.bytes();
    ++count;
  }
  if (count == 0 || count + 1 != ranks) return {};
  std::vector<std::byte> frames(ranks * bytes);
  for (std::size_t r = 0; r < ranks; ++r)
    if (sends[r] != nullptr) std::memcpy(frames.data() + r * bytes, sends[r]->from, bytes);
  faults::disturb(network_.injector(), comm.process, comm.clique->direct->members(),
                  {frames, bytes}, comm.work.sent_before);
  return frames;
}

bool MeshLane::send(int to, std::span<const std::byte> bytes) {
  trouble_ = mesh_.send(rank(), to, sequence_, part_++, bytes);
  if (trouble_ != Trouble::kNone) peer_ = to;
  return trouble_ == Trouble::kNone;
}

bool MeshLane::receive(int from, std::span<std::byte> bytes) {
  const Mesh::Received received = mesh_.receive(rank(), from, simulation::kNever);
  trouble_ = received.trouble;
  if (trouble_ != Trouble::kNone) {
    peer_ = from;
    return false;
  }
  const std::size_t fitting = std::min(bytes.size(), received.message->bytes);
  if (fitting != 0) std::memcpy(bytes.data(), received.message->data, fitting);
  mesh_.release(received.message);
  return true;
}

// Sends come first, because all operations of a group begin together and links buffer what is sent.
bool SimNccl::exchange(Launch& launch) {
  using Kind = Operation::Kind;
  Communicator& comm = *launch.comm;
  MeshLane ring(*comm.clique->ring, comm.rank, launch.sequence);
  MeshLane direct(*comm.clique->direct, comm.rank, launch.sequence);
  MeshLane receipts(*comm.clique->receipts, comm.rank, launch.sequence);
  const auto run = [&](const MeshLane& lane, bool is_done) {
    if (!is_done) note_trouble(comm, lane);
    return is_done;
  };
  std::vector<const Operation*> to_self;
  const std::vector<std::byte> frames = disturbed_frames(launch);
  const auto sent_by = [&](const Operation& one) {
    const std::byte* const frame = frames.data() + static_cast<std::size_t>(one.peer) * one.bytes();
    return std::span(frames.empty() ? one.from : frame, one.bytes());
  };
  for (const Operation& one : launch.operations) {
    if (one.kind != Kind::kSend) continue;
    if (one.peer == comm.rank) {
      to_self.push_back(&one);
    } else if (!run(direct, direct.send(one.peer, sent_by(one)))) {
      return false;
    }
  }
  for (Operation& one : launch.operations)
    if (!one.is_direct() && !run(ring, run_collective(ring, comm, one))) return false;
  std::size_t from_self = 0;
  for (const Operation& one : launch.operations) {
    if (one.kind != Kind::kReceive) continue;
    if (one.peer == comm.rank) {
      const Operation& sent = *to_self[from_self++];
      const std::size_t bytes = std::min(sent.bytes(), one.bytes());
      if (bytes != 0) std::memmove(one.to, sent.from, bytes);
      continue;
    }
    if (!run(direct, direct.receive(one.peer, std::span(one.to, one.bytes())))) return false;
    if (one.bytes() <= options_.buffered_bytes) continue;
    if (!run(receipts, receipts.send(one.peer, {}))) return false;
  }
  for (const Operation& one : launch.operations) {
    if (one.kind != Kind::kSend || one.peer == comm.rank) continue;
    if (one.bytes() <= options_.buffered_bytes) continue;
    if (!run(receipts, receipts.receive(one.peer, {}))) return false;
  }
  return true;
}

bool SimNccl::run_collective(Lane& lane, const Communicator& comm, Operation& operation) {
  const auto n = static_cast<std::size_t>(comm.size);
  const std::size_t bytes = operation.bytes();
  NcclReduction reduction = operation.reduction;
  if (operation.device_factor != nullptr)
    reduction.factor = read_scalar(operation.type, operation.device_factor);
  switch (operation.kind) {
    case Operation::Kind::kAllReduce:
      return nccl_ring_all_reduce(lane, operation.type, reduction, std::span(operation.from, bytes),
                                  operation.to, options_.chunk_bytes, profile_.ring_units);
    case Operation::Kind::kReduceScatter:
      return nccl_ring_reduce_scatter(lane, operation.type, reduction,
                                      std::span(operation.from, n * bytes), operation.to);
    case Operation::Kind::kBroadcast:
      return nccl_ring_broadcast(lane, operation.peer, std::span(operation.from, bytes),
                                 operation.to);
    case Operation::Kind::kAllGather:
      return nccl_ring_all_gather(lane, std::span(operation.from, bytes), operation.to);
    case Operation::Kind::kSend:
    case Operation::Kind::kReceive: break;
  }
  return true;
}

void SimNccl::note_trouble(Communicator& comm, const MeshLane& lane) {
  if (lane.trouble() == Trouble::kInterrupted) return;
  if (!options_.peers_are_noticed || !profile_.reports_network_errors) return;
  fail(comm, NcclResult::kRemoteError,
       "the connection to rank " + std::to_string(lane.peer()) + " was closed by that rank");
}

void SimNccl::fail(Communicator& comm, NcclResult result, const std::string& why) {
  if (comm.link_error == NcclResult::kSuccess) comm.link_error = result;
  processes_[comm.process].last_error = comm.name + ": " + why;
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
