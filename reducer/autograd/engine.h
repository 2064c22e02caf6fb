// Engine runs the backward graph (contract, clauses E). Each rank has one engine.
//
// Order: nodes whose gradients have all arrived wait in a ready queue. Accumulators (Parameter)
// come first, and then the node that was created last. Among accumulators, and only there,
// `tie_seed` breaks the tie, so that ranks can be given different hook orders. The engine adds the
// gradients that a node receives from several senders from left to right, in descending creation
// order of the senders, whatever order they arrived in.
// Threads: nodes with worker 0 run on the thread that calls backward, and those of worker k >= 1 on
// the engine's k-th thread. backward() may be called from inside a node (checkpointing): pass the
// node's context to backward_nested(). Code that a node runs and that has no context, such as a
// communication hook, may call backward(): on a thread of the engine the call runs that thread's
// nodes itself, and goes first. Different threads may call backward at once on graphs that share
// nothing but parameters.
// Failure: the engine keeps the first error and skips nodes that have not run; it can be used again
// afterwards. An exception of a node becomes kUserFailure. No exception leaves backward().
// Waiting: backward() returns when its graph is done. A node that never returns blocks it for ever,
// so a wait inside a node needs a deadline of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "reducer/autograd/graph_task.h"
#include "reducer/autograd/node.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NodeMap;

class Engine {
 public:
  // Makes an engine with `workers` threads besides the callers'. No Node::worker() may be above
  // `workers`.
  explicit Engine(int workers, std::uint64_t tie_seed = 0);
  ~Engine();  // No backward may be running.

  // The numbers of the engine's nodes, and the next one of them.
  NodeNumbers& numbers() { return numbers_; }
  std::uint64_t next_sequence() { return numbers_.next(); }

  // Runs the graph behind `roots` with as many `gradients`; undefined ones are passed on as
  // undefined. Without `retain_graph` the nodes that ran are released, and a second backward
  // through them is an error (kGraphFreed).
  Status backward(std::span<const Edge> roots, std::span<const Tensor> gradients,
                  bool retain_graph);

  // Runs a backward from inside a node that has Node::runs_backward_ set. The nested backward is
  // complete when the call returns, and has end-of-backward callbacks of its own.
  Status backward_nested(const BackwardContext& outer, std::span<const Edge> roots,
                         std::span<const Tensor> gradients, bool retain_graph);

 private:
  struct Ready;
  struct Task;
  struct Impl;
  Status run(const BackwardContext* outer, std::span<const Edge> roots,
             std::span<const Tensor> gradients, bool retain_graph);
  Status discover(Task& task, std::span<const Edge> roots, std::span<const Tensor> gradients);
  Status announce(Task& task);
  void drive(Task& task, int worker) LOCKSTEP_REQUIRES(mutex_);
  Status finish(Task& task, Status status);
  void work(int worker);
  bool next_ready(Task* task, int worker, Ready& ready) LOCKSTEP_REQUIRES(mutex_);
  int worker_of_this_thread(std::uint32_t& depth) const LOCKSTEP_REQUIRES(mutex_);
  void execute(const Ready& ready, int worker) LOCKSTEP_REQUIRES(mutex_);
  void run_node(const Ready& ready, int worker) LOCKSTEP_REQUIRES(mutex_);
  void deliver(Task& task, Node& sender, std::span<Tensor> outgoing, int worker)
      LOCKSTEP_REQUIRES(mutex_);
  void push_ready(Task& task, std::uint32_t index, int by) LOCKSTEP_REQUIRES(mutex_);
  void note_done(Task& task, int by) LOCKSTEP_REQUIRES(mutex_);
  void wake_driver(Task& task, int by) LOCKSTEP_REQUIRES(mutex_);

  NodeNumbers numbers_;
  const std::uint64_t tie_seed_;
  // Guards the ready queues, and all of a GraphTask's state while its backward runs.
  platform::Mutex mutex_{"engine"};
  std::unique_ptr<Impl> impl_;
};

// Walks graphs to find the parameters that can be reached from some nodes. It reuses its memory
// from one walk to the next.
class ParameterSearch {
 public:
  ParameterSearch();
  ~ParameterSearch();
  // Returns each reachable Parameter once, also those behind a ForeignGraph. The result is valid
  // until the next call.
  std::span<Node* const> reachable_from(std::span<Node* const> roots);
  // Whether the last call met a node that runs a backward of its own, and so may reach any
  // parameter.
  bool met_nested_backward() const { return met_nested_backward_; }

 private:
  std::unique_ptr<NodeMap> visited_;
  std::vector<Node*> pending_;
  std::vector<Node*> found_;
  std::vector<Node*> behind_;  // What a foreign graph leads to.
  bool met_nested_backward_ = false;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
