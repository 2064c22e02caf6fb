// Node and Edge form the backward graph. A node turns the gradients of its outputs into the
// gradients of its inputs; its edges say which output of which node each input came from. The
// forward builds the graph, and Engine (engine.h) walks it.
//
// Threads: one thread builds a graph; afterwards its edges do not change, and any thread may walk
// them.
// Ownership: edges own the nodes that they point to, so an output keeps its graph alive, and
// nothing else does. The destruction of a graph does not recurse, however deep the graph is.
// Order: a node's sequence number says when it was created; later nodes run first (clause E).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reducer/base/ref.h"
#include "reducer/base/status.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class GraphTask;
class Node;
class Engine;

// Numbers nodes in the order of their creation: each number is higher than all before it.
class NodeNumbers {
 public:
  std::uint64_t next() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  platform::Atomic<std::uint64_t> next_{1};
};

struct Edge {
  Ref<Node> node;  // Null if no gradient is wanted here.
  std::uint32_t slot = 0;
};

// Where a node runs. The engine hands it to Node::apply, which passes it on to a nested backward.
struct BackwardContext {
  Engine& engine;
  GraphTask& task;
  int worker;  // The number of the engine's worker; 0 is the thread that called backward.
};

// An object that is notified when a backward begins whose graph contains one of its nodes. The
// reducer uses it to learn which pass a backward belongs to, before any node has run.
class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  // The thread that called backward calls this once per observer and backward. An error ends the
  // backward before any node runs.
  virtual Status backward_begins(GraphTask& task, std::span<Node* const> observed) = 0;
};

class Node : public RefCounted {
 public:
  enum class Kind : std::uint8_t { kFunction, kParameter, kForeignGraph };

  ~Node() override;

  // Runs the node. `outgoing` has one undefined tensor per edge, which the node sets where there is
  // a gradient to pass on. An undefined incoming gradient means that no gradient arrived there. The
  // engine catches a user's exception.
  virtual Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
                       const BackwardContext& context) = 0;

  // Called when a backward that does not retain the graph has used the node: saved tensors may be
  // freed. Applying the node again is an error.
  virtual void release() {}

  const std::vector<Edge>& edges() const { return edges_; }
  std::uint32_t outputs() const { return outputs_; }
  std::uint64_t sequence() const { return sequence_; }
  int worker() const { return worker_; }
  Kind kind() const { return kind_; }
  BackwardObserver* observer() const { return observer_; }
  bool runs_backward() const { return runs_backward_; }

 protected:
  // `sequence` comes from NodeNumbers::next(); `worker` is the index of the device that the
  // node computes on.
  Node(std::uint64_t sequence, std::uint32_t outputs, int worker, Kind kind = Kind::kFunction)
      : sequence_(sequence), outputs_(outputs), worker_(worker), kind_(kind) {}

  std::vector<Edge> edges_;
  BackwardObserver* observer_ = nullptr;
  // Set this in the constructor of a node whose apply() runs a nested backward, such as a
  // checkpoint. A walk over edges cannot see which parameters that backward reaches. So a pass that
  // lacks some parameters waits for an output that leads to such a node; without the mark the pass
  // would be incomplete at once (P5).
  bool runs_backward_ = false;

 private:
  friend class Engine;
  const std::uint64_t sequence_;
  const std::uint32_t outputs_;
  const int worker_;
  const Kind kind_;
  platform::Atomic<bool> freed_{false};
  // Used while a graph is destroyed: the next node to destroy after this one, and the list to which
  // this node adds the nodes that it owned.
  Ref<Node> next_to_go_;
  Ref<Node>* to_go_ = nullptr;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
