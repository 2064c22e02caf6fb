// WatchedGroup shows each collective to an observer just before it is started, and is otherwise the
// process group that it wraps.
//
// Threads: as ProcessGroup says. The observer is called on the thread that starts the collective.
// That thread may hold locks of the reducer, so the observer must not call a function of the
// reducer that takes a lock. Several threads may call the observer at once.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "reducer/comm/forwarding_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class WatchedGroup final : public ForwardingGroup {
 public:
  using Look = std::function<void(const Collective&)>;
  WatchedGroup(std::shared_ptr<ProcessGroup> inner, Look look)
      : ForwardingGroup(std::move(inner)), look_(std::move(look)) {}
  Status start(const Collective& collective, Work& work) override {
    look_(collective);
    return ForwardingGroup::start(collective, work);
  }

 private:
  const Look look_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
