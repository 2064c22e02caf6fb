// NcclLog: what NCCL's own log (NCCL_DEBUG=INFO, subsystems INIT, NET and TUNING) says of how it
// ran, so that a run in which it chose another way than the one that was pinned is noticed: it may
// take another network in silence, and other algorithms add in another order.
//
// Lines are those of NCCL 2.22 to 2.30; the sources of their forms are in nccl_log.cc. Others are
// passed over. Pure; nothing fails: what cannot be read proves nothing.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "reducer/base/status.h"

namespace lockstep::properties {

class NcclLog {
 public:
  // Whole lines, as they come.
  void add(std::string_view text);

  // Forgets all but the plug-ins, which NCCL loads once a process: what comes next has to prove the
  // next case by itself.
  void begin_case();

  // Ok when all that was logged of the case is as pinned: the network and, if that is a plug-in,
  // that it was loaded; one channel, the ring in the order of ranks, Ring and Simple, no connection
  // past the network. `has_run`: at least one communicator was made. `has_led`: one of several
  // ranks, of which this was the first, which logs the ring. `has_summed`: that one has run
  // collectives, whose way the first rank alone logs.
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
  std::set<std::string> networks_;  // that communicators use
  std::set<std::string> ways_;      // of connections, up to the first number: NET/Lockstep
  std::uint32_t channels_ = 0;      // the most of any communicator
  bool tells_ring_ = false;
  bool tells_way_ = false;
  std::set<std::string> wrong_;  // lines that say what was not pinned
  std::string last_warning_;
};

}  // namespace lockstep::properties
