// The Gloo device that the groups of this process share: one event loop thread for all connections.
//
// Small collectives among ranks in one process are several times faster over one device than over
// one each. The device lives as long as anything uses it; hold the pointer to keep it between
// groups.
//
// Threads: any. Fork: a child process gets a device of its own.
// Failure: kInvalidArgument for an address that does not resolve or is not of this machine.
#pragma once

#include <memory>
#include <string>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace gloo::transport {
class Device;
}

namespace lockstep {
inline namespace LOCKSTEP_NS {

// `address` is a host name or a numeric address of an interface of this machine. Ports are chosen
// by the system, so none can be in use already.
Result<std::shared_ptr<::gloo::transport::Device>> shared_device(const std::string& address);

// The event loop of a TCP device. While a Hurry lives, it turns without pause, and offers its
// processor to others at every turn. Two things of Gloo's ask for that:
//  - Whoever takes a connection in or out waits for a turn, and an idle loop turns once in 10 ms.
//    That is most of what connecting and closing a mesh would take.
//  - The loop passes over a connection whose lock is taken, finds it ready again at once, and so
//    spins for as long as the thread that has the lock is kept from running, perhaps by the loop
//    itself: until the scheduler's next tick. With more threads than processors that is most of
//    what a small collective takes. So a thread hurries the loop while it hands over a transfer.
// Does nothing for devices of other kinds.
//
// Threads: any. A Hurry costs two system calls, and wakes the loop.
class EventLoop {
 public:
  explicit EventLoop(const std::shared_ptr<::gloo::transport::Device>& device);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  class Hurry {
   public:
    explicit Hurry(const EventLoop& loop);
    ~Hurry();
    Hurry(const Hurry&) = delete;
    Hurry& operator=(const Hurry&) = delete;

   private:
    const int event_;
  };

 private:
  int event_ = -1;  // counts those who hurry
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
