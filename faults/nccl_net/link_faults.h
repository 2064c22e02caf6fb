// LinkFaults: the faults of a plan for one end of one connection.
//
// Threads: one at a time, as its connection. Without a plan it costs nothing.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "faults/nccl_net/net_plan.h"

namespace lockstep::faults::net {

// Names one end of one connection.
struct Link {
  int rank = -1;  // this end's rank; -1 if it is unknown
  int peer = -1;
  End end = End::kSender;
  int connection = 0;
};
std::string to_string(const Link& link);  // "rank 0 -> 2 (connection 1)"

class LinkFaults {
 public:
  LinkFaults(std::shared_ptr<NetPlan> plan, const Link& link);

  // Returns the first fault of this kind for that message, or null.
  const NetFault* find(NetKind kind, std::int64_t message) const;

  // Counts the next message before find() is called for it. `messages` is its number plus one.
  void count_posted(std::int64_t messages);
  void count_fired(const NetFault& fault);
  void count_idle(const NetFault& fault);

 private:
  struct Entry {
    std::size_t index;  // in the plan
    // The fault. If it waits, and once it was armed, `message` counts the connection's messages.
    NetFault fault;
    // For a fault that waits: the number of messages before it was armed, or kNever.
    std::int64_t armed_at = 0;
    std::int64_t disarmed_at = kNever;
    bool concerns(std::int64_t number) const {
      return armed_at != kNever && number < disarmed_at && fault.concerns(number);
    }
  };
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  void follow(Entry& entry, std::int64_t posted);
  std::size_t index_of(const NetFault& fault) const;

  std::shared_ptr<NetPlan> plan_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::faults::net
