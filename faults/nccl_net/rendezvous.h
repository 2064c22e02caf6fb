// How connections come to be: a Listener on the receiving side, a Connector on the sending one.
// Both are asked again and again, and never wait.
//
// The connecting side says who it is (Hello: the listener's token, its rank, the connection's
// number); the listener answers (Welcome). A guest that says something else, nothing for too long,
// or goes away is turned away and logged; it does not keep others from coming in. No more than
// kMostGuests are heard at a time: the one that has been there longest has to go.
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

  // A connection, or null when there is none yet.
  Outcome<std::unique_ptr<Receiver>> accept();

 private:
  struct Guest {
    Socket socket;
    Clock::time_point deadline;
    Hello hello;
    std::size_t heard = 0;  // bytes of hello
    Welcome welcome;
    std::size_t told = 0;  // bytes of welcome
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
  std::vector<Guest> guests_;  // the oldest first
};

class Connector {
 public:
  static Outcome<std::unique_ptr<Connector>> begin(Context& context, const Handle& handle);

  // A connection, or null when there is none yet. The context is the one that it began with, which
  // keeps it, so that it must not keep the context.
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
  std::size_t said_ = 0;   // bytes of hello_
  std::size_t heard_ = 0;  // bytes of welcome_
};

}  // namespace lockstep::faults::net
