#include "reducer/torch/pass_sink.h"

#include <torch/csrc/autograd/graph_task.h>

namespace lockstep::torch_adapter {

bool GraphWalk::find_parameters(const ::torch::autograd::Node& from, std::vector<Node*>& found) {
  visited_.clear();
  pending_.assign(1, &from);
  bool runs_backward = false;
  while (!pending_.empty()) {
    const ::torch::autograd::Node* const node = pending_.back();
    pending_.pop_back();
    if (const auto known = parameter_of_.find(node); known != parameter_of_.end()) {
      found.push_back(known->second);
      continue;
    }
    runs_backward = runs_backward || is_python_function(*node);
    for (const ::torch::autograd::Edge& edge : node->next_edges())
      if (edge.function && visited_.insert(edge.function.get()).second)
        pending_.push_back(edge.function.get());
  }
  return runs_backward;
}

void GraphWalk::all_parameters(std::vector<Node*>& found) const {
  for (const auto& [accumulator, parameter] : parameter_of_) found.push_back(parameter);
}

bool TorchGraph::find_parameters(std::vector<Node*>& found) const {
  if (start_ != nullptr) return walk_.find_parameters(*start_, found);
  walk_.all_parameters(found);
  return false;
}

// The reducer's node goes first: whoever asks it what it leads to walks the edges of this one.
PassSink::~PassSink() {
  pass_output_.reset();
  owner_->sink_died(*this);
}

void LiveSinks::add(PassSink& sink) {
  const platform::MutexLock lock(mutex_);
  sinks_.insert(&sink);
}

void LiveSinks::remove(PassSink& sink) {
  const platform::MutexLock lock(mutex_);
  sinks_.erase(&sink);
}

PassSink* LiveSinks::in_running_graph() {
  const platform::MutexLock lock(mutex_);
  if (sinks_.empty()) return nullptr;
  const auto* const nodes = ::torch::autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr) return nullptr;
  for (PassSink* const sink : sinks_)
    if (nodes->count(sink) != 0) return sink;
  return nullptr;
}

}  // namespace lockstep::torch_adapter
