// Mesh holds the connections between all ranks of a group (mesh_connections.h), and what this rank
// knows about its peers' state, from their messages (mesh_mailbox.h).
//
// Notices. Gloo tells a rank only that a connection closed, and only if a transfer on that
// connection was pending. So each rank keeps one receive posted on every connection, and a thread
// (the monitor) waits for these. A rank that leaves without a failure sends "left". A rank that
// fails sends its Failure, then closes all its connections. A connection that closes without a
// notice is a lost peer, and the rank knows which peer it is. So one rank's first cause reaches all
// others, whichever rank they were waiting for.
//
// Shared memory. Where all ranks share a host the payload goes through memory; a failure, and the
// loss of a peer, then end the waits there, too (shared_rounds.h).
//
// Roll call. A rank whose operation makes no progress knows which peer it waits for, but not which
// rank holds that peer up. So it sends its standing to all ranks; a rank that receives a standing
// for the first time sends its own, busy or idle; and the rank follows the chain of waits to its
// end (roll_call.h).
//
// A lost peer may also be one whose work was done and that exited without a notice, while others
// still finish operations that need nothing from it. Such operations in flight get a second to
// finish, or 20 if the peer said that it left in peace (those that do need the peer fail at once),
// and new ones are refused.
//
// Threads: all calls from any thread, but connect and destruction.
// Failure: the first cause stays. After it the mesh is dead, its connections are closed, and every
// wait on its board is interrupted. No exception leaves the class; functions of Gloo called on
// transport() throw.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "reducer/base/status.h"
#include "reducer/comm/first_cause.h"
#include "reducer/comm/gloo/agreement.h"
#include "reducer/comm/gloo/gloo_context.h"
#include "reducer/comm/gloo/mesh_connections.h"
#include "reducer/comm/gloo/mesh_mailbox.h"
#include "reducer/comm/gloo/roll_call.h"
#include "reducer/comm/gloo/watched_transport.h"
#include "reducer/comm/store.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Mesh {
 public:
  static Result<std::unique_ptr<Mesh>> connect(Store& store, int rank, int size,
                                               const GlooContextOptions& options);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return connections_.rank(); }
  int size() const { return connections_.size(); }

  // Ok, or the first cause, or the loss of a peer, which may become the first cause.
  Status health() const;

  // Ends the mesh: notifies the peers, interrupts all waits, and closes all connections. If the
  // mesh has ended already, it returns false and only attaches the failure to the first cause.
  bool fail(const Failure& failure);
  // Does the same for a user's abort: peers receive kAborted.
  bool abort(const Status& cause);

  // Translates an exception of Gloo into a failure. `waited_for` is the peer whose transfer the
  // exception ended, for errors that do not name it. The caller fills in the fields of the
  // operation.
  Failure explain(const std::exception& error, int waited_for);

  // The error of the connection to a peer that is gone, which explain() knows.
  std::string error_of(int peer) const { return connections_.error_of(peer).value_or(""); }

  // Calls the roll: returns the end of the chain of ranks that wait for each other, as far as they
  // answer before the deadline. Call it once in the life of a mesh, shortly before it fails.
  ChainEnd call_roll(platform::Deadline deadline);

  // One process group at a time uses the mesh. The mesh counts the group's operations, so that the
  // next group continues from there. `standing` returns this rank's standing; any thread may call
  // it until release() returns.
  bool claim();
  void set_standing(std::function<Standing()> standing);
  void release();

  // A number that grows when bytes move to or from any peer.
  std::uint64_t bytes_moved() const { return connections_.bytes_moved(); }

  struct Tags {  // The counts of all operations, and of those that use one or the other agreement.
    std::uint32_t operation = 0;
    std::uint32_t neighbours = 0;
    std::uint32_t others = 0;
  };
  Tags begin_operation(bool asks_neighbours, bool asks_others);
  void end_operation();

  Agreement& with_neighbours() { return *with_neighbours_; }
  Agreement& with_others() { return *with_others_; }
  const std::shared_ptr<::gloo::transport::Context>& transport() const {
    return connections_.transport();
  }
  const std::shared_ptr<::gloo::transport::Device>& device() const { return connections_.device(); }
  const EventLoop& loop() const {
    return connections_.loop();
  }  // Only for a mesh of two or more ranks.
  WaitBoard& board() { return board_; }
  // The rounds through which the payload goes; null if it goes over the connections.
  SharedRounds* rounds() { return connections_.memory().rounds(); }
  const std::string& why_no_rounds() const { return connections_.memory().why_not(); }

 private:
  using NoticeKind = MeshMailbox::NoticeKind;
  using Notice = MeshMailbox::Notice;
  // Asks the process group that uses the mesh for this rank's standing.
  class StandingSource {
   public:
    void set(std::function<Standing()> standing) LOCKSTEP_EXCLUDES(mutex_);
    Standing get() LOCKSTEP_EXCLUDES(mutex_);

   private:
    platform::Mutex mutex_{"gloo.mesh.standing"};
    // It is called with the mutex held, so that nobody calls it after it was replaced.
    std::function<Standing()> standing_ LOCKSTEP_GUARDED_BY(mutex_);
  };
  // What the process group that uses the mesh has in flight. Under Mesh::mutex_.
  class Usage {
   public:
    bool claim();  // Returns false if another group has it.
    void release();
    Tags begin_operation(bool asks_neighbours, bool asks_others);
    void end_operation();
    bool is_claimed() const { return is_claimed_; }
    bool is_idle() const { return in_flight_ == 0; }
    std::uint32_t started() const { return next_tags_.operation; }

   private:
    bool is_claimed_ = false;
    int in_flight_ = 0;
    Tags next_tags_;
  };
  // What is known of a roll call. Under Mesh::mutex_.
  struct RollCall {
    bool is_answered = false;  // Whether this rank has begun to send its standing.
    Standings standings;
  };

  Mesh(int rank, int size) : connections_(rank, size), mailbox_(rank, size) {}
  Status open(Store& store, const GlooContextOptions& options, platform::Deadline deadline);
  void open_agreements();

  bool end(const Failure& failure, const Failure& for_peers);

  void monitor();
  bool hear(int peer);
  void answer_roll_call();
  void lose(const Failure& failure);

  MeshConnections connections_;
  WaitBoard board_;
  std::unique_ptr<Agreement> with_neighbours_;
  std::unique_ptr<Agreement> with_others_;
  MeshMailbox mailbox_;
  platform::Thread monitor_;
  StandingSource standing_;

  mutable platform::Mutex mutex_{"gloo.mesh"};
  platform::CondVar changed_{"gloo.mesh.changed"};
  FirstCause cause_ LOCKSTEP_GUARDED_BY(mutex_);
  // The loss of a peer, which becomes the cause of what is in flight after the grace period.
  Status loss_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_leaving_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // True once the destructor has begun.
  Usage usage_ LOCKSTEP_GUARDED_BY(mutex_);
  RollCall roll_call_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
