// GraphBuilder: creates the nodes of a program's graph (reference/job.h) for our autograd
// engine.
//
// Threads: one builder per rank. The training thread calls build(), as does a checkpoint's node
// while its backward runs.
#pragma once

#include <cstdint>
#include <vector>

#include "properties/observe/environment.h"
#include "properties/observe/tensor_memory.h"
#include "reducer/autograd/engine.h"
#include "reducer/autograd/parameter.h"
#include "reference/job.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class GraphBuilder {
 public:
  // `parameters` has one entry per parameter of the program; shared parameters are the same object.
  GraphBuilder(const reference::Program& program, RankEnvironment& environment, Engine& engine,
               Device& scalars, const std::vector<Ref<Parameter>>& parameters)
      : program_(program),
        environment_(environment),
        engine_(engine),
        scalars_(scalars),
        parameters_(parameters),
        memory_of_(memory_orders(program)) {}

  void begin_step(std::uint32_t step_key) {
    memory_.settle();
    step_key_ = step_key;
  }

  // Returns one edge per element of `outputs`.
  std::vector<Edge> build(const std::vector<reference::Node>& nodes,
                          const std::vector<reference::Input>& outputs) {
    return build(nodes, outputs, step_key_);
  }

  // Creates a scalar; the gradients of nodes are scalars.
  Result<Tensor> scalar(double value);

 private:
  friend class ProgramNode;
  // A checkpoint builds its body with the key of the step that it was built in itself.
  std::vector<Edge> build(const std::vector<reference::Node>& nodes,
                          const std::vector<reference::Input>& outputs, std::uint32_t step_key);
  int worker_of(const reference::Node& record) const;
  friend class UseNode;
  using Positions = std::vector<std::uint32_t>;  // the position in memory, by row-major index
  static std::vector<Positions> memory_orders(const reference::Program& program);

  const reference::Program& program_;
  RankEnvironment& environment_;
  Engine& engine_;
  Device& scalars_;  // the host's
  const std::vector<Ref<Parameter>>& parameters_;
  const std::vector<Positions> memory_of_;  // by parameter; empty for the row-major order
  std::uint32_t step_key_ = 0;
  TensorMemory memory_;
};

DType dtype_of(reference::DType dtype);
Shape shape_of(const std::vector<std::uint32_t>& sizes, bool column_major);
Shape shape_of(const reference::Parameter& parameter);
// Returns a shape of the same sizes, whose dimensions lie in memory in the same order, with gaps:
// one element is left out behind each run of the innermost dimension; with one dimension, behind
// each element.
Shape with_gaps(const Shape& dense);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
