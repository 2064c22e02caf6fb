#include "reducer/pass.h"

#include <algorithm>
#include <new>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

void Pass::close(bool complete) {
  LOCKSTEP_CHECK(reducer_ != nullptr);
  LOCKSTEP_CHECK(!complete || state == State::kRunning);
  state = complete ? State::kComplete : State::kGivenUp;
  reducer_ = nullptr;
}

void Pass::reopen(Reducer* reducer, int rank) {
  LOCKSTEP_CHECK(reducer_ == nullptr);
  LOCKSTEP_CHECK_EQ(use_count(), std::uint32_t{1});
  LOCKSTEP_CHECK_EQ(usable_outputs(), 0);
  reducer_ = reducer;
  rank_ = rank;
  state = State::kOpen;
  number = -1;
}

int Pass::usable_outputs() {
  platform::MutexLock lock(mutex_);
  return static_cast<int>(outputs_.size());
}

void Pass::add(PassOutput* output) {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_EQ(output->place_, PassOutput::kUnlisted);
  outputs_.push_back(output);
  output->place_ = outputs_.size() - 1;
}

void Pass::remove(PassOutput* output) {
  platform::MutexLock lock(mutex_);
  const std::size_t place = std::exchange(output->place_, PassOutput::kUnlisted);
  if (place == PassOutput::kUnlisted) return;  // The output was used up before it was dropped.
  LOCKSTEP_CHECK(outputs_[place] == output);
  // A forward may have 100,000 outputs, so the removal neither searches nor shifts.
  outputs_[place] = outputs_.back();
  outputs_[place]->place_ = place;
  outputs_.pop_back();
  output->place_ = PassOutput::kUnlisted;
}

Status Pass::backward_begins(GraphTask& task, std::span<Node* const>) {
  if (reducer_ != nullptr) return reducer_->begin_pass(*this, task);
  LOCKSTEP_CHECK(state == State::kComplete || state == State::kGivenUp);
  Failure failure;
  failure.code = Code::kSecondBackward;
  failure.rank = rank_;
  failure.reported_by = rank_;
  failure.pass = number;
  failure.definite = true;
  failure.detail = state == State::kComplete
                       ? "the gradients of this pass were reduced already: run one backward from "
                         "all losses of its forwards"
                       : "this pass was given up: it failed, or its reducer was reset or destroyed";
  return failure;
}

Status Pass::backward_succeeded() {
  try {
    return reducer_ ? reducer_->end_backward() : Status();
  } catch (const std::bad_alloc&) {
    return backward_failed(out_of_memory());
  }
}

Status Pass::backward_failed(Status failure) {
  return reducer_ ? reducer_->give_up(std::move(failure)) : failure;
}

PassOutput::PassOutput(Ref<Pass> pass, std::vector<Edge> inputs, std::uint64_t sequence)
    : Node(sequence, static_cast<std::uint32_t>(inputs.size()), 0), pass_(std::move(pass)) {
  edges_ = std::move(inputs);
  observer_ = pass_.get();
  pass_->add(this);
}

PassOutput::~PassOutput() { pass_->remove(this); }

Status PassOutput::apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
                         const BackwardContext&) {
  LOCKSTEP_CHECK_EQ(incoming.size(), outgoing.size());
  std::copy(incoming.begin(), incoming.end(), outgoing.begin());
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
