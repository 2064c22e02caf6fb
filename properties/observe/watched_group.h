// WatchedGroup shows each collective to an observer just before it is started, and once more when
// it has been started, and is otherwise the process group that it wraps.
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
  WatchedGroup(std::shared_ptr<ProcessGroup> inner, Look before, Look after)
      : ForwardingGroup(std::move(inner)), before_(std::move(before)), after_(std::move(after)) {}
  Status start(const Collective& collective, Work& work) override {
    before_(collective);
    Status status = ForwardingGroup::start(collective, work);
    if (status.ok()) after_(collective);
    return status;
  }

 private:
  const Look before_;
  const Look after_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
