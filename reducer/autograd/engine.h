// Engine: runs the backward graph (contract, clauses E). One engine per rank.
//
// Order: nodes whose gradients have all arrived wait in a ready queue; accumulators (Parameter)
// come first, then the node created last. Between accumulators, and only there, the tie is broken
// by `tie_seed`, so that ranks can be given different hook orders. What a node gets from several
// senders is added in descending creation order of the senders, folded from the left, whatever
// order it arrived in. Threads: nodes with worker 0 run on the thread that calls backward; those of
// worker k >= 1 on the engine's k-th thread. backward() may be called from inside a node
// (checkpointing): give it the node's context. Different threads may call backward at once on
// graphs that share nothing. Failure: the first error is kept, nodes not yet run are skipped, and
// the engine can be used again. An exception of a node becomes kUserFailure. No exception leaves
// backward(). Waiting: backward() returns when its graph is done; a node that never returns keeps
// it for ever, and so a wait inside a node needs a deadline of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "reducer/autograd/node.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NodeMap;

// Callbacks that want to run at the end of the outermost backward.
class BackwardEnd {
 public:
  virtual ~BackwardEnd() = default;
  virtual Status backward_succeeded() = 0;             // after its last node
  virtual Status backward_failed(Status failure) = 0;  // what it returns becomes the call's result
};

class Engine {
 public:
  // `workers` threads besides the callers'. Node::worker() must not be above it.
  explicit Engine(int workers, std::uint64_t tie_seed = 0);
  ~Engine();  // no backward may be running

  // For the constructors of nodes: a number higher than all before.
  std::uint64_t next_sequence() { return next_sequence_.fetch_add(1, std::memory_order_relaxed); }

  // Runs the graph behind `roots` with `gradients` (as many; undefined ones are passed on as
  // undefined). Without `retain_graph` the nodes that ran are released, and a second backward
  // through them is an error (kGraphFreed).
  Status backward(std::span<const Edge> roots, std::span<const Tensor> gradients,
                  bool retain_graph);

  // The same from inside a node, one with Node::runs_backward_ set. It is finished when it returns;
  // its callbacks are its own.
  Status backward_nested(const BackwardContext& outer, std::span<const Edge> roots,
                         std::span<const Tensor> gradients, bool retain_graph);

 private:
  friend class GraphTask;
  struct Ready;
  struct Impl;
  Status run(const BackwardContext* outer, std::span<const Edge> roots,
             std::span<const Tensor> gradients, bool retain_graph);
  Status discover(GraphTask& task, std::span<const Edge> roots, std::span<const Tensor> gradients);
  Status announce(GraphTask& task);
  void drive(GraphTask& task, int worker, platform::MutexLock& lock);
  Status finish(GraphTask& task, Status status);
  void work(int worker);
  bool next_ready(GraphTask* task, int worker, Ready& ready);
  void execute(const Ready& ready, int worker, platform::MutexLock& lock);
  void run_node(const Ready& ready, int worker, platform::MutexLock& lock);
  void deliver(GraphTask& task, Node& sender, std::span<Tensor> outgoing, int worker);
  void push_ready(GraphTask& task, std::uint32_t index, int by);
  void note_done(GraphTask& task, int by);
  void wake_driver(GraphTask& task, int by);

  platform::Atomic<std::uint64_t> next_sequence_{1};
  const std::uint64_t tie_seed_;
  std::unique_ptr<Impl> impl_;
};

// One call of backward in progress.
class GraphTask {
 public:
  ~GraphTask();
  // The outermost call that this one is nested in; itself if it is not.
  GraphTask& outermost() { return *outermost_; }
  // Registers an end-of-backward callback of this call. FIFO; the same one only once. For
  // BackwardObserver::backward_begins.
  void at_end(BackwardEnd* callback);

 private:
  friend class Engine;
  struct State;
  GraphTask();
  GraphTask* outermost_ = nullptr;
  std::unique_ptr<State> state_;
};

// Walks graphs for the parameters that can be reached from some nodes. Keeps its memory from one
// walk to the next.
class ParameterSearch {
 public:
  ParameterSearch();
  ~ParameterSearch();
  // Each reachable Parameter once. Valid until the next call.
  std::span<Node* const> reachable_from(std::span<Node* const> roots);
  // Whether the last call met a node that runs a backward of its own: it may reach any parameter.
  bool met_nested_backward() const { return met_nested_backward_; }

 private:
  std::unique_ptr<NodeMap> visited_;
  std::vector<Node*> pending_;
  std::vector<Node*> found_;
  bool met_nested_backward_ = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
