// NetworkFaults: carries out faults of the network (faults/plan.h) on the host on which it runs,
// which must be a namespace (namespaces.h): with nft what drops, resets, rejects and loses packets,
// with tc the bandwidth, with ip the MTU, and with a relay (relay.h) what delays and cuts streams.
//
// Every fault has counters, which say whether it has acted: the packets that it met. A fault that
// was refused, or that met no packet, is named with the reason.
//
// Threads: one caller.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "faults/plan.h"
#include "properties/hosts/line.h"
#include "properties/hosts/relay.h"
#include "properties/hosts/timed_faults.h"
#include "reducer/base/status.h"

namespace lockstep::properties::hosts {

// Returns whether faults of this kind are carried out with nft: as a filter, or by the relay.
bool needs_nft(faults::Kind kind);

class NetworkFaults {
 public:
  // `address_of` returns the address of a rank on the network `data`.
  explicit NetworkFaults(std::function<std::string(std::uint32_t rank)> address_of)
      : address_of_(std::move(address_of)) {}
  ~NetworkFaults() { (void)end_all(); }
  NetworkFaults(const NetworkFaults&) = delete;
  NetworkFaults& operator=(const NetworkFaults&) = delete;

  // Call it before the rank connects: the faults of this plan that act on `rank`, on this host, may
  // need a relay for its connections.
  void prepare(const faults::FaultPlan& plan, std::uint32_t rank);

  void begin(const faults::Fault& fault);

  // Ends those whose time is over, and says when to call it again; Clock::time_point::max(): never.
  Clock::time_point end_those_due();

  // Ends all, and returns the reports since the last call; `acted` counts packets.
  std::vector<FaultReport> end_all();

 private:
  struct Active {
    faults::Fault fault;
    std::string table;  // of nft
    int relayed = -1;   // the number at the relay
    Clock::time_point end;
  };
  Status start(Active& active);
  Status filter(const Active& active);
  FaultReport end(const Active& active);
  std::uint64_t count(const Active& active) const;

  const std::function<std::string(std::uint32_t rank)> address_of_;
  std::unique_ptr<Relay> relay_;  // null where the plan needs none
  std::string no_relay_;          // why there is none, where the plan needs one
  TimedFaults<Active> faults_;
  std::uint64_t tables_ = 0;
};

}  // namespace lockstep::properties::hosts
