// TorchReduced: PyTorch's reducer, c10d::Reducer, averages the gradients of a workload over a
// ProcessGroupGloo of its own on the loopback interface. It is the counterpart of Reduced.
//
// The reducer is driven with the defaults of DistributedDataParallel (a first bucket of 1 MiB, then
// 25 MiB; buckets are rebuilt after the first pass). Two threads communicate and one computes, as
// in a process that has one core. A step begins with the call of backward on the engine of
// libtorch, and ends when backward returns. It excludes the work of DistributedDataParallel in a
// forward.
//
// This header includes nothing of libtorch. Failure: an exception of libtorch becomes a Status.
#pragma once

#include <memory>

#include "benchmarks/contender.h"

namespace lockstep::benchmarks {

// The process must call this before anything else of libtorch.
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

// Runs the chain of Backward::kChain on the engine of libtorch, with parameters that nobody
// reduces.
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
