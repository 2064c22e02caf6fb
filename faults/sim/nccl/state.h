// The state behind SimNccl. Only SimNccl's own files include this header.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "faults/payload.h"
#include "faults/sim/nccl/sim_nccl.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

// The links of one rank in one mesh.
class MeshLane final : public Lane {
 public:
  MeshLane(Mesh& mesh, int rank, std::int64_t sequence)
      : Lane(rank, mesh.size()), mesh_(mesh), sequence_(sequence) {}
  Trouble trouble() const { return trouble_; }
  int peer() const { return peer_; }  // the peer at the other end of the failed link
  bool send(int to, std::span<const std::byte> bytes) override;
  // Copies as much of the message as fits.
  bool receive(int from, std::span<std::byte> bytes) override;

 private:
  Mesh& mesh_;
  const std::int64_t sequence_;
  std::uint32_t part_ = 0;
  Trouble trouble_ = Trouble::kNone;
  int peer_ = kNone;
};

// All ranks of one communicator. It is complete when every rank has joined.
struct SimNccl::CliqueState {
  std::string key;
  std::vector<Communicator*> members;  // by rank; null until the rank joins
  int missing = 0;
  Mesh* ring = nullptr;      // links for collectives
  Mesh* direct = nullptr;    // links for send and receive
  Mesh* receipts = nullptr;  // links for acknowledgements of what was received
  simulation::Place gathering;
};

// Where the ranks of a communicator meet to create other communicators from it.
struct SimNccl::SplitRendezvous {
  struct Arrival {
    int color;
    int order;
    int parent_rank;
    Communicator* child;
  };
  std::vector<Arrival> arrivals;
  bool is_complete = false;
  simulation::Place gathering;
};

struct SimNccl::Communicator {
  enum class Life : std::uint8_t { kOpen, kDestroyed, kAborted };

  struct Factor {
    NcclDataType type;
    double value = 1;
    const std::byte* on_device = nullptr;  // in device memory; read when the operation runs
  };

  NcclComm handle() { return reinterpret_cast<NcclComm>(this); }

  // How the communicator ends.
  struct Ending {
    Life life = Life::kOpen;
    bool is_revoked = false;
    bool is_finalized = false;
    bool was_shrunk_with_abort = false;
    bool is_cut = false;      // its work ends, and no new work begins
    bool is_leaving = false;  // its jobs end, too
  };
  // The work that it was given.
  struct Work {
    std::uint64_t in_flight = 0;  // launched and not over
    std::optional<Stream> last_stream;
    std::int64_t sequence = 0;
    faults::SentBefore sent_before;  // in exchanges of frames
  };
  // The reductions that the user has made for it, by their numbers.
  struct Factors {
    std::map<int, Factor> all;
    int next = 16;
  };
  // How often it was asked for communicators of some of its ranks.
  struct Children {
    std::uint64_t splits = 0;
    std::uint64_t shrinks = 0;
  };

  std::uint32_t process = 0;
  std::string name;  // for the wait-for graph and messages
  int rank = 0;
  int size = 0;
  bool is_blocking = true;
  // The communicator is a child whose creation failed, but which was returned all the same.
  bool has_failed_init = false;
  NcclResult state = NcclResult::kSuccess;
  NcclResult link_error = NcclResult::kSuccess;
  CliqueState* clique = nullptr;
  std::size_t number = 0;     // among all communicators
  simulation::Place changed;  // notified when a member changes
  simulation::FiberId job = simulation::kNoFiber;
  simulation::FiberId inside = simulation::kNoFiber;  // the fiber that is within a call
  Ending ending;
  Work work;
  Factors factors;
  Children children;
};

struct SimNccl::Operation {
  enum class Kind : std::uint8_t {
    kAllReduce,
    kReduceScatter,
    kBroadcast,
    kAllGather,
    kSend,
    kReceive
  };
  Kind kind = Kind::kAllReduce;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;
  NcclDataType type = NcclDataType::kFloat32;
  NcclRedOp op = NcclRedOp::kSum;
  int peer = 0;  // the peer, or the root
  NcclReduction reduction{};
  const std::byte* device_factor = nullptr;

  std::size_t bytes() const { return count * size_of(type); }
  bool is_direct() const { return kind == Kind::kSend || kind == Kind::kReceive; }
  const char* name() const;
  void add_touches(std::vector<Touch>& touches, int rank, std::size_t ranks) const;
};

// What one group launches on one communicator.
struct SimNccl::Launch {
  Communicator* comm = nullptr;
  std::vector<Operation> operations;
  std::vector<Stream> streams;  // it runs on the first stream
  const SimNcclFault* fault = nullptr;
  faults::OperationFault planned;
  std::int64_t sequence = 0;
};

struct SimNccl::Group {
  int depth = 0;
  NcclResult error = NcclResult::kSuccess;
  std::vector<Launch> launches;
};

struct SimNccl::Process {
  std::map<std::string, std::uint64_t> calls;
  std::string last_error;
  bool has_hung_abort = false;
  std::vector<std::pair<simulation::FiberId, std::shared_ptr<bool>>> background;
};

// Counts a launch as in flight until it is over, or until its device drops it.
struct SimNccl::AsyncCall {
  AsyncCall(Communicator& of, simulation::Scheduler& scheduler) : comm(of), at(scheduler) {
    ++comm.work.in_flight;
  }
  ~AsyncCall() {
    --comm.work.in_flight;
    if (simulation::Scheduler::running() == &at) at.wake_all(comm.changed);
  }
  AsyncCall(const AsyncCall&) = delete;
  AsyncCall& operator=(const AsyncCall&) = delete;
  Communicator& comm;
  simulation::Scheduler& at;
};

// A call for a communicator. A refused call does nothing, because its communicator no longer exists
// or belongs to another process.
class SimNccl::Call {
 public:
  Call(SimNccl& nccl, const char* function, NcclComm comm);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  bool is_refused() const { return is_refused_; }

 private:
  Communicator* comm_ = nullptr;
  bool is_refused_ = false;
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
