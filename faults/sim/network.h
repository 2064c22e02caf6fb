// SimNetwork: the links between the ranks of one simulated job. All ranks share it. It has the role
// that TCP has under Gloo.
//
// A Mesh is the set of links of one process group: one link for each ordered pair of members. A
// link delivers messages in the order of sending, after a virtual latency; a fault that delays a
// message also delays the messages behind it. No message is lost, duplicated or changed, with three
// exceptions: on a stalled link the stalled message and all later ones never arrive; on a reset
// link the messages in flight are lost; and lose_sent() discards what a sender has sent. A closed
// link still delivers what was sent before; messages from the peer to the side that closed are
// dropped.
//
// The latency is a hash of the seed, the link and the message number, so that removing one message
// does not change the latency of others. Time stands still while any fiber can run: with a latency
// above 0 every message arrives after all computation. With latency 0 the schedule decides what is
// first.
//
// Threads: fibers of one scheduler. Here a rank is a number in the mesh; the `world rank` is the
// original number, which fault plans use and which is also the scheduler's group. Ownership: the
// network owns meshes and messages and reuses their memory after reset(); meshes live until then.
// Failure: send() and receive() return the failure of the link. receive() also ends at its
// deadline, or when its own side was interrupted (by interrupt(), or because the rank exited).
// Scheduling points: send(), and receive() if it has to wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "faults/injector.h"
#include "faults/sim/scheduler/scheduler.h"
#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

using simulation::Duration;

struct Message {
  static constexpr std::size_t kNearBytes = 256;
  Message* next = nullptr;
  Duration arrival{};
  std::int64_t sequence = 0;  // of the collective that the message belongs to
  std::uint32_t part = 0;     // the number of the message in that collective
  std::size_t bytes = 0;
  std::byte* data = near;
  std::size_t capacity = sizeof near;
  std::unique_ptr<std::byte[]> far;  // for a payload that does not fit into `near`
  std::byte near[kNearBytes];
};

enum class Trouble : std::uint8_t { kNone, kClosed, kReset, kTimeout, kInterrupted };

struct Latency {
  Duration least{0};
  Duration spread{0};  // a latency lies between `least` and `least + spread`
};

class SimNetwork;

