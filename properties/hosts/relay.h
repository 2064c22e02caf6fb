// Relay: carries the TCP connections of one host through this process, which can then delay bytes,
// or reset a connection within a message. It is for what the kernel's filters cannot do, and some
// kernels (without netem) do not do. nft redirects every new connection on the network `data` to
// it, in both directions; neither end notices.
//
// Bytes keep their order, nothing is lost, and an end or a reset of one side is passed on to the
// other.
//
// Threads: one caller; the relay has a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "faults/plan.h"
#include "reducer/base/status.h"

namespace lockstep::properties::hosts {

class Relay {
 public:
  // `own_address`: of this host on the network `data`. Connections that exist already are not
  // carried.
  static Result<std::unique_ptr<Relay>> start(const std::string& own_address);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Begins kNetDelay or kNetCut; `peer` is the address of the other end, empty for all. Returns the
  // number of the fault.
  int begin(const faults::Fault& fault, const std::string& peer);
  // Ends a fault. Returns how much of it has acted: bytes that were late, or resets.
  std::uint64_t end(int number);

 private:
  class Impl;
  explicit Relay(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::properties::hosts
