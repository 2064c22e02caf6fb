// Graph: what one backward call sends to the parameters, and in which order (program.h has the
// rules). It handles scalars alone; the model turns them into tensors.
// One thread; a Graph keeps its memory from call to call. Nothing fails.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/model/engine.h"
#include "reference/program.h"

namespace lockstep::properties::torch_model {

using reference::Forward;
using reference::Node;
using reference::RankPass;

struct Event {
  enum class Kind : std::uint8_t {
    kTensor,  // the tensor scalar * c of the use `node_key` is added to what the call has for it
    kHook,    // the sum goes into the gradient, and the hook fires
    kEnd,     // a nested call, of this depth, ends
  };
  Kind kind = Kind::kTensor;
  bool first = false;       // kTensor: of this call
  bool defined = false;     // kHook: there was a tensor
  std::uint32_t depth = 0;  // 0: the outermost call; a nested one adds 1
  std::uint32_t parameter = 0;
  std::uint32_t node_key = 0;
  bool requires_grad = false;  // kTensor
  std::uint32_t entries = 0;   // kTensor: of a sparse parameter
  double scalar = 0;
};

class Graph {
 public:
  // For each parameter of the program its first owner, or kNotTrained when that is frozen.
  explicit Graph(const std::vector<std::uint32_t>& owners);

  // Backward call `call` of `pass`. What it returns lives until the next call. A call that starts
  // at an output of one of the `whole_forwards`, a bit for each forward, reaches what its other
  // outputs depend on, too, without a gradient.
  const std::vector<Event>& backward(const RankPass& pass, std::uint32_t call,
                                     std::uint32_t whole_forwards = 0);
  // Sets what the outputs of forward `last` do not reach; if `is_last_alone` is not set, what those
  // of no kept forward of the pass up to it reach.
  void find_unused(const RankPass& pass, std::size_t last, bool is_last_alone,
                   std::vector<std::uint8_t>& unused);
  // Of the last call: at how many of those it started.
  std::uint32_t whole_forwards_begun() const { return whole_forwards_begun_; }

 private:
  // What arrives at the slots of one node.
  struct Arrived {
    double scalar[2] = {0, 0};
    bool defined[2] = {false, false};
    bool reached = false;
    void add(std::uint32_t slot, double s);
  };
  struct Target {               // what one call does to one parameter
    std::uint32_t pending = 0;  // uses that were not visited yet
    bool defined = false;
  };

  std::uint32_t owner_of_use(const Node& node) const;
  void find_reached(const std::vector<Node>& nodes, std::size_t base, std::uint32_t depth);
  void visit_all(const std::vector<Node>& nodes, std::size_t base, std::uint32_t depth);
  void visit_use(const Node& node, const Arrived& arrived, std::uint32_t depth);
  void run_body(const std::vector<Node>& body, double seed, std::uint32_t depth);

  std::vector<std::uint32_t> owners_;
  std::vector<Arrived> arrived_;  // nodes of all kept forwards, then of bodies being run
  std::vector<Target> targets_;   // by depth, then parameter
  std::vector<Event> events_;
  std::uint32_t whole_forwards_begun_ = 0;
};

}  // namespace lockstep::properties::torch_model