class Mesh {
 public:
  int size() const { return static_cast<int>(members_.size()); }
  std::uint32_t world_rank(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  std::span<const std::uint32_t> members() const { return members_; }  // world ranks
  std::int64_t generation() const { return generation_; }

  // Connects a member; each member calls it once. `worker` is the fiber that receives for the
  // member; the wait-for graph shows it.
  void attach(int rank);
  void set_worker(int rank, simulation::FiberId worker);

  // Sends bytes on the link. With kClosed or kReset the bytes were not sent.
  Trouble send(int from, int to, std::int64_t sequence, std::uint32_t part,
               std::span<const std::byte> bytes);

  struct Received {
    Trouble trouble = Trouble::kNone;
    Message* message = nullptr;  // the caller returns it with release()
  };
  // Waits until the deadline for the next message of the link. Each `to` may run one receive() at a
  // time.
  Received receive(int to, int from, Duration until);
  void release(Message* message);

  void offer_switch() { scheduler_->point(); }

  // Waits without a message until the deadline (kTimeout) or an interruption. `what` is the text
  // for the wait-for graph.
  Trouble pause(int rank, const char* what, Duration until);

  // Each wait of `rank` returns kInterrupted, now and later.
  void interrupt(int rank);
  bool is_interrupted(int rank) const;
  // Discards everything that `rank` has sent and nobody has received.
  void lose_sent(int rank);
  // Closes both directions of all links of `rank`.
  void close(int rank);

  struct Traffic {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
  };
  // What `rank` has sent so far, whether or not it arrived.
  const Traffic& sent_by(int rank) const { return endpoints_[static_cast<std::size_t>(rank)].sent; }

 private:
  friend class SimNetwork;
  enum class State : std::uint8_t { kOpen, kClosed, kReset };
  struct Link {
    Message* head = nullptr;
    Message* tail = nullptr;
    Duration last_arrival{0};
    std::uint32_t sent = 0;
    State state = State::kOpen;
    bool is_stalled = false;
    std::uint32_t received = 0;
    // Part 0 is the state of the link, part n + 1 the message with number n.
    simulation::ObjectId id;
  };
  struct Endpoint {
    simulation::Place place;
    int waits_for = kNone;  // the sender it waits for
    simulation::FiberId worker = simulation::kNoFiber;
    Traffic sent;
    bool is_attached = false;
    bool is_interrupted = false;
    simulation::ObjectId interruption;
  };

  void open(SimNetwork& network, std::int64_t generation, std::span<const std::uint32_t> members);
  Link& link(int from, int to) {
    return links_[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
  }
  Endpoint& endpoint(int rank) { return endpoints_[static_cast<std::size_t>(rank)]; }
  // These tell the scheduler what the current step uses: the whole link; one message of it, which
  // depends on the state of the link; whether `rank` is interrupted.
  static void touch_state(const Link& link) {
    simulation::Scheduler::touch(link.id, simulation::Access::kWrite);
  }
  static void touch_message(const Link& link, std::uint32_t number) {
    simulation::Scheduler::touch(link.id, simulation::Access::kRead);
    simulation::Scheduler::touch(link.id, simulation::Access::kWrite, number + 1);
  }
  void touch_interruption(int rank) {
    simulation::Scheduler::touch(endpoint(rank).interruption, simulation::Access::kRead);
  }
  void reset_pair(int a, int b);
  void drop(Link& link);
  void wake(int rank);
  bool wait(int rank, Duration until);

  SimNetwork* network_ = nullptr;
  simulation::Scheduler* scheduler_ = nullptr;
  std::int64_t generation_ = 0;
  std::vector<std::uint32_t> members_;  // world ranks
  std::vector<Link> links_;             // ordered by sender, then by receiver
  std::vector<Endpoint> endpoints_;
};

class SimNetwork {
 public:
  SimNetwork() = default;
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // Forgets the last run. The scheduler and the injector must live until the next reset().
  void reset(simulation::Scheduler& scheduler, faults::Injector& injector, Latency latency,
             std::uint64_t seed);

  // Returns the mesh of a group. The first member opens it, and the others must name the same
  // members, as world ranks.
  Mesh& mesh(std::int64_t generation, std::span<const std::uint32_t> members);

  // Ends the process of the rank: its links close and its receives are interrupted, in later
  // meshes, too.
  void exit_rank(std::uint32_t world_rank);

  simulation::Scheduler& scheduler() { return *scheduler_; }
  faults::Injector& injector() { return *injector_; }
  // As injector(), for a step of the rank that counts a site or changes what is planned.
  faults::Injector& injector_of(std::uint32_t world_rank) {
    touch_plan(world_rank, simulation::Access::kWrite);
    return *injector_;
  }
  bool exited(std::uint32_t world_rank) const {
    touch_plan(world_rank | kExit, simulation::Access::kRead);
    return injector_->exited(world_rank);
  }

 private:
  friend class Mesh;
  Message* take(std::size_t bytes);
  Duration latency_of(std::uint64_t link, std::uint32_t number) const;
  // Without a plan the counts of sites have no effect. `part` is a rank, for its counts, or that
  // with kExit, for whether the rank has exited.
  static constexpr std::uint32_t kExit = 1u << 16u;
  void touch_plan(std::uint32_t part, simulation::Access access) const {
    if (injector_->has_plan()) simulation::Scheduler::touch(plan_id_, access, part);
  }

  simulation::Scheduler* scheduler_ = nullptr;
  faults::Injector* injector_ = nullptr;
  simulation::ObjectId plan_id_;
  simulation::ObjectId meshes_id_;
  Latency latency_;
  std::uint64_t seed_ = 0;
  std::vector<std::unique_ptr<Mesh>> meshes_;  // the first open_ ones are in use
  std::size_t open_ = 0;
  std::vector<std::unique_ptr<Message>> messages_;
  Message* free_ = nullptr;
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
