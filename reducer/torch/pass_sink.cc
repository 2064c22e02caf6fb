#include "reducer/torch/pass_sink.h"

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

}  // namespace lockstep::torch_adapter
