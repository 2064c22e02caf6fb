// SimNetwork: the links between the ranks of one simulated job, shared by all of them. It stands
// where TCP stands under Gloo.
//
// A Mesh is the set of links of one process group: one link for each ordered pair of members. A
// link delivers in the order of sending, after a virtual latency; a fault that delays a message
// delays what comes after it. Nothing is lost, doubled or changed, but for a stalled link, on which
// that message and all later ones never arrive, a reset one, on which what was under way is gone,
// and what a sender takes back with lose_sent(). A closed link still delivers what was sent before;
// the peer's messages to the side that closed are dropped.
//
// Latency is a hash of seed, link and message number, so that a deleted message does not change the
// others'. Time stands still while anything can run: with a latency above 0 every message comes
// after all computing. Latency 0 leaves it to the schedule who is first.
//
// Threads: fibers of one scheduler. Ranks here are numbers in the mesh; `world rank` is the
// original number, which faults are planned for, and the scheduler's group. Ownership: the network
// owns meshes and messages and keeps their memory over reset(); meshes live until then. Failure:
// send() and receive() say what is wrong with the link; receive() also ends when the time has come,
// or when its own side was interrupted (by interrupt(), or because the rank exited). Scheduling
// points: send(), and receive() where it has to wait.
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
  std::int64_t sequence = 0;  // of the collective it belongs to
  std::uint32_t part = 0;     // which message of that collective
  std::size_t bytes = 0;
  std::byte* data = near;
  std::size_t capacity = sizeof near;
  std::unique_ptr<std::byte[]> far;  // for what does not fit in here
  std::byte near[kNearBytes];
};

enum class Trouble : std::uint8_t { kNone, kClosed, kReset, kTimeout, kInterrupted };

struct Latency {
  Duration least{0};
  Duration spread{0};  // a message takes from `least` to `least + spread`
};

class SimNetwork;

class Mesh {
 public:
  int size() const { return static_cast<int>(members_.size()); }
  std::uint32_t world_rank(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  std::span<const std::uint32_t> members() const { return members_; }  // world ranks
  std::int64_t generation() const { return generation_; }

  // Takes the place of a member; once for each. `worker` is the fiber that receives for it, for the
  // wait-for graph.
  void attach(int rank);
  void set_worker(int rank, simulation::FiberId worker);

  // Hands bytes to the link. kClosed or kReset: they went nowhere.
  Trouble send(int from, int to, std::int64_t sequence, std::uint32_t part,
               std::span<const std::byte> bytes);

  struct Received {
    Trouble trouble = Trouble::kNone;
    Message* message = nullptr;  // to be given back with release()
  };
  // The next message of the link, waiting for it until then. One receive() at a time for each `to`.
  Received receive(int to, int from, Duration until);
  void release(Message* message);

  void offer_switch() { scheduler_->point(); }

  // Waits with nothing to come, until the time (kTimeout) or an interruption. `what` is for the
  // wait-for graph.
  Trouble pause(int rank, const char* what, Duration until);

  // What `rank` waits in returns kInterrupted, now and ever after.
  void interrupt(int rank);
  bool is_interrupted(int rank) const;
  // What `rank` has sent and nobody has received is gone.
  void lose_sent(int rank);
  // Both directions of all links of `rank`.
  void close(int rank);

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
  };
  struct Endpoint {
    simulation::Place place;
    int waits_for = kNone;  // the sender
    simulation::FiberId worker = simulation::kNoFiber;
    bool is_attached = false;
    bool is_interrupted = false;
  };

  void open(SimNetwork& network, std::int64_t generation, std::span<const std::uint32_t> members);
  Link& link(int from, int to) {
    return links_[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
  }
  Endpoint& endpoint(int rank) { return endpoints_[static_cast<std::size_t>(rank)]; }
  void reset_pair(int a, int b);
  void drop(Link& link);
  void wake(int rank);
  bool wait(int rank, Duration until);

  SimNetwork* network_ = nullptr;
  simulation::Scheduler* scheduler_ = nullptr;
  std::int64_t generation_ = 0;
  std::vector<std::uint32_t> members_;  // world ranks
  std::vector<Link> links_;             // by from, then to
  std::vector<Endpoint> endpoints_;
};

class SimNetwork {
 public:
  SimNetwork() = default;
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // Forgets the last run. Scheduler and injector must live until the next reset().
  void reset(simulation::Scheduler& scheduler, faults::Injector& injector, Latency latency,
             std::uint64_t seed);

  // The mesh of a group. Its first member opens it; the others must name the same members. World
  // ranks.
  Mesh& mesh(std::int64_t generation, std::span<const std::uint32_t> members);

  // The process of the rank is gone: its links close, its receives are interrupted, also those of
  // meshes yet to come.
  void exit_rank(std::uint32_t world_rank);

  simulation::Scheduler& scheduler() { return *scheduler_; }
  faults::Injector& injector() { return *injector_; }

 private:
  friend class Mesh;
  Message* take(std::size_t bytes);
  Duration latency_of(std::uint64_t link, std::uint32_t number) const;

  simulation::Scheduler* scheduler_ = nullptr;
  faults::Injector* injector_ = nullptr;
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
