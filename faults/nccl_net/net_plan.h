// NetPlan: the faults of one run over NCCL's net plug-in, in shared memory (lockstep_net.h), and
// their results.
//
// A runner creates the plan with create(), starts its ranks with the plan's name in
// LOCKSTEP_NET_PLAN, and afterwards calls fired() and unfired(). A fault that never fired proves
// nothing, and the reason says whether the plan was wrong or the run ended early. The plug-in in
// each rank opens the plan with attach().
//
// Threads: any, after construction; counters are atomic across processes. Ownership: the plan that
// create() returned removes the name when it is destroyed; processes that attached retain the
// memory.
// Failure: kInvalidArgument for an invalid name or fault, or for memory that does not hold a plan
// of this version; kTransport if a system call fails. A failed call leaves nothing behind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "faults/nccl_net/lockstep_net.h"
#include "reducer/base/status.h"

namespace lockstep::faults::net {

enum class NetKind : std::int32_t {
  kDelay = LOCKSTEP_NET_DELAY,
  kBackPressure = LOCKSTEP_NET_BACK_PRESSURE,
  kStall = LOCKSTEP_NET_STALL,
  kError = LOCKSTEP_NET_ERROR,
  kRefuse = LOCKSTEP_NET_REFUSE,
  kClose = LOCKSTEP_NET_CLOSE,
  kFlip = LOCKSTEP_NET_FLIP,
  kSwap = LOCKSTEP_NET_SWAP,
  kShort = LOCKSTEP_NET_SHORT,
};
constexpr int kNetKinds = 9;
const char* name_of(NetKind kind);

enum class End : std::int32_t {
  kSender = LOCKSTEP_NET_SENDER,
  kReceiver = LOCKSTEP_NET_RECEIVER,
};

// lockstep_net_fault documents each field.
struct NetFault {
  NetKind kind = NetKind::kDelay;
  int rank = LOCKSTEP_NET_ANY;
  int peer = LOCKSTEP_NET_ANY;
  End end = End::kSender;
  int connection = LOCKSTEP_NET_ANY;
  std::int64_t message = 0;
  std::int64_t messages = 1;
  std::int64_t amount = 0;
  bool waits = false;  // in force only between arm() and disarm()

  bool concerns(std::int64_t number) const {
    return number >= message && number - message < messages;
  }
};

// Returns for example "flip, rank 0 -> 2, connection 0, message 5".
std::string to_string(const NetFault& fault);

// Returns an error if the fault is invalid.
Status check(const NetFault& fault);

class NetPlan {
 public:
  // `name` begins with a slash and has no other. It must not exist yet.
  static Result<NetPlan> create(const std::string& name, const std::vector<NetFault>& faults);
  static Result<NetPlan> attach(const std::string& name);
  // Removes the plan of a process that was killed before it could remove it. Does nothing if there
  // is none.
  static void remove(const std::string& name);
  ~NetPlan();
  NetPlan(NetPlan&& other) noexcept;
  NetPlan& operator=(NetPlan&&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<NetFault>& faults() const { return faults_; }

  // For faults that wait, from any process that has the plan. A disarmed fault still acts on
  // messages that were posted before.
  void arm(std::size_t fault);
  void disarm(std::size_t fault);
  bool is_armed(std::size_t fault) const;

  std::uint64_t attached() const;
  std::uint64_t fired(std::size_t fault) const;
  // Returns one sentence for each fault that never fired: which one, and how far it got.
  std::vector<std::string> unfired() const;

  // These are for the plug-in. `seen` is the number of messages that were posted on one connection.
  void count_attached();
  void count_connection(std::size_t fault);
  void count_seen(std::size_t fault, std::uint64_t seen);
  void count_fired(std::size_t fault);
  void count_idle(std::size_t fault);

 private:
  NetPlan(std::string name, lockstep_net_plan* memory, bool is_owner);
  Status copy_faults();

  std::string name_;
  lockstep_net_plan* memory_;  // mapped; null after a move
  bool is_owner_;
  std::vector<NetFault> faults_;
};

}  // namespace lockstep::faults::net
