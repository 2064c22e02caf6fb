// Context: the state of one initialization of the plug-in. NCCL initializes it once per
// communicator since 2.28, and before once per process. Connections share its ownership.
//
// Threads: any. The context guards `connectors` and the numbers of connections.
// Failure: the first error in the environment, the plan or the interface.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "faults/nccl_net/interface.h"
#include "faults/nccl_net/lockstep_net.h"
#include "faults/nccl_net/net_plan.h"

namespace lockstep::faults::net {

using Clock = std::chrono::steady_clock;

class Connector;

class Context {
 public:
  // Reads the environment. `log` may be null.
  static Outcome<std::shared_ptr<Context>> make(Log log);
  // Like make(), for tables whose init() must not fail. An unusable plan is ignored with a warning.
  // For any other error usable() has the reason, and every connection fails with it.
  static std::shared_ptr<Context> make_whatever_happens(Log log);
  ~Context();

  int rank() const { return rank_; }
  const Interface& interface() const { return interface_; }
  const std::shared_ptr<NetPlan>& plan() const { return plan_; }
  Clock::duration handshake_limit() const { return handshake_limit_; }
  const Outcome<bool>& usable() const { return usable_; }

  void warn(const std::string& text) const;
  void inform(const std::string& text) const;

  // Returns the number of the next connection to that peer.
  int next_connection(int peer);

  // Stores attempts to connect that NCCL will ask about again, by the number in their handle.
  std::uint64_t keep(std::unique_ptr<Connector> connector);
  Connector* find(std::uint64_t number);
  std::unique_ptr<Connector> take(std::uint64_t number);

 private:
  explicit Context(Log log);
  Outcome<bool> read_environment();
  Outcome<bool> take_plan();

  Log log_;
  int rank_ = -1;
  Interface interface_;
  std::shared_ptr<NetPlan> plan_;
  Clock::duration handshake_limit_{};
  Outcome<bool> usable_ = true;

  std::mutex mutex_;
  std::map<int, int> connections_;                                  // by peer; guarded by mutex_
  std::map<std::uint64_t, std::unique_ptr<Connector>> connectors_;  // guarded by mutex_
  std::uint64_t last_connector_ = 0;                                // guarded by mutex_
};

// The counters of the whole process, for lockstep_net_count() and lockstep_net_last_warning().
void count_listeners(int change);
void count_senders(int change);
void count_receivers(int change);
void count_rejected_peer();
void count_sent(std::size_t bytes);
lockstep_net_counts counts();
std::string last_warning();

}  // namespace lockstep::faults::net
