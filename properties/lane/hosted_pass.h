// HostedPass and HostedOutput: how the host learns, for a subject from outside, which synced pass a
// backward belongs to (contract P1). Outputs of a synced forward go through HostedOutput nodes,
// which hold the pass; the engine finds them when a backward begins, before any node has run.
//
// What to make of it is for the subject: nothing here judges whether a backward is allowed.
// Threads: outputs may be dropped on any thread; the rest is the training thread's.
#pragma once

#include <vector>

#include "reducer/autograd/engine.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class HostedOutput;
class HostedPass;

// The subject's side. Gone before its passes are: it closes them.
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

  std::int64_t number = -1;  // from the first backward on
  bool has_begun() const { return number >= 0; }

  // Its subject was reset or is gone; outputs may outlive that.
  void close() { owner_ = nullptr; }

  // Outputs that live, and that no backward has used up.
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

// Hands gradients through unchanged.
class HostedOutput final : public Node {
 public:
  HostedOutput(Ref<HostedPass> pass, std::vector<Edge> inputs, std::uint64_t sequence);
  ~HostedOutput() override;
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext& context) override;
  void release() override { pass_->remove(this); }

  // Puts nodes in front of `outputs`: one each, so that a backward visits what is behind its own
  // roots; or, if `shared`, one for all, so that it visits what is behind any of them.
  static void put_in_front(const Ref<HostedPass>& pass, bool shared, Engine& engine,
                           std::vector<Edge>& outputs);

 private:
  Ref<HostedPass> pass_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
