// Pass and PassOutput connect a backward to the synced forward that it belongs to (contract P1).
//
// The outputs of a synced forward go through PassOutput nodes, which hold the Pass. When a backward
// begins, the engine finds these nodes in its graph and notifies the Pass before any node runs. So
// the graph itself identifies the pass, and a forward whose outputs are gone leaves nothing behind.
// Threads: outputs may be dropped on any thread; the list of outputs has a lock of its own.
#pragma once

#include <span>
#include <vector>

#include "reducer/autograd/engine.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Reducer;
class PassOutput;

class Pass final : public RefCounted, public BackwardObserver, public BackwardEnd {
 public:
  enum class State : std::uint8_t {
    kOpen,      // More forwards may join.
    kRunning,   // A backward has begun.
    kComplete,  // The gradients are reduced.
    kGivenUp,   // The pass failed, or a reset abandoned it.
  };

  Pass(Reducer* reducer, int rank) : reducer_(reducer), rank_(rank) {}

  State state = State::kOpen;  // The reducer's mutex guards `state` and `number`.
  std::int64_t number = -1;

  // Tells the pass that the reducer is done with it. Outputs may outlive both.
  void close(bool complete);
  // Makes a closed pass a new one. Only the reducer may hold it.
  void reopen(Reducer* reducer, int rank);

  // The number of outputs that a later backward can still use.
  int usable_outputs();
  // Calls `look` with the outputs. None of them is destroyed before `look` returns.
  template <class Look>
  void with_outputs(const Look& look) {
    platform::MutexLock lock(mutex_);
    look(std::span<PassOutput* const>(outputs_));
  }

  Status backward_begins(GraphTask& task, std::span<Node* const> observed) override;
  Status backward_succeeded() override;
  Status backward_failed(Status failure) override;

 private:
  friend class PassOutput;
  void add(PassOutput* output);
  void remove(PassOutput* output);

  Reducer* reducer_;  // Null once the pass is closed.
  int rank_;
  platform::Mutex mutex_{"pass.outputs"};
  // The outputs that exist and are not used up, in no particular order.
  std::vector<PassOutput*> outputs_ LOCKSTEP_GUARDED_BY(mutex_);
};

// PassOutput passes gradients through unchanged. In plain mode each output of a forward has a
// PassOutput of its own. In dynamic mode they share one, so that a backward from any output visits
// the graph behind all of them (P5).
class PassOutput final : public Node {
 public:
  PassOutput(Ref<Pass> pass, std::vector<Edge> inputs, std::uint64_t sequence);
  ~PassOutput() override;
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext& context) override;
  void release() override { pass_->remove(this); }

 private:
  friend class Pass;
  static constexpr std::size_t kUnlisted = ~std::size_t{0};
  Ref<Pass> pass_;
  std::size_t place_ = kUnlisted;  // The index in the pass's list, which the list's lock guards.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
