// ProfiledGroup is a process group whose collectives are events of PyTorch's profiler, with the
// names that torch.distributed's own have: "gloo:all_reduce", "gloo:broadcast", "gloo:all_gather".
//
// Threads, failure: as the group that it forwards to. An event begins on the thread that starts the
// collective, and ends on the group's thread that completes it.
// Memory: one event for each collective while somebody profiles; nothing otherwise.
#pragma once

#include "reducer/comm/forwarding_group.h"

namespace lockstep::torch_adapter {

class ProfiledGroup final : public ForwardingGroup {
 public:
  using ForwardingGroup::ForwardingGroup;
  Status start(const Collective& collective, Work& work) override;
};

}  // namespace lockstep::torch_adapter
