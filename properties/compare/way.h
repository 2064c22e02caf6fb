// Way: what an NCCL library runs on in a rank's process: a GPU, or something that plays one.
//
// There are the ways `gpu` and `played`, a GPU that is played on the host below NCCL
// (faults/played_gpu). `label` stands beside every figure, because a time on a played device says
// nothing about a GPU.
//
// Threads: one, before ranks run. Failure: open and load return kInvalidArgument with what to do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/nccl/nccl_api.h"
#include "reducer/device/device.h"

namespace lockstep::properties {

constexpr const char* kPlayedWay = "played";

struct Way {
  std::string name;   // for --run-on
  std::string label;  // "on the GPU", "host side, device played"
  // Both are called in a rank's process, `load` first, with the path of a library.
  std::function<Result<NcclApi>(const std::string& library)> load;
  std::function<Result<std::unique_ptr<Device>>()> open;
};

// The way of that name. Without a name, the first way whose device can be opened; a process of its
// own tries them, because this one must not use a GPU before it starts ranks.
Result<Way> find_way(const std::string& name);

}  // namespace lockstep::properties
