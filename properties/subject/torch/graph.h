// GraphBuilder: creates the nodes of a program's graph (reference/job.h) for torch's autograd
// engine. Every node sends one scalar, a double; a use also sends its parameter a tensor.
//
// Threads: one builder per rank. The training thread calls build(), as does a checkpoint's node
// while its backward runs.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/job.h"

namespace lockstep::torch_subject {

class GraphBuilder {
 public:
  // `parameters` has one tensor per parameter of the program; shared parameters are the same
  // tensor. Each node calls `visit_node` when it begins to run.
  GraphBuilder(const reference::Program& program, std::uint32_t rank,
               const std::vector<at::Tensor>& parameters, std::function<void()> visit_node);

  // Returns one variable per element of `outputs`. The constants of the uses are those of a step
  // with this key, whenever the nodes run.
  std::vector<at::Tensor> build(std::uint32_t step_key, const std::vector<reference::Node>& nodes,
                                const std::vector<reference::Input>& outputs);

  // Runs backward from `roots`, each with the gradient `seed`.
  static void backward(const std::vector<at::Tensor>& roots, double seed, bool retains_graph);

 private:
  class ProgramNode;

  const reference::Program& program_;
  const std::uint32_t rank_;
  const std::vector<at::Tensor>& parameters_;
  const std::function<void()> visit_node_;
};

// Creates a tensor of the parameter's dtype, with the parameter's own strides or row-major.
at::Tensor empty_like(const reference::Parameter& parameter, bool is_row_major);

}  // namespace lockstep::torch_subject
