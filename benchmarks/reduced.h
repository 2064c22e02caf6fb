// Reduced: a workload's gradients averaged by the reducer.
//
// What a step is. The gradients have been computed before it: a node whose backward calls the hooks
// of all parameters, the last one first, as backward passes do (or a chain of nodes: Backward). A
// step begins when backward is called, and ends when it returns with the averages in the gradients.
// Hooks, copies, sums and finalization are in it; the forward, and whatever computes gradients, are
// not.
#pragma once

#include <memory>
#include <vector>

#include "benchmarks/contender.h"
#include "reducer/data_parallel.h"

namespace lockstep::benchmarks {

class Reduced final : public Contender {
 public:
  // `store_prefix` is this one's own. With `pace` hooks wait for the gradients of a backward that
  // takes so long, on a processor of its own: each parameter's share is that of its elements.
  static Result<std::unique_ptr<Reduced>> create(const Place& place,
                                                 const std::string& store_prefix,
                                                 const Workload& workload, ReducerOptions options,
                                                 platform::Duration pace = {});

  void set_backward(Backward backward) { backward_ = backward; }

  Status prepare(const Values& values) override;
  Status step() override;
  std::uint64_t wrong(const Values& values) const override;
  float* first_result() override;
  StepNotes notes() const override;

  // Elements of each bucket, padding included.
  std::vector<std::int64_t> buckets() const;

 private:
  class HookNode;
  struct Member {
    Ref<Parameter> parameter;
    std::int64_t first = 0;          // element of the model
    Tensor arriving;                 // Backward::kArriving, until the step
    platform::Duration hooked_at{};  // in the last step
  };
  Reduced(const Place& place, const Workload& workload, platform::Duration pace);
  Status call_hooks(const BackwardContext& here);
  Ref<Node> make_root();

  const int rank_;
  const std::int64_t elements_;
  const platform::Duration pace_;
  Backward backward_ = Backward::kHooks;
  HostDevice device_;
  Engine engine_{0};
  std::vector<Member> members_;
  std::vector<Tensor> gradient_;  // of the output
  std::unique_ptr<DataParallel> parallel_;
  std::vector<Edge> outputs_;
  std::int64_t first_trace_ = 0;  // of the last step
  platform::Duration hooks_done_{};
  platform::Duration done_{};
};

// The chain of Backward::kChain, of parameters that nobody reduces: what the engine alone takes.
class BareChain final : public Contender {
 public:
  explicit BareChain(const Workload& workload);
  Status prepare(const Values&) override;
  Status step() override;
  std::uint64_t wrong(const Values&) const override { return 0; }
  float* first_result() override { return &nothing_; }

 private:
  HostDevice device_;
  Engine engine_{0};
  std::vector<Ref<Parameter>> parameters_;
  std::vector<Tensor> gradient_;
  std::vector<Edge> outputs_;
  float nothing_ = 0;
};

}  // namespace lockstep::benchmarks
