// Pass and PassOutput: what ties a backward to the synced forward it came from (contract P1).
//
// A synced forward's outputs go through PassOutput nodes, which hold the Pass. When a backward
// begins, the engine finds them in its graph and tells the Pass, before any node has run; so the
// pass is known from the graph itself, and a forward whose outputs are gone leaves nothing behind.
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
    kOpen,      // takes further forwards in
    kRunning,   // a backward has begun
    kComplete,  // reduced
    kGivenUp,   // failed, or abandoned by a reset
  };

  Pass(Reducer* reducer, int rank) : reducer_(reducer), rank_(rank) {}

  State state = State::kOpen;  // guarded by the reducer's mutex, as is `number`
  std::int64_t number = -1;

  // The reducer is done with it; outputs may outlive both.
  void close(bool complete);
  // Makes a closed pass a new one; nobody but the reducer may hold it.
  void reopen(Reducer* reducer, int rank);

  // Outputs that a later backward can still use.
  int usable_outputs();
  // Calls `look` with them; none goes away before it returns.
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

  Reducer* reducer_;  // null once closed
  int rank_;
  platform::Mutex mutex_{"pass.outputs"};
  std::vector<PassOutput*> outputs_;  // alive and not used up, in any order
};

// Hands gradients through unchanged. In plain mode each output of a forward has one of its own; in
// dynamic mode they share one, so that a backward from any of them visits the graph behind all of
// them (P5).
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
  std::size_t place_ = kUnlisted;  // in the pass's list, guarded by its lock
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
