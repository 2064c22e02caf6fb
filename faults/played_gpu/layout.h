// Layout says where the fields lie of the structures through which NCCL's host code speaks with its
// kernels. They are no part of NCCL's interface and change from version to version, so each version
// that can be played has a row of its own; layout_test.cc compares the rows with the debug
// information of the libraries.
//
// All offsets and sizes are in bytes. Structures that no version has changed are constants.
//
// Pure data; any thread. Failure: a version without a row is refused with the versions that have
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reducer/base/status.h"

namespace lockstep::played {

struct Layout {
  int version = 0;  // as ncclGetVersion returns it

  // ncclDevWorkColl, the description of one collective operation.
  std::size_t coll_bytes = 0;
  std::size_t coll_receive_buffer = 0;
  std::size_t coll_send_buffer = 0;
  std::size_t coll_counts = 0;  // of the first, the middle and the last channel; then the grains
  std::size_t coll_scalar = 0;  // the operation's factor, or a pointer to it
  std::uint32_t coll_registered_bits = 0;  // of its flags: buffers that peers reach directly

  // The communicator of the kernels (ncclDevComm, later ncclKernelComm), and its channels.
  std::size_t comm_work_consumed = 0;  // 0: this version has no such counters
  std::size_t comm_abort_flag = 0;
  std::size_t comm_channels = 0;
  std::size_t channel_bytes = 0;
  std::size_t ring_index = 0;

  // ncclConnFifo, through which kernels tell the proxy the sizes.
  std::size_t fifo_entry_bytes = 0;
  std::size_t fifo_offset = 0;
  std::size_t fifo_offset_bytes = 0;
  std::size_t fifo_size = 0;

  // ncclDevWorkBatch.
  std::uint32_t function_bits = 0;  // of the function's number

  // ncclDevFuncRowToId, the table of functions.
  int types = 0;
  int gather_algorithms = 0;  // of all-gather and reduce-scatter
  bool has_all_gather_v = false;
  int reduce_algorithms = 0;  // of all-reduce
};

// ncclDevKernelArgs. The batches lie behind it.
struct KernelArguments {
  std::byte* comm;
  std::uint64_t channels;  // a bit for each
  std::uint8_t storage;    // of the descriptions: kInArguments, or elsewhere
  std::uint32_t mask;      // of offsets in `descriptions`
  std::byte* descriptions;
};
constexpr std::uint8_t kInArguments = 0;

// ncclDevWorkBatch.
struct WorkBatch {
  std::uint32_t flags;  // jump to the next:14, the next belongs to this one:1, kind:2, function
  std::uint32_t offset;
  std::uint64_t works;  // a bit for each
};
constexpr std::uint32_t kKindP2p = 0;
constexpr std::uint32_t kKindCollective = 1;

// ncclDevWorkP2p.
struct P2pWork {
  std::byte* send_data;
  std::byte* receive_data;
  std::size_t send_bytes;
  std::size_t receive_bytes;
  std::int32_t send_rank;
  std::int32_t receive_rank;
  std::uint8_t channels;
  std::uint8_t first_channel;
  std::uint8_t send_channels;
  std::uint8_t receive_channels;
  std::uint8_t send_chunk;  // in a small floating-point format: chunk_bytes()
  std::uint8_t receive_chunk;
  std::uint8_t flags;  // LL of the send:1, of the receive:1, registered buffers:4
};
constexpr std::uint8_t kP2pIsLl = 0x3;
constexpr std::uint8_t kP2pIsRegistered = 0x3c;

// ncclConnInfo, one end of a connection.
struct Connection {
  std::byte* buffers[3];  // by protocol
  void* handles[3];
  std::uint64_t* tail;
  std::uint64_t* head;
  std::int32_t flags;
  std::int32_t is_shared;
  std::int32_t step_bytes;
  void* pointers;
  void* scalars;
  std::byte* fifo;
  std::uint64_t step;  // kept from kernel to kernel
  std::uint64_t cleaned;
  std::byte net_device[32];
};
struct Peer {
  Connection send[2];
  Connection receive[2];
};

// The beginning of the kernels' communicator.
struct CommBeginning {
  std::int32_t rank;
  std::int32_t ranks;
  std::int32_t node;
  std::int32_t nodes;
  std::int32_t buffer_bytes[3];
  std::int32_t p2p_chunk_bytes;
};

// The beginning of a channel.
struct ChannelBeginning {
  Peer** peers;
  std::int32_t previous;
  std::int32_t next;
  std::int32_t* ring;  // its ranks, from this one on
};

static_assert(sizeof(KernelArguments) == 32);
static_assert(sizeof(WorkBatch) == 16);
static_assert(sizeof(P2pWork) == 48);
static_assert(sizeof(Connection) == 152);
static_assert(offsetof(Connection, fifo) == 96);
static_assert(sizeof(CommBeginning) == 32);

constexpr int kSteps = 8;      // slots of a connection
constexpr int kSimple = 2;     // the protocol
constexpr int kProtocols = 3;  // LL, LL128, Simple
constexpr int kRing = 1;       // among the algorithms of all-reduce; 0 among the others'
constexpr std::size_t kGrainBytes = 512;

// All versions that can be played, ascending.
std::span<const Layout> layouts();
Result<Layout> layout_of(int version);

// What the number of a device function stands for.
struct Function {
  enum class Kind { kP2p, kAllGather, kBroadcast, kAllReduce, kReduce, kReduceScatter };
  Kind kind = Kind::kP2p;
  int operation = 0;  // kSum...
  int type = 0;       // as ncclDataType_t
};
constexpr int kSum = 0;
constexpr int kPreMulSum = 3;
constexpr int kOperations = 5;

// The number of rows of ncclDevFuncRowToId, which ends with one more, -1.
std::size_t rows_of(const Layout& layout);
// Finds the row of Ring and Simple that has this number. An integer's sum stands for the signed and
// the unsigned type alike. Failure: kInvalidArgument, which says what the number stands for.
Result<Function> find_function(const Layout& layout, std::span<const int> row_to_id, int id);

// Decodes a chunk's size.
std::size_t chunk_bytes(std::uint8_t encoded);

}  // namespace lockstep::played
