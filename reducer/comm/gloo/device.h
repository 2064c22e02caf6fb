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

namespace lockstep::inline LOCKSTEP_NS {

// `address` is a host name or a numeric address of an interface of this machine. Ports are chosen
// by the system, so none can be in use already.
Result<std::shared_ptr<::gloo::transport::Device>> shared_device(const std::string& address);

// While one lives, the event loop of a TCP device runs without pause. Gloo waits for a turn of the
// loop whenever it takes a connection in or out, and an idle loop turns once in 10 ms: that is most
// of what connecting and closing a mesh would take. Does nothing for devices of other kinds.
class HurriedLoop {
 public:
  explicit HurriedLoop(const std::shared_ptr<::gloo::transport::Device>& device);
  ~HurriedLoop();
  HurriedLoop(const HurriedLoop&) = delete;
  HurriedLoop& operator=(const HurriedLoop&) = delete;

 private:
  int event_ = -1;
};

}  // namespace lockstep::inline LOCKSTEP_NS
