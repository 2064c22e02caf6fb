// TorchCommHook runs a communication hook of DistributedDataParallel, a function in Python of a
// state and a torch.distributed.GradBucket that returns a Future, on Lockstep's buckets.
//
// Threads: as for CommunicationHook. It takes Python's global lock, and the reducer holds no lock
// of its own meanwhile.
// Ownership: the hook keeps state and function.
// Failure: an exception of the hook, or of its Future, is kUserFailure with the exception's text.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <vector>

#include "reducer/hooks/communication_hook.h"

namespace lockstep::torch_adapter {

class TorchCommHook final : public CommunicationHook {
 public:
  // `variables` are the module's parameters, by the numbers that HookBucket::parameters() has.
  TorchCommHook(std::string name, std::unique_ptr<c10d::CommHookInterface> hook,
                std::vector<at::Tensor> variables);
  ~TorchCommHook() override;
  std::string name() const override { return name_; }
  Status start(HookBucket& bucket) override;
  Result<Tensor> finish(HookBucket& bucket) override;
  void reset() noexcept override { running_.clear(); }

 private:
  struct Running {
    at::Tensor buffer;
    c10::intrusive_ptr<c10::ivalue::Future> future;
  };
  Running& running(const HookBucket& bucket);

  const std::string name_;
  std::unique_ptr<c10d::CommHookInterface> hook_;
  const std::vector<at::Tensor> variables_;
  std::vector<Running> running_;  // By the bucket's index.
};

}  // namespace lockstep::torch_adapter
