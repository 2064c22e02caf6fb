// TorchOptions: the options that PyTorch's reducer has alone, under its names. Lockstep's reducer
// and its contract have no such options: a subject that lacks one of them gets cases without it
// (capabilities.h). The default of each field is the simplest choice. Plain values; any thread.
#pragma once

#include <cstdint>

namespace lockstep::properties {

struct TorchOptions {
  // When the user ends a pass by hand, by finalize_backward_manual(): see finalization.h in
  // subject/torch/model. The user ends synced passes, and with kAlways tries to end local ones,
  // too.
  enum class Finalization : std::uint8_t { kAutomatic, kAfter, kInHook, kAlways, kTwice, kNever };

  bool batched_grad_copy = false;       // gradients are copied when their bucket is whole
  bool lazy_bucket_allocation = false;  // buckets have memory during a backward alone
  // Buckets whose parameters are all unused are not reduced. Not in plain mode, and only where all
  // ranks run the same graphs.
  bool skip_all_reduce_unused_params = false;
  Finalization finalization = Finalization::kAutomatic;
  // If not 0, the reducer is given another group of the same ranks before this step.
  std::uint32_t update_process_group = 0;
};

}  // namespace lockstep::properties
