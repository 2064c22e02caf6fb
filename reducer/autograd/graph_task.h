// GraphTask is one call of backward in progress, as reducers see it: it has an identity, and its
// end. Lockstep's engine makes one for each call (engine.cc); an adapter to another engine makes
// its own (foreign_graph.h).
//
// Threads: the thread that calls backward; what an engine runs on other threads may ask for
// outermost().
// Order: the callbacks of a call run first in, first out, after its last node.
// Failure: a callback decides what the call returns.
#pragma once

#include <vector>

#include "reducer/base/build_namespace.h"
#include "reducer/base/status.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// A callback that runs at the end of a backward.
class BackwardEnd {
 public:
  virtual ~BackwardEnd() = default;
  virtual Status backward_succeeded() = 0;  // Called after the last node of the backward.
  // What it returns becomes the result of the backward call.
  virtual Status backward_failed(Status failure) = 0;
};

class GraphTask {
 public:
  GraphTask() = default;
  virtual ~GraphTask() = default;
  GraphTask(const GraphTask&) = delete;
  GraphTask& operator=(const GraphTask&) = delete;

  // The outermost call that this one is nested in, or this one itself.
  GraphTask& outermost() { return *outermost_; }
  // Registers an end-of-backward callback of this call, each only once.
  virtual void at_end(BackwardEnd* callback) = 0;

 protected:
  // `outer` is the call from inside which this one was made; null for none.
  void be_nested_in(GraphTask* outer) { outermost_ = outer == nullptr ? this : outer->outermost_; }

 private:
  GraphTask* outermost_ = this;
};

// The callbacks of one call, for those who implement GraphTask.
class BackwardEnds {
 public:
  void add(BackwardEnd* callback);
  // Calls each with the status of the backward, which the one before may have changed, and returns
  // the last status. A refused allocation is a failure like any other.
  Status run(Status status);
  void clear() { callbacks_.clear(); }
  bool empty() const { return callbacks_.empty(); }

 private:
  std::vector<BackwardEnd*> callbacks_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
