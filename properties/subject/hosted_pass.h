// HostedPass and HostedOutput: how the host finds the synced pass of a backward for a subject from
// a shared library (P1). Outputs of a synced forward pass through HostedOutput nodes, which own the
// pass; the engine finds them when a backward begins, before any node has run.
//
// The subject decides what follows: this code does not judge whether a backward is allowed.
// Threads: any thread may drop outputs; only the training thread does the rest.
#pragma once

#include <vector>

#include "reducer/autograd/engine.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class HostedOutput;
class HostedPass;

// The subject's side. It may be destroyed before its passes; it then closes them.
class HostedBackwards {
 public:
  virtual ~HostedBackwards() = default;
  virtual Status backward_begins(HostedPass& pass, GraphTask& task) = 0;
  virtual Status backward_succeeded(HostedPass& pass) = 0;
  virtual Status backward_failed(HostedPass& pass, Status failure) = 0;
};

class HostedPass final : public RefCounted, public BackwardObserver, public BackwardEnd {
 public:
  explicit HostedPass(HostedBackwards* owner) : owner_(owner) {}

  std::int64_t number = -1;  // set by the first backward
  bool has_begun() const { return number >= 0; }

  // The subject was reset or destroyed; outputs may outlive that.
  void close() { owner_ = nullptr; }

  // Returns the number of live outputs that no backward has used up.
  std::uint32_t usable_outputs();
  void append_outputs(std::vector<Node*>& nodes);

  Status backward_begins(GraphTask& task, std::span<Node* const> observed) override;
  Status backward_succeeded() override;
  Status backward_failed(Status failure) override;

 private:
  friend class HostedOutput;
  void add(HostedOutput* output);
  void remove(HostedOutput* output);

  HostedBackwards* owner_;
  platform::Mutex mutex_{"hosted.outputs"};
  std::vector<HostedOutput*> outputs_;
};

// Passes gradients through unchanged.
class HostedOutput final : public Node {
 public:
  HostedOutput(Ref<HostedPass> pass, std::vector<Edge> inputs, std::uint64_t sequence);
  ~HostedOutput() override;
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext& context) override;
  void release() override { pass_->remove(this); }

  // Inserts nodes in front of `outputs`. There is one node for each, so that a backward visits what
  // is behind its own roots; or, if `shared`, one for all, so that it visits what is behind any of
  // them.
  static void put_in_front(const Ref<HostedPass>& pass, bool shared, Engine& engine,
                           std::vector<Edge>& outputs);

 private:
  Ref<HostedPass> pass_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
