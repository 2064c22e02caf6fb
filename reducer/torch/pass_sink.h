// PassSink and TorchGraph stand for the outputs of a synced forward: PassSink in PyTorch's graph,
// TorchGraph in Lockstep's. Between them lies the reducer's own node of the pass, which PassSink
// keeps. So an output that is dropped, and a graph that a backward has used up, drop out of the
// pass as they do in Lockstep's engine.
//
//   loss -> PassSink -> the module's graph -> AccumulateGrad of each parameter
//              |
//              +-> (the reducer's node) -> TorchGraph, which walks the module's graph when asked
//
// Threads: a PassSink may die on any thread; a backward runs it on the thread that called it.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "reducer/autograd/foreign_graph.h"
#include "reducer/autograd/parameter.h"
#include "reducer/platform/platform.h"
#include "reducer/torch/torch_version.h"

namespace lockstep::torch_adapter {

// Finds a reducer's parameters in PyTorch's graphs.
class GraphWalk {
 public:
  void add(const ::torch::autograd::Node* accumulator, Parameter* parameter) {
    parameter_of_.emplace(accumulator, parameter);
  }
  const MapOfNodes<Parameter*>& parameters() const { return parameter_of_; }
  // Appends the parameters that the node leads to, each once. Returns whether the graph has a node
  // that may run a backward of its own.
  bool find_parameters(const ::torch::autograd::Node& from, std::vector<Node*>& found);
  // Appends all of them.
  void all_parameters(std::vector<Node*>& found) const;

 private:
  MapOfNodes<Parameter*> parameter_of_;
  // Reused from one walk to the next.
  NodeSet visited_;
  std::vector<const ::torch::autograd::Node*> pending_;
};

class TorchGraph final : public ForeignGraph {
 public:
  // `walk` outlives the graph's outputs: their PassSink keeps what owns it.
  TorchGraph(std::uint64_t sequence, std::uint32_t outputs, GraphWalk& walk)
      : ForeignGraph(sequence, outputs), walk_(walk) {}
  // Without a start nobody knows what the outputs are: they may lead to every parameter.
  void start_at(const ::torch::autograd::Node* start) { start_ = start; }
  bool find_parameters(std::vector<Node*>& found) const override;

 private:
  GraphWalk& walk_;
  const ::torch::autograd::Node* start_ = nullptr;
};

class PassSink;

// Whom a PassSink tells. An exception ends the backward.
class SinkOwner {
 public:
  virtual ~SinkOwner() = default;
  virtual void backward_reached(PassSink& sink) = 0;
  virtual void sink_died(PassSink& sink) = 0;
};

class PassSink final : public ::torch::autograd::Node {
 public:
  PassSink(::torch::autograd::edge_list&& edges, std::shared_ptr<SinkOwner> owner,
           Ref<lockstep::Node> pass_output)
      : Node(std::move(edges)), owner_(std::move(owner)), pass_output_(std::move(pass_output)) {}
  ~PassSink() override;
  ::torch::autograd::variable_list apply(::torch::autograd::variable_list&& gradients) override {
    owner_->backward_reached(*this);
    return std::move(gradients);
  }
  void release_variables() override { pass_output_->release(); }
  std::string name() const override { return "LockstepPassSink"; }

  lockstep::Node& pass_output() { return *pass_output_; }

 private:
  const std::shared_ptr<SinkOwner> owner_;
  Ref<lockstep::Node> pass_output_;
};

// The sinks of a reducer that exist now. Threads: any.
class LiveSinks {
 public:
  void add(PassSink& sink);
  void remove(PassSink& sink);
  // One of them that is in the graph of the backward that runs on this thread; null if none is.
  PassSink* in_running_graph();

 private:
  platform::Mutex mutex_{"torch.sinks"};
  std::unordered_set<PassSink*> sinks_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::torch_adapter
