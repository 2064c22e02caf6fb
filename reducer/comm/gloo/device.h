// The Gloo device that the groups of this process share: one event loop thread for all connections.
//
// Small collectives among ranks in one process are several times faster over one shared device than
// over one device for each rank. The device lives as long as anything uses it; hold the pointer to
// keep it between groups.
//
// Threads: any.
// Fork: a child process gets a device of its own.
// Failure: kInvalidArgument for an address that does not resolve or does not belong to this
// machine.
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

// `address` is a host name or a numeric address of an interface of this machine. The system chooses
// ports, so none can be in use already.
Result<std::shared_ptr<::gloo::transport::Device>> shared_device(const std::string& address);

// EventLoop is the event loop of a TCP device. While a Hurry is alive, the loop turns without
// pause, and yields its processor at every turn. Two properties of Gloo require that:
//  - A thread that registers or removes a connection waits for a turn of the loop, and an idle
//    loop turns once in 10 ms. That is most of the time for connecting and closing a mesh.
//  - The loop skips a connection whose lock is taken, finds it ready again at once, and so spins
//    until the system's next scheduler tick for as long as the thread that holds the lock cannot
//    run, perhaps because of the loop itself. With more threads than processors that is most of the
//    time of a small collective. So a thread holds a Hurry while it hands over a transfer.
// For devices of other kinds it does nothing.
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
  int event_ = -1;  // An event descriptor that counts the Hurry objects.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
