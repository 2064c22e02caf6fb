// Node and Edge: the backward graph. A node turns the gradients of its outputs into the gradients
// of its inputs; its edges say which output of which node each input came from. The graph is built
// by the forward and walked by Engine (engine.h).
//
// Threads: a graph is built by one thread; afterwards its edges do not change, and anyone may walk
// them. Ownership: edges own what they point to, so an output keeps its graph alive and nothing
// else does. However deep a graph is, letting go of it takes no stack. Order: a node's sequence
// number says when it was created; later nodes run first (clause E).
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

struct Edge {
  Ref<Node> node;  // null: no gradient is wanted here
  std::uint32_t slot = 0;
};

// Where a node runs: handed to Node::apply, and passed on to a nested backward.
struct BackwardContext {
  Engine& engine;
  GraphTask& task;
  int worker;  // of the engine, 0: the thread that called backward
};

// Something that wants to know when a backward begins whose graph contains one of its nodes. The
// reducer uses it to learn which pass a backward belongs to, before any node has run.
class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  // Called by the thread that called backward, once per observer and call; an error ends the call
  // before any node runs.
  virtual Status backward_begins(GraphTask& task, std::span<Node* const> observed) = 0;
};

class Node : public RefCounted {
 public:
  enum class Kind : std::uint8_t { kFunction, kParameter };

  ~Node() override;

  // `outgoing` has one undefined tensor per edge, to be filled where there is a gradient to pass.
  // An undefined incoming gradient means that none arrived there. A user's exception is caught by
  // the engine.
  virtual Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
                       const BackwardContext& context) = 0;

  // The graph was used by a backward that does not retain it: saved tensors may go. Applying the
  // node again is an error.
  virtual void release() {}

  const std::vector<Edge>& edges() const { return edges_; }
  std::uint32_t outputs() const { return outputs_; }
  std::uint64_t sequence() const { return sequence_; }
  int worker() const { return worker_; }
  Kind kind() const { return kind_; }
  BackwardObserver* observer() const { return observer_; }
  bool runs_backward() const { return runs_backward_; }

 protected:
  // `sequence` comes from Engine::next_sequence(); `worker` is the index of the device that the
  // node computes on.
  Node(std::uint64_t sequence, std::uint32_t outputs, int worker, Kind kind = Kind::kFunction)
      : sequence_(sequence), outputs_(outputs), worker_(worker), kind_(kind) {}

  std::vector<Edge> edges_;
  BackwardObserver* observer_ = nullptr;
  // Set it in the constructor of a node whose apply() runs a nested backward, such as a checkpoint.
  // No walk over edges sees which parameters that backward reaches, so a pass that lacks some waits
  // for an output that leads to such a node; without the mark it is incomplete at once (P5).
  bool runs_backward_ = false;

 private:
  friend class Engine;
  const std::uint64_t sequence_;
  const std::uint32_t outputs_;
  const int worker_;
  const Kind kind_;
  platform::Atomic<bool> freed_{false};
  // While a graph goes: the node to go after this one, and where this one puts those it owned.
  Ref<Node> next_to_go_;
  Ref<Node>* to_go_ = nullptr;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
