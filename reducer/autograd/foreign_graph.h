// The seam to an autograd engine that is not Lockstep's, such as PyTorch's. An adapter to it makes
// these four things, and the reducer works on them as on those of engine.h:
//
//   - a Parameter for each of its leaves (parameter.h). Before and after the other engine adds to
//     the leaf's gradient, the adapter calls accumulation_begins() and accumulation_ended(). In
//     between and at the borders of a pass it says with set_grad() or move_grad() where the
//     gradient lies, and afterwards makes grad() the gradient of the leaf.
//   - a Storage for memory that is not Lockstep's (Storage::of_others() in tensor.h).
//   - a GraphTask for each outermost backward (graph_task.h).
//   - a ForeignGraph for each output of a forward, which Reducer::arm() takes. The adapter keeps
//     the node that arm() puts before it as long as the output lives, calls its release() when a
//     backward has used it up, and tells its observer() when a backward reaches it.
//
//   Ref<Node> graph = make_ref<MyGraph>(numbers.next(), outputs);
//   std::vector<Edge> edges{{graph, 0}};
//   status = reducer.arm(edges, numbers);            // edges[0].node is now the pass's
//   ...                                              // A backward comes to that output:
//   status = edges[0].node->observer()->backward_begins(task, {});
//   ...                                              // For each leaf that it reaches:
//   status = parameter.accumulation_begins(task);
//   parameter.move_grad(where_the_sum_lies_now);
//   status = parameter.accumulation_ended(task, true);
//   ...                                              // And when it ends:
//   status = task.finish(std::move(status));         // BackwardEnds::run()
//
// reducer/torch is such an adapter.
#pragma once

#include <vector>

#include "reducer/autograd/node.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// The graph of another engine behind outputs of a forward.
// Threads: the reducer asks on the thread that runs a backward of the pass, while it holds locks of
// its own. So an implementation calls nothing of the reducer, and takes no lock of an interpreter.
class ForeignGraph : public Node {
 public:
  // Appends the parameters that the graph leads to, each perhaps several times, and returns whether
  // it has a node that runs a backward of its own, and so may lead to any parameter.
  virtual bool find_parameters(std::vector<Node*>& found) const = 0;

  // The other engine runs the graph.
  Status apply(std::span<const Tensor>, std::span<Tensor>, const BackwardContext&) override {
    return Status(Code::kInternal, "the graph of another engine cannot run in this one");
  }

 protected:
  ForeignGraph(std::uint64_t sequence, std::uint32_t outputs)
      : Node(sequence, outputs, 0, Kind::kForeignGraph) {}
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
