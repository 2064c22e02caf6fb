#include "reducer/torch/profiled_group.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

#include <functional>
#include <memory>
#include <utility>

namespace lockstep::torch_adapter {
namespace {

// An event keeps the name by its address.
const char* event_of(Op op) {
  switch (op) {
    case Op::kAllReduceSum:
      return "gloo:all_reduce";
    case Op::kBroadcast:
      return "gloo:broadcast";
    case Op::kAllGather:
      return "gloo:all_gather";
  }
  return "gloo";
}

// The event of one collective. It observes the Work, and hands on to the observer before it.
class ProfiledWork final : public WorkObserver {
 public:
  ProfiledWork(at::StepCallbacks&& callbacks, const char* name, Work& work)
      : event_(std::make_shared<at::RecordFunction>(std::move(callbacks))) {
    event_->_setAsync();
    event_->before(name);
    end_ = at::wrapPropagateTLSState([event = event_] { event->end(); });
    inner_ = work.replace_observer(this);
  }
  void failed(const Failure& failure) noexcept override {
    if (inner_ != nullptr) inner_->failed(failure);
  }
  void ended() noexcept override {
    if (inner_ != nullptr) inner_->ended();
    end_();
    delete this;
  }
  // Nothing was started.
  void give_up(Work& work) {
    work.replace_observer(inner_);
    end_();
    delete this;
  }

 private:
  const std::shared_ptr<at::RecordFunction> event_;
  std::function<void()> end_;  // With what the profiler keeps for the thread that started it.
  WorkObserver* inner_ = nullptr;
};

}  // namespace

Status ProfiledGroup::start(const Collective& collective, Work& work) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks) return ForwardingGroup::start(collective, work);
  auto* const profiled = new ProfiledWork(std::move(*callbacks), event_of(collective.op), work);
  Status status = ForwardingGroup::start(collective, work);
  if (!status.ok()) profiled->give_up(work);
  return status;
}

}  // namespace lockstep::torch_adapter
