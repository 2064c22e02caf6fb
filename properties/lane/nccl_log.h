// NcclLog: reads NCCL's own log (NCCL_DEBUG=INFO, subsystems INIT, NET and TUNING), and checks that
// NCCL ran as it was pinned. NCCL may silently use another network, and other algorithms add in
// another order.
//
// It knows the lines of NCCL 2.22 to 2.32 (nccl_log.cc names the sources of their forms) and skips
// others. A collective that says of itself that it went another way than Ring and Simple, as over
// symmetric memory or by the copy engine, is one for which no formula is known. Pure; nothing
// fails: an unreadable log proves nothing.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "reducer/base/status.h"

namespace lockstep::properties {

class NcclLog {
 public:
  // Takes whole lines of the log, in order.
  void add(std::string_view text);

  // Forgets everything except the plug-ins (network and tuner), which NCCL loads once per process:
  // the next lines must prove the next case by themselves.
  void begin_case();

  // Returns ok if the log of the case shows only what was pinned: the network and, if that is a
  // plug-in, that it was loaded; one channel, the ring in the order of ranks, Ring and Simple, no
  // connection outside of the network, and no tuner plug-in, which may change the size of chunks
  // (2.30 and newer) without a line that says so. `has_run`: at least one communicator was created.
  // `has_led`: one of them had several ranks, and this rank was its first, which logs the ring.
  // `has_summed`: that communicator has run collectives, whose algorithm only the first rank logs.
  struct Made {
    bool has_run = false;
    bool has_led = false;
    bool has_summed = false;
  };
  Status check(const std::string& network, bool is_plugin, const Made& made) const;

 private:
  void add_line(std::string_view text);
  void add_ring(std::string_view text);
  void add_way(std::string_view text);

  std::set<std::string> plugins_;   // that were loaded
  std::set<std::string> tuners_;    // plug-ins that choose for NCCL
  std::set<std::string> networks_;  // that communicators use
  // The transports of connections, up to the first number: NET/Lockstep.
  std::set<std::string> ways_;
  std::uint32_t channels_ = 0;  // the most of any communicator
  bool tells_ring_ = false;
  bool tells_way_ = false;
  std::set<std::string> wrong_;  // lines that differ from what was pinned
  std::string last_warning_;
};

}  // namespace lockstep::properties
