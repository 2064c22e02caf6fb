// Wrapper: does what the Python class DistributedDataParallel does around c10d::Reducer, which is
// the reducer under test: it computes the first layout of the buckets, does the work at every
// forward, passes outputs through an identity function when the reducer searches for unused
// parameters, and implements no_sync.
//
// Threads: one. Failure: it throws the exceptions of libtorch.
#pragma once

#include <c10d/logger.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "properties/case/torch_options.h"
#include "properties/observe/observation.h"
#include "properties/subject/torch/interface.h"
#include "reference/program.h"

namespace lockstep::torch_subject {

// The clock of an observation.
std::uint64_t now_us();

// ProcessGroupGloo on the loopback interface. It records which collectives it starts. Before each
// it calls `at_collective`, on the thread that starts it.
class RecordingGroup final : public c10d::ProcessGroupGloo {
 public:
  // `address`: of this rank; empty: the loopback interface.
  RecordingGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 const std::string& address, std::chrono::milliseconds timeout,
                 std::function<void()> at_collective);

  // Lets this group record where a former one of the same reducer does: built-in communication
  // hooks stay with the group with which they were registered.
  void continue_record_of(const RecordingGroup& former) { record_ = former.record_; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;

  // Returns what the reducer takes. It shares this group's connections.
  c10::intrusive_ptr<c10d::ProcessGroup> process_group();

  // Returns the collectives since the last call. Gloo's work does not tell when it ended: each
  // counts as completed now.
  std::vector<properties::ObservedCollective> take();

 private:
  void note(properties::ObservedCollective::Op op, const at::Tensor& tensor);

  const c10::intrusive_ptr<c10d::Store> rendezvous_;
  const std::function<void()> at_collective_;
  struct Record {
    std::vector<properties::ObservedCollective> started;
    std::int64_t sequence = 0;
  };
  std::shared_ptr<Record> record_ = std::make_shared<Record>();
};

class Wrapper {
 public:
  // `parameters`: the parameters to reduce, each once. `is_sparse` says which of them have sparse
  // gradients. A user's communication hook calls `visit_hook` twice: before its all-reduce begins,
  // and on a thread of the group when the sum is there. It may throw.
  Wrapper(std::vector<at::Tensor> parameters, std::vector<bool> is_sparse,
          const reference::Replicated& options, const properties::TorchOptions& own_options,
          const c10::intrusive_ptr<RecordingGroup>& group, std::function<void()> visit_hook);

  // Gives the reducer another group of the same ranks, between two steps.
  void update_group(const c10::intrusive_ptr<RecordingGroup>& group);

  // Begins a forward with gradients. If it is not synced, it runs under no_sync.
  void begin_forward(bool is_synced);
  // Takes the module's outputs and returns the outputs for the user.
  std::vector<at::Tensor> end_forward(bool is_synced, std::vector<at::Tensor> outputs);

  // For passes that the user ends by hand (model/finalization.h). Before the backwards of a step:
  // lets a hook of the first parameter end the pass, if the reducer does not want it after
  // backward.
  void end_pass_in_hook();
  bool is_ended_in_hook() const { return *is_ended_in_hook_; }
  void end_pass();
  // After the backwards of a step: the hook ends nothing any more.
  void leave_hook() { *is_ended_in_hook_ = false; }

 private:
  void add_ending_hook(const at::Tensor& parameter);
  // Returns whether the outputs of a forward in static mode go through the identity function.
  bool has_static_sink() const;

  // The group of the reducer. The user's own communication hook reads it when it runs, as the
  // reducer does not tell hooks of another group.
  const std::shared_ptr<c10::intrusive_ptr<RecordingGroup>> group_;
  const bool is_dynamic_;
  const bool is_static_;
  int synced_forwards_ = 0;
  std::shared_ptr<bool> is_delay_queued_;  // static mode: a backward has queued delay_all_reduce()
  const std::shared_ptr<bool> is_ended_in_hook_ = std::make_shared<bool>(false);
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // destroyed before reducer_
};

}  // namespace lockstep::torch_subject
