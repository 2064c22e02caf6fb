// ForwardingGroup is another process group, for decorators that change some of what it does: it
// forwards every call.
//
// Threads, failure: as the group that it forwards to. Ownership: it shares that group.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/process_group.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class ForwardingGroup : public ProcessGroup {
 public:
  explicit ForwardingGroup(std::shared_ptr<ProcessGroup> inner) : inner_(std::move(inner)) {
    LOCKSTEP_CHECK(inner_ != nullptr);
  }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool can_reduce(DType dtype) const override { return inner_->can_reduce(dtype); }
  bool can_scale(DType dtype) const override { return inner_->can_scale(dtype); }
  bool can_reach(const Device& device) const override { return inner_->can_reach(device); }
  bool can_verify() const override { return inner_->can_verify(); }
  Status start(const Collective& collective, Work& work) override {
    return inner_->start(collective, work);
  }
  void abort(const Status& cause) override { inner_->abort(cause); }
  Status health() const override { return inner_->health(); }
  platform::Duration timeout() const override { return inner_->timeout(); }
  std::uint64_t progress() const override { return inner_->progress(); }

 private:
  const std::shared_ptr<ProcessGroup> inner_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
