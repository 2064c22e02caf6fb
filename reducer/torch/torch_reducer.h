// TorchReducer reduces the gradients of a torch.nn.Module by Lockstep's Reducer. It adapts
// PyTorch's engine to the seam of reducer/autograd/foreign_graph.h; everything that a reducer
// decides is decided there. lockstep.torch.DistributedDataParallel (lockstep/torch) calls it.
//
// Threads: the thread that trains, without Python's global lock. Hooks run on the threads of
// PyTorch's engine, also without it. Nothing here takes that lock while it holds one of its own.
// Ownership: it shares parameters, buffers and group. Outputs of a synced forward keep it.
// Order: as Reducer says; a pass begins when a backward comes to one of its outputs, or to a
// parameter if the graph of the backward has such an output.
// Failure: exceptions of errors.h. A backward that fails in PyTorch is told to the peers.
// close() within a backward takes effect at the end of the backward.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reducer/autograd/graph_task.h"
#include "reducer/reducer.h"
#include "reducer/torch/leaf.h"
#include "reducer/torch/pass_sink.h"
#include "reducer/torch/sent_tensors.h"

namespace lockstep::torch_adapter {

// A group of ranks, with the store by which they have met.
struct Group {
  static std::shared_ptr<Group> connect(std::shared_ptr<Store> store, int rank, int size,
                                        platform::Duration timeout, const std::string& address,
                                        bool share_memory);
  std::shared_ptr<ProcessGroup> group;
  std::string why_no_shared_memory;  // Empty if the ranks share memory.
  std::shared_ptr<Store> store;
  int generation = 0;  // The number of reducers that have used it.

  Membership next_membership();
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool has_sparse_gradients = false;
};

// A backward of PyTorch, as the reducer sees it.
class TorchTask final : public GraphTask {
 public:
  void at_end(BackwardEnd* callback) override { ends_.add(callback); }
  Status finish(Status status) {
    status = ends_.run(std::move(status));
    ends_.clear();
    return status;
  }

 private:
  BackwardEnds ends_;
};

class TorchReducer final : public SinkOwner,
                           public AccumulationObserver,
                           public std::enable_shared_from_this<TorchReducer> {
 public:
  // A collective operation. `options` has what does not concern tensors; the rest is added here.
  // All ranks take the buffers of rank 0 and, with `sends_parameters`, its parameters.
  static std::shared_ptr<TorchReducer> create(const std::vector<NamedTensor>& parameters,
                                              const std::vector<NamedTensor>& buffers,
                                              bool sends_parameters, ReducerOptions options,
                                              Group& group);
  ~TorchReducer() override;

  // Before each forward with gradients. `buffers` are those of the module now. With
  // `sends_buffers_again` they are also sent where this sync window has sent some already.
  void begin_forward(std::vector<at::Tensor> buffers, bool is_synced, bool sends_buffers_again);
  // Whether begin_forward() with these arguments sends buffers.
  bool sends_buffers(bool sends_buffers_again) const;
  // After a synced forward: returns the outputs to hand on. Without any, the next backward is taken
  // for the pass's.
  std::vector<at::Tensor> arm(const std::vector<at::Tensor>& outputs);

  void begin_join(const JoinOptions& options);
  void end_join();
  // Reducer::shadow_forward(): what a rank without inputs does for a forward of the others.
  void shadow_forward(bool is_synced, bool with_buffers);
  void reset(Group& group);
  // Ends the group. Any thread may call it, and ask whether this is inside of a backward or of a
  // collective operation, while nobody closes or resets this.
  void abort(const std::string& why);
  bool is_busy() const { return busy_ != 0 || is_in_backward(); }
  // `why` is what later calls raise.
  void close(const std::string& why = "it was closed");
  // Closes whoever reduces this parameter, as another wrapper is about to.
  static bool take_over(const at::Tensor& variable);

  void check_complete();
  bool is_rebuilt() const { return is_rebuilt_; }
  // `call` runs on the thread that trains, at the end of each backward that completes a pass, when
  // the gradients hold its results. What it raises, the backward raises.
  void when_complete(std::function<void()> call) { after_pass_.call = std::move(call); }
  // In dynamic mode: whether the ranks have used the same parameters in all passes so far.
  bool is_graph_static() const { return after_pass_.is_static; }
  const Reducer& reducer() const;  // Raises where it is closed.

  void backward_reached(PassSink& sink) override;
  void sink_died(PassSink& sink) override;
  void accumulation_begins(Leaf& leaf) override;
  void accumulation_ended(Leaf& leaf, bool has_arrived) override;

 private:
  class End;
  enum class State : std::uint8_t { kIdle, kInBackward, kClosesAfterBackward };

  struct Mode {
    bool is_dynamic = false;
    bool has_views = false;
    // Whether a pass must know every gradient when it begins: unused ones are kept, and views
    // moved.
    bool takes_all = false;
    bool rebuilds = true;
  };
  struct Tasks {
    TorchTask of_pass;
    TorchTask local;  // That of backwards which belong to no pass.
  };
  // What happens when a pass is complete.
  struct AfterPass {
    std::function<void()> call;
    std::int64_t last = kNone;        // The pass that was complete last.
    std::vector<std::int32_t> usage;  // In dynamic mode: its usage map.
    bool is_static = true;
  };

  TorchReducer() = default;
  Reducer& open_reducer();
  void add_parameters(const std::vector<NamedTensor>& parameters, bool sends_parameters);
  void begin_backward(lockstep::Node& pass_output);
  void end_backward(Status status);
  [[noreturn]] void fail(Status status);
  bool running_graph_accumulates() const;
  class Busy;
  bool is_in_backward() const { return state_ != State::kIdle; }
  void take_all();
  void give_all();
  void note_completed_pass();

  // Declared so that parameters, and the graphs that lead to them, outlive the reducer.
  std::vector<std::unique_ptr<Leaf>> leaves_;
  std::vector<Ref<Parameter>> parameters_;  // Of all, frozen ones included.
  SentTensors sent_;
  GraphWalk walk_;
  NodeNumbers numbers_;
  Tasks tasks_;
  LiveSinks sinks_;
  Ref<lockstep::Node> blind_;  // The pass of outputs that nobody found.
  std::unique_ptr<Reducer> reducer_;
  platform::Atomic<State> state_{State::kIdle};
  platform::Atomic<int> busy_{0};  // Calls of collective operations outside of backwards.
  bool is_rebuilt_ = false;
  Mode mode_;
  AfterPass after_pass_;
  std::string why_closed_;
};

}  // namespace lockstep::torch_adapter
