// Mesh holds the connections between all ranks of a group, and what this rank knows about its
// peers' state.
//
// Connecting goes through the reducer's Store with the caller's deadline, not through Gloo's
// rendezvous, whose waits last 30 s whatever the caller wants. Each rank announces in the store
// that it is present, waits until all others have done so, and only then publishes addresses and
// connects.
//
// Notices. Gloo tells a rank only that a connection closed, and only if a transfer on that
// connection was pending. So each rank keeps one receive posted on every connection, and a thread
// (the monitor) waits for these. A rank that leaves without a failure sends "left". A rank that
// fails sends its Failure, then closes all its connections. A connection that closes without a
// notice is a lost peer, and the rank knows which peer it is. So one rank's first cause reaches all
// others, whichever rank they were waiting for.
//
// Roll call. A rank whose operation makes no progress knows which peer it waits for, but not which
// rank holds that peer up. So it sends its standing to all ranks; a rank that receives a standing
// for the first time sends its own, busy or idle; and the rank follows the chain of waits to its
// end (roll_call.h).
//
// A lost peer may also be one whose work was done and that exited without a notice, while others
// still finish operations that need nothing from it. Such operations in flight get a second to
// finish (those that do need the peer fail at once), and new ones are refused.
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
#include <optional>
#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/gloo/agreement.h"
#include "reducer/comm/gloo/device.h"
#include "reducer/comm/gloo/gloo_context.h"
#include "reducer/comm/gloo/roll_call.h"
#include "reducer/comm/gloo/sockets.h"
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

  int rank() const { return rank_; }
  int size() const { return size_; }

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
  std::uint64_t bytes_moved() const { return sockets_.bytes_moved(); }

  struct Tags {  // The counts of all operations, and of those that use one or the other agreement.
    std::uint32_t operation = 0;
    std::uint32_t neighbours = 0;
    std::uint32_t others = 0;
  };
  Tags begin_operation(bool asks_neighbours, bool asks_others);
  void end_operation();

  Agreement& with_neighbours() { return *with_neighbours_; }
  Agreement& with_others() { return *with_others_; }
  const std::shared_ptr<::gloo::transport::Context>& transport() const { return transport_; }
  const std::shared_ptr<::gloo::transport::Device>& device() const { return device_; }
  const EventLoop& loop() const { return *loop_; }  // Only for a mesh of two or more ranks.
  WaitBoard& board() { return board_; }

 private:
  static constexpr std::size_t kNoticeBytes = 1024;
  enum class NoticeKind : std::uint32_t { kLeft = 1, kFailed = 2 };
  struct Notice {
    std::uint32_t magic = 0;
    NoticeKind kind = NoticeKind::kLeft;
    std::uint64_t length = 0;
    std::uint64_t checksum = 0;
    char text[kNoticeBytes - 24] = {};  // An encoded Failure.
  };
  static_assert(sizeof(Notice) == kNoticeBytes);
  struct Inbox {  // The messages of one peer.
    Notice notice;
    Standing standing;
  };

  Mesh(int rank, int size) : rank_(rank), size_(size) {}

  // The steps of connecting, in this order.
  Status open(Store& store, const GlooContextOptions& options, platform::Deadline deadline);
  Status meet(Store& store, platform::Deadline deadline);
  Status publish(Store& store, platform::Deadline deadline);
  Status connect_pairs(Store& store, platform::Deadline deadline);
  Status greet(platform::Deadline deadline);
  void find_sockets();
  void open_agreements();
  Failure while_connecting(Code code, int suspect, std::string detail) const;

  bool end(const Failure& failure, const Failure& for_peers);
  void send_notice(NoticeKind kind, const Failure* failure);
  void close_connections();

  void monitor();
  bool hear(int peer);
  bool hear_standing(int peer);
  bool hear_notice(int peer);
  void tell_standing();
  void lose(const Failure& failure);
  bool read_notice(int peer, Notice& notice) const;
  Failure relayed(int peer, const Notice& notice) const;

  const int rank_;
  const int size_;
  std::shared_ptr<::gloo::transport::Device> device_;
  std::optional<EventLoop> loop_;  // The loop of device_.
  std::shared_ptr<::gloo::transport::Context> transport_;
  Sockets sockets_;  // The sockets of transport_.
  WaitBoard board_;
  std::unique_ptr<Agreement> with_neighbours_;
  std::unique_ptr<Agreement> with_others_;

  std::vector<Inbox> inboxes_;  // By rank; Gloo's thread writes them.
  // By rank: whether its notice has arrived. Only the monitor uses it.
  std::vector<bool> is_heard_;
  std::vector<bool> has_stood_;  // The same for standings.
  std::unique_ptr<::gloo::transport::UnboundBuffer> notice_receiver_;
  Notice sent_notice_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> notice_sender_;
  Standing sent_standing_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> standing_sender_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> closer_;
  platform::Thread monitor_;

  platform::Mutex standing_mutex_{"gloo.mesh.standing"};
  // It is called with standing_mutex_ held.
  std::function<Standing()> standing_ LOCKSTEP_GUARDED_BY(standing_mutex_);

  mutable platform::Mutex mutex_{"gloo.mesh"};
  platform::CondVar changed_{"gloo.mesh.changed"};
  Status cause_ LOCKSTEP_GUARDED_BY(mutex_);
  // The loss of a peer, which becomes the cause of what is in flight after the grace period.
  Status loss_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_leaving_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // True once the destructor has begun.
  bool is_claimed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  int in_flight_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool has_told_standing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  Standings standings_ LOCKSTEP_GUARDED_BY(mutex_);
  Tags next_tags_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
