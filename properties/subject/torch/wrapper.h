// Wrapper: what the Python class DistributedDataParallel does around c10d::Reducer, which is the
// reducer under test: how buckets are first laid out, what happens at every forward, the identity
// function that outputs go through when unused parameters are searched, no_sync.
//
// Threads: one. Failure: exceptions, those of libtorch.
#pragma once

#include <c10d/ProcessGroupGloo.hpp>
#include <c10d/logger.hpp>
#include <c10d/reducer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "properties/lane/observation.h"
#include "reference/program.h"

namespace lockstep::torch_subject {

// ProcessGroupGloo on the loopback interface, that writes down which collectives it starts; before
// each it calls `at_collective`, from the thread that starts it.
class RecordingGroup final : public c10d::ProcessGroupGloo {
 public:
  RecordingGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 std::chrono::milliseconds timeout, std::function<void()> at_collective);

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;

  // Since the last call.
  std::vector<properties::ObservedCollective> take();

 private:
  void note(properties::ObservedCollective::Op op, const at::Tensor& tensor);

  const std::function<void()> at_collective_;
  std::vector<properties::ObservedCollective> started_;
  std::int64_t sequence_ = 0;
};

class Wrapper {
 public:
  // `parameters`: those that are reduced, each once, and which of them have sparse gradients. A
  // hook of the user's own calls `visit_hook` twice: before its sum begins, and on a thread of the
  // group's when that is there. It may throw.
  Wrapper(std::vector<at::Tensor> parameters, std::vector<bool> is_sparse,
          const reference::Options& options, const c10::intrusive_ptr<RecordingGroup>& group,
          std::function<void()> visit_hook);

  // A forward with gradients begins; not synced: under no_sync.
  void begin_forward(bool is_synced);
  // Takes what the module gave, and gives what the user gets.
  std::vector<at::Tensor> end_forward(bool is_synced, std::vector<at::Tensor> outputs);

 private:
  const bool is_dynamic_;
  const bool is_static_;
  int synced_forwards_ = 0;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // goes first
};

}  // namespace lockstep::torch_subject
