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

#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class WatchedGroup final : public ProcessGroup {
 public:
  using Look = std::function<void(const Collective&)>;
  WatchedGroup(std::shared_ptr<ProcessGroup> inner, Look look)
      : inner_(std::move(inner)), look_(std::move(look)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool can_reduce(DType dtype) const override { return inner_->can_reduce(dtype); }
  bool can_scale(DType dtype) const override { return inner_->can_scale(dtype); }
  bool can_reach(const Device& device) const override { return inner_->can_reach(device); }
  bool can_verify() const override { return inner_->can_verify(); }
  Status start(const Collective& collective, Work& work) override {
    look_(collective);
    return inner_->start(collective, work);
  }
  void abort(const Status& cause) override { inner_->abort(cause); }
  platform::Duration timeout() const override { return inner_->timeout(); }
  std::uint64_t progress() const override { return inner_->progress(); }

 private:
  const std::shared_ptr<ProcessGroup> inner_;
  const Look look_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
