// RecomputeNode is a node of a checkpoint around the whole model: see reference::Recompute. Its
// backward runs the forward once more, and a backward of its own.
//
// Threads: as Node says; `run` is called on the thread that executes the node.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "reducer/autograd/engine.h"
#include "reducer/autograd/node.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class RecomputeNode final : public Node {
 public:
  using Run = std::function<Status(const BackwardContext&)>;
  RecomputeNode(Engine& engine, std::vector<Edge> edges, Run run)
      : Node(engine.next_sequence(), 1, 0), run_(std::move(run)) {
    edges_ = std::move(edges);
    runs_backward_ = true;
  }
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext& context) override {
    std::fill(outgoing.begin(), outgoing.end(), incoming[0]);
    return run_(context);
  }

 private:
  const Run run_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
