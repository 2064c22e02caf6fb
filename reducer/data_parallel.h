// DataParallel is the class that users hold. It decides whether a forward is synced or local, and
// leaves everything else to Reducer (reducer.h).
//
//   auto parallel = DataParallel::create(parameters, engine, options, {group, store});
//   for (...) {
//     std::vector<Edge> outputs;
//     status = (*parallel)->forward(build_graph, outputs);  // decides whether the pass is synced
//     status = engine.backward(outputs, gradients, false);
//     // Gradients are averaged now.
//   }
//
// The forward decides whether a pass is synced, never the backward (contract, "Words"). Several
// forwards before one backward are one pass. With options.auto_sync off, no forward is synced by
// itself, and sync_gradients(outputs) decides (P13). To zero gradients, call the parameters
// themselves (Parameter::undefine_grad, fill_grad_with_zeros).
// Threads: one thread trains; see Reducer for the rest.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class DataParallel {
 public:
  // Builds the graph of one forward and appends its outputs, which are the edges that a backward
  // may start from.
  using Module = std::function<Status(std::vector<Edge>& outputs)>;

  // A collective operation: see Reducer::create. `engine` runs the backward passes and must outlive
  // this object.
  static Result<std::unique_ptr<DataParallel>> create(std::vector<Ref<Parameter>> parameters,
                                                      Engine& engine, ReducerOptions options,
                                                      Membership membership);

  // Runs `module`. With sync on, its outputs are those of a synced pass. The call also returns the
  // errors of an earlier pass (P5, P12).
  Status forward(const Module& module, std::vector<Edge>& outputs);

  // Manual sync (P13): does for forwards that have run what a synced forward does. It replaces
  // `outputs`, which must be all outputs that the backward starts from, by outputs that refer to
  // the pass. Every rank calls it after the last forward and before the backward. Several calls
  // before one backward make one pass. It returns kInvalidArgument, and changes nothing, if
  // auto_sync is on or a NoSync is alive.
  Status sync_gradients(std::vector<Edge>& outputs);

  // Runs `module` without gradients: the outputs that it appends to `outputs` are dropped, and no
  // pass is armed.
  Status forward_without_gradients(const Module& module);

  // While a NoSync is alive, forwards are local: their gradients accumulate, and the next synced
  // pass reduces the sum (P9).
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DataParallel& parallel) : parallel_(parallel), outer_(parallel.synced_) {
      parallel_.synced_ = false;
    }
    ~NoSync() { parallel_.synced_ = outer_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& parallel_;
    const bool outer_;
  };

  // Training with uneven inputs (S2): every rank calls begin_join() before its first forward, and
  // end_join() when it is out of inputs. end_join() returns when all ranks have called it. See
  // Reducer.
  Status begin_join(const JoinOptions& options = {}) { return reducer_->begin_join(options); }
  Status end_join() { return reducer_->end_join(); }
  // For callers who count forwards by themselves.
  Status shadow_forward(bool is_synced, bool with_buffers) {
    return reducer_->shadow_forward(is_synced, with_buffers);
  }

  Status check_complete() { return reducer_->check_complete(); }
  void abort(const Status& cause) { reducer_->abort(cause); }
  Status reset(Membership membership) { return reducer_->reset(std::move(membership)); }

  const Status& poisoned() const { return reducer_->poisoned(); }
  bool synced() const { return synced_ && auto_sync_; }
  const Reducer& reducer() const { return *reducer_; }
  // The flight record of this rank, and the diagnosis from the flight records of all ranks, for use
  // after a failure: see Reducer.
  FlightRecord flight_record() const { return reducer_->flight_record(); }
  Result<Diagnosis> diagnose(platform::Duration patience) const {
    return reducer_->diagnose(patience);
  }

 private:
  DataParallel(std::unique_ptr<Reducer> reducer, Engine& engine, bool auto_sync)
      : reducer_(std::move(reducer)), engine_(engine), auto_sync_(auto_sync) {}

  std::unique_ptr<Reducer> reducer_;
  Engine& engine_;
  const bool auto_sync_;
  bool synced_ = true;  // False while a NoSync is alive.
  // The outputs of the running forward. It is empty in between, and keeps its memory.
  std::vector<Edge> made_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
