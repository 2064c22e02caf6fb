// TorchReduced: a workload's gradients averaged by PyTorch's reducer, c10d::Reducer, over a
// ProcessGroupGloo of its own on the loopback interface: what Reduced is for ours.
//
// It is driven as DistributedDataParallel does by default (a first bucket of 1 MiB, then 25 MiB;
// buckets rebuilt after the first pass), with two threads that communicate and one that computes,
// as when each process has a core. A step begins when backward is called, on the engine of
// libtorch, and ends when it returns; what DistributedDataParallel does in a forward is not in it.
//
// This header includes nothing of libtorch. Failure: what libtorch throws is in the Status.
#pragma once

#include <memory>

#include "benchmarks/contender.h"

namespace lockstep::benchmarks {

// Before anything else of libtorch in this process.
void prepare_torch();

class TorchReduced final : public Contender {
 public:
  static Result<std::unique_ptr<TorchReduced>> create(const Place& place, const std::string& name,
                                                      const Workload& workload, bool views);
  ~TorchReduced() override;

  void set_backward(Backward backward);

  Status prepare(const Values& values) override;
  Status step() override;
  std::uint64_t wrong(const Values& values) const override;
  float* first_result() override;

 private:
  struct State;
  explicit TorchReduced(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// The chain of Backward::kChain on the engine of libtorch, of parameters that nobody reduces.
class TorchBareChain final : public Contender {
 public:
  explicit TorchBareChain(const Workload& workload);
  ~TorchBareChain() override;
  Status prepare(const Values&) override;
  Status step() override;
  std::uint64_t wrong(const Values&) const override { return 0; }
  float* first_result() override { return &nothing_; }

 private:
  struct State;
  const std::unique_ptr<State> state_;
  float nothing_ = 0;
};

}  // namespace lockstep::benchmarks
