// LinkFaults: the faults of a plan that sit at one end of one connection.
//
// Threads: one at a time, as its connection. Without a plan it costs nothing.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "faults/nccl_net/net_plan.h"

namespace lockstep::faults::net {

// Which end of which connection.
struct Link {
  int rank = -1;  // ours; -1 where nobody said
  int peer = -1;
  End end = End::kSender;
  int connection = 0;
};
std::string to_string(const Link& link);  // "rank 0 -> 2 (connection 1)"

class LinkFaults {
 public:
  LinkFaults(std::shared_ptr<NetPlan> plan, const Link& link);

  // The first fault of this kind for that message, or null.
  const NetFault* find(NetKind kind, std::int64_t message) const;

  // Of the next message, before it is asked about: `messages` is its number and one.
  void count_posted(std::int64_t messages);
  void count_fired(const NetFault& fault);
  void count_idle(const NetFault& fault);

 private:
  struct Entry {
    std::size_t index;  // in the plan
    NetFault fault;     // of one that waits, once it was armed, `message` is the connection's
    std::int64_t armed_at = 0;  // of those: the messages before it was armed; kNever
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
