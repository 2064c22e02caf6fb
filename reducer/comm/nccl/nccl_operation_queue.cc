#include "reducer/comm/nccl/nccl_operation_queue.h"

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

NcclOperation* NcclOperationQueue::push(const Collective& collective, Work& work) {
  LOCKSTEP_CHECK_LE(oldest_, end_);
  NcclOperation* const operation = operations_.push(oldest_, end_);
  if (operation == nullptr) return nullptr;
  *operation = NcclOperation();
  operation->collective = collective;
  operation->work = &work;
  operation->sequence = started();
  ++end_;
  return operation;
}

const NcclOperation* NcclOperationQueue::next() const {
  LOCKSTEP_CHECK_LE(oldest_, next_);
  LOCKSTEP_CHECK_LE(next_, end_);
  if (next_ == end_ || next_ - oldest_ >= kWindow) return nullptr;
  return &operations_.at(next_);
}

NcclOperation& NcclOperationQueue::begin_issue() {
  LOCKSTEP_CHECK(next() != nullptr);
  LOCKSTEP_CHECK(!is_issuing_);
  is_issuing_ = true;
  NcclOperation& operation = operations_.at(next_);
  LOCKSTEP_CHECK_EQ(static_cast<std::uint64_t>(operation.sequence), next_);
  ++next_;
  LOCKSTEP_CHECK(operation.stage == NcclOperation::Stage::kQueued);
  return operation;
}

void NcclOperationQueue::end_issue() {
  LOCKSTEP_CHECK(is_issuing_);
  is_issuing_ = false;
}

NcclOperation& NcclOperationQueue::oldest() {
  LOCKSTEP_CHECK(!is_empty());
  NcclOperation& operation = operations_.at(oldest_);
  LOCKSTEP_CHECK_EQ(static_cast<std::uint64_t>(operation.sequence), oldest_);
  return operation;
}

void NcclOperationQueue::pop_oldest() {
  LOCKSTEP_CHECK(!is_empty());
  ++oldest_;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
