// Establishes connections: a Listener on the receiving side, a Connector on the sending side. NCCL
// polls both, and neither waits.
//
// The connecting side identifies itself (Hello: the listener's token, its rank, the connection's
// number), and the listener answers (Welcome). A peer that sends something else, sends nothing for
// too long, or disconnects is rejected and logged; it does not keep others from connecting. The
// listener serves at most kMostGuests pending peers at a time; when another one connects, it drops
// the oldest.
//
// Threads: one at a time for each object. Failure: an Error ends that attempt alone.
#pragma once

#include <memory>
#include <vector>

#include "faults/nccl_net/connection.h"
#include "faults/nccl_net/wire.h"

namespace lockstep::faults::net {

constexpr std::size_t kMostGuests = 16;

class Listener {
 public:
  // Writes the handle, of kHandleBytes, for the other side.
  static Outcome<std::unique_ptr<Listener>> open(std::shared_ptr<Context> context, void* handle);
  ~Listener();

  // Returns a connection, or null if there is none yet.
  Outcome<std::unique_ptr<Receiver>> accept();

 private:
  struct Guest {
    Socket socket;
    Clock::time_point deadline;
    Hello hello;
    std::size_t heard = 0;  // received bytes of hello
    Welcome welcome;
    std::size_t told = 0;  // sent bytes of welcome
  };
  enum class Manners { kPending, kReady, kBad };

  Listener(std::shared_ptr<Context> context, Socket socket, std::uint64_t token);
  Outcome<bool> take_in();
  Manners hear(Guest& guest);
  Manners tell(Guest& guest);
  Manners turn_away(const std::string& why);

  std::shared_ptr<Context> context_;
  Socket socket_;
  std::uint64_t token_;
  std::vector<Guest> guests_;  // oldest first
};

class Connector {
 public:
  static Outcome<std::unique_ptr<Connector>> begin(Context& context, const Handle& handle);

  // Returns a connection, or null if there is none yet. `context` must be the context passed to
  // begin(). The context owns this connector, so the connector must not own the context.
  Outcome<std::unique_ptr<Sender>> advance(const std::shared_ptr<Context>& context);

 private:
  Connector(Socket socket, const Link& link, std::uint64_t token);
  Outcome<bool> say();
  Outcome<bool> listen();
  tl::unexpected<Error> lost(const std::string& why) const;

  Socket socket_;
  Link link_;
  Hello hello_;
  Welcome welcome_;
  bool is_connected_ = false;
  std::size_t said_ = 0;   // sent bytes of hello_
  std::size_t heard_ = 0;  // received bytes of welcome_
};

}  // namespace lockstep::faults::net
