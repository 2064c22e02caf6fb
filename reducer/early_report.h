// EarlyReport tells the peers of a failure of the group as soon as the group's own thread notices
// it (contract F2).
//
// A group that fails closes its connections at once. The reducer learns of that when a hook, or the
// end of the backward, next looks at its collectives, which may be seconds later where the backward
// is long. Peers that heard of nothing but the closed connections would by then suspect this rank.
//
// Threads: failed() is called by threads of the group, and own_cause() by any; the rest by the
// thread that trains. Ownership: it shares the groups and the store until it moves to others.
// Failure: without memory or a store nothing is reported; then the reducer reports, but later.
#pragma once

#include <memory>
#include <optional>

#include "reducer/base/status.h"
#include "reducer/comm/process_group.h"
#include "reducer/options.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class EarlyReport final : public WorkObserver {
 public:
  // The groups of the collectives that begin from now on; what earlier ones reported is forgotten.
  // No collective is in flight.
  void move_to(const Membership& membership);

  void failed(const Failure& failure) noexcept override;
  // Returns what was reported, if anything was. Otherwise the rank has a cause of its own: what
  // fails from now on, and a report that another thread still prepares, are not published, as they
  // would take the place of that cause.
  std::optional<Failure> take();
  // Returns why one of the reducer's groups ended, if this rank is the certain cause. A user may
  // abort one of two groups, and peers that react to that may end the other one before the user
  // does.
  std::optional<Failure> own_cause() const;

 private:
  // kPreparing: a thread writes first_. kReported: first_ is written, and stays.
  enum class State : std::uint8_t { kNothing, kPreparing, kReported, kOwnCause };

  Membership membership_;
  platform::Atomic<State> state_{State::kNothing};
  Failure first_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
