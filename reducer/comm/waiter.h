// A worker of a process group shows here how far the group has come, and which peer the worker
// waits for. The group's watchdog reads both.
//
// Threads: any thread notes a step; the worker writes its Waiter, and the watchdog reads it.
#pragma once

#include <cstdint>

#include "reducer/base/status.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Progress counts the steps of a group's operations, and knows when the latest one was.
class Progress {
 public:
  void note() {
    steps_.fetch_add(1, std::memory_order_relaxed);
    latest_.store(platform::now().count(), std::memory_order_relaxed);
  }
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  platform::Duration latest() const {
    return platform::Duration(latest_.load(std::memory_order_relaxed));
  }

 private:
  platform::Atomic<std::uint64_t> steps_{0};
  platform::Atomic<platform::Duration::rep> latest_{0};
};

// Waiter describes the one wait of a worker at a time.
struct Waiter {
  enum class Phase : std::uint8_t { kAgreement, kPayload };
  Progress* progress = nullptr;       // The progress of the group; each wait that ends is a step.
  platform::Atomic<int> peer{kNone};  // The peer that the latest wait depends on.
  platform::Atomic<Phase> phase{Phase::kAgreement};
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
