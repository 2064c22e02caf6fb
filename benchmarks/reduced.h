// Reduced: the reducer averages the gradients of a workload.
//
// Before a step, the gradients have been computed. In the step, one node's backward calls the hooks
// of all parameters, beginning with the last one, in the order of a backward pass (or a chain of
// nodes does: see Backward). A step begins with the call of backward, and ends when backward
// returns with the averages in the gradients. It includes hooks, copies, sums and finalization. It
// excludes the forward and the computation of gradients.
#pragma once

#include <memory>
#include <vector>

#include "benchmarks/contender.h"
#include "reducer/data_parallel.h"

namespace lockstep::benchmarks {

class Reduced final : public Contender {
 public:
  // No other Reduced may use `store_prefix`. With `pace`, the hooks wait for the gradients of a
  // backward that takes this long on a processor of its own; each parameter's share of the time is
  // proportional to its elements.
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

  // The number of elements of each bucket, padding included.
  std::vector<std::int64_t> buckets() const;

 private:
  class HookNode;
  struct Member {
    Ref<Parameter> parameter;
    std::int64_t first = 0;  // its first element in the model
    Tensor arriving;         // the gradient that arrives in the step, with Backward::kArriving
    platform::Duration hooked_at{};  // when its hook was called in the last step
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
  std::vector<Tensor> gradient_;  // the gradient of the output
  std::unique_ptr<DataParallel> parallel_;
  std::vector<Edge> outputs_;
  std::int64_t first_trace_ = 0;  // the first trace event of the last step
  platform::Duration hooks_done_{};
  platform::Duration done_{};
};

// Runs the chain of Backward::kChain with parameters that nobody reduces. This measures the time of
// the engine alone.
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
