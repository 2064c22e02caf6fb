// DataParallel: what users hold. It makes a forward synced or local, and leaves the rest to Reducer
// (reducer.h).
//
//   auto parallel = DataParallel::create(parameters, engine, options, {group, store});
//   for (...) {
//     std::vector<Edge> outputs;
//     status = (*parallel)->forward(build_graph, outputs);  // decides whether the pass is synced
//     status = engine.backward(outputs, gradients, false);
//     // Gradients are averaged now.
//   }
//
// Whether a pass is synced is decided by its forward, never by its backward (contract, "Words").
// With several forwards before one backward, they are one pass. With options.auto_sync off, no
// forward is synced by itself, and sync_gradients(outputs) decides (P13). Gradients are zeroed on
// the parameters themselves (Parameter::undefine_grad, fill_grad_with_zeros). Threads: one thread
// trains; see Reducer for the rest.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "reducer/reducer.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class DataParallel {
 public:
  // Builds the graph of one forward and appends its outputs: the edges that a backward may start
  // from.
  using Module = std::function<Status(std::vector<Edge>& outputs)>;

  // Collective: see Reducer::create. `engine` runs the backward passes, and must outlive this
  // object.
  static Result<std::unique_ptr<DataParallel>> create(std::vector<Ref<Parameter>> parameters,
                                                      Engine& engine, ReducerOptions options,
                                                      Membership membership);

  // Runs `module`. With sync on, its outputs are those of a synced pass. Errors of an earlier pass
  // come up here, too (P5, P12).
  Status forward(const Module& module, std::vector<Edge>& outputs);

  // Manual sync (P13): what a synced forward does, for forwards that have run. Replaces `outputs`,
  // all that the backward is to start from, by ones that know of the pass. Called by every rank,
  // once the last forward has run and before its backward; several calls before one backward are
  // one pass. kInvalidArgument, and nothing changed, with auto_sync on, or under a NoSync.
  Status sync_gradients(std::vector<Edge>& outputs);

  // Runs `module` without gradients: what it appends to `outputs` is dropped, and nothing is armed.
  Status forward_without_gradients(const Module& module);

  // While one lives, forwards are local: their gradients accumulate, and the next synced pass
  // reduces the sum (P9).
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

  // Ranks with uneven inputs (S2): every rank calls begin_join before its first forward, and
  // end_join when it is out of inputs; that returns when all have. See Reducer.
  Status begin_join(const JoinOptions& options = {}) { return reducer_->begin_join(options); }
  Status end_join() { return reducer_->end_join(); }

  Status check_complete() { return reducer_->check_complete(); }
  void abort(const Status& cause) { reducer_->abort(cause); }
  Status reset(Membership membership) { return reducer_->reset(std::move(membership)); }

  const Status& poisoned() const { return reducer_->poisoned(); }
  bool synced() const { return synced_ && auto_sync_; }
  const Reducer& reducer() const { return *reducer_; }
  // What this rank, or all of them, tell after a failure: see Reducer.
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
  bool synced_ = true;      // no NoSync lives
  std::vector<Edge> made_;  // of a forward; empty in between, for its memory
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
