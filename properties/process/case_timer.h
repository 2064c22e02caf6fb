// CaseTimer says how long a child process has run its current case, and how long it may take. It is
// in memory that the child shares with its parent: the child calls begin() and end(), and the
// parent may call running() at any time. Start and limit are one atomic number. If the parent read
// them one after the other, they could belong to two different cases.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::properties {

class CaseTimer {
 public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kLongest{(1 << 24) - 1};  // the longest limit, 4.6 hours

  struct Running {
    Milliseconds taken{0};
    Milliseconds limit{0};
    bool is_over_limit() const { return limit.count() > 0 && taken >= limit; }
  };

  // A case begins. A limit above kLongest becomes kLongest.
  void begin(Milliseconds limit) {
    const auto shortened = static_cast<std::uint64_t>(std::min(limit, kLongest).count());
    state_ = (now() << kLimitBits) | shortened;
  }
  // The case that runs has its whole limit once more.
  void begin_again() { begin(running().limit); }
  void end() { state_ = kNone; }

  // Returns the times of the case that runs; zeros if none runs.
  Running running() const {
    const std::uint64_t state = state_;
    if (state == kNone) return {};
    const auto limit = static_cast<std::int64_t>(state & ((1U << kLimitBits) - 1));
    return {Milliseconds(static_cast<std::int64_t>(now() - (state >> kLimitBits))),
            Milliseconds(limit)};
  }

 private:
  static constexpr int kLimitBits = 24;
  static constexpr std::uint64_t kNone = 0;

  static std::uint64_t now() {
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<Milliseconds>(time).count());
  }

  std::atomic<std::uint64_t> state_{kNone};
};

}  // namespace lockstep::properties
