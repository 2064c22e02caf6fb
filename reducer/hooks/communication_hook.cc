#include "reducer/hooks/communication_hook.h"

#include "reducer/base/check.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

HookBucket::HookBucket(HookCollectives& reducer, const Position& position, Tensor flat,
                       std::vector<Tensor> views, std::vector<std::size_t> parameters)
    : reducer_(reducer),
      position_(position),
      flat_(std::move(flat)),
      views_(std::move(views)),
      parameters_(std::move(parameters)) {
  LOCKSTEP_CHECK_EQ(views_.size(), parameters_.size());
  LOCKSTEP_CHECK_GE(position.index, 0);
  LOCKSTEP_CHECK(flat_.defined());
}

void HookBucket::begin(int ranks, double factor, Reduction reduction) {
  end();
  ranks_ = ranks;
  factor_ = factor;
  reduction_ = reduction;
}

void HookBucket::end() {
  for (std::size_t i = 0; i < started_; ++i) {
    LOCKSTEP_CHECK(flights_[i]->work.done());
    flights_[i]->tensor = Tensor();
  }
  started_ = 0;
  awaited_ = 0;
  has_failed_collective_ = false;
  future_.reset();
}

Status HookBucket::all_reduce(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.shape().is_dense())
    return Status(Code::kInvalidArgument, "all_reduce takes a defined, dense tensor");
  Device& device = tensor.device();
  if (started_ == flights_.size()) flights_.push_back(std::make_unique<Flight>());
  LOCKSTEP_CHECK_LT(started_, flights_.size());
  Flight& flight = *flights_[started_];
  Collective collective;
  collective.dtype = real_of(tensor.dtype());
  collective.reduction = reduction_;
  collective.count = static_cast<std::uint64_t>(tensor.elements() * parts_of(tensor.dtype()));
  collective.data = tensor.data();
  collective.device = &device;
  collective.ready = device.record(device.current_stream());
  collective.bucket = position_.index;
  Status status = reducer_.start(collective, flight.work, flight.trace_sequence);
  has_failed_collective_ = has_failed_collective_ || !status.ok();
  LOCKSTEP_RETURN_IF_ERROR(std::move(status));
  flight.tensor = tensor;
  ++started_;
  return {};
}

Status HookBucket::wait() {
  LOCKSTEP_CHECK_LE(awaited_, started_);
  for (; awaited_ < started_; ++awaited_) {
    Flight& flight = *flights_[awaited_];
    Status status = reducer_.await(flight.work, flight.trace_sequence);
    has_failed_collective_ = has_failed_collective_ || !status.ok();
    LOCKSTEP_RETURN_IF_ERROR(std::move(status));
  }
  return {};
}

std::shared_ptr<Work> HookBucket::future() {
  if (!future_) {
    future_ = std::make_shared<Work>();
    future_->begin(kNone);
  }
  return future_;
}

bool HookBucket::is_drained(platform::Deadline deadline) {
  LOCKSTEP_CHECK_LE(awaited_, started_);
  LOCKSTEP_CHECK_LE(started_, flights_.size());
  for (std::size_t i = 0; i < started_; ++i) {
    flights_[i]->work.wait(deadline).ignore();
    if (!flights_[i]->work.done()) return false;
  }
  return true;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
