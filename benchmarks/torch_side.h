// TorchSide: what a module for one PyTorch gives to the benchmark beside it. The module is a shared
// library of torch_reduced.cc and one libtorch. The benchmark loads it, because a libtorch may
// bring a Gloo of its own, with the same names as the one over which our reducer runs.
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
#include <string>

#include "benchmarks/contender.h"

namespace lockstep::benchmarks {

struct TorchOptions {
  bool views = false;
  bool batched = false;  // batched_grad_copy
};

// PyTorch's reducer, c10d::Reducer, which averages the gradients of a workload over a
// ProcessGroupGloo of its own on the loopback interface. It is the counterpart of Reduced.
class TorchReducing : public Contender {
 public:
  virtual void set_backward(Backward backward) = 0;
};

struct TorchSide {
  const char* version;  // of PyTorch
  bool has_batched;     // whether it has batched_grad_copy
  // The process must call this before anything else of libtorch.
  void (*prepare)();
  Result<std::unique_ptr<TorchReducing>> (*create)(const Place&, const std::string& name,
                                                   const Workload&, TorchOptions);
  // Runs the chain of Backward::kChain on the engine of libtorch, with parameters that nobody
  // reduces.
  std::unique_ptr<Contender> (*bare_chain)(const Workload&);
};

// The function that a module exports: `const TorchSide* lockstep_torch_side()`.
constexpr const char* kTorchSide = "lockstep_torch_side";

// Loads a module, which stays loaded. Where it cannot be loaded, it says why in one line.
Result<const TorchSide*> load_torch_side(const std::string& file);

}  // namespace lockstep::benchmarks
