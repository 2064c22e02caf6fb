// What the nccl lane runs with, and the environment of a rank in it: one process per rank, all on
// one GPU, as if each were a machine of its own (NCCL_HOSTID), so that what they send goes over
// NCCL's network: our plug-in (faults/nccl_net), or sockets.
//
// From the user's environment: LOCKSTEP_NCCL, a libnccl.so.2 (else the one that the loader finds);
// LOCKSTEP_NCCL_NET, `lockstep` (which is meant when it is not set) or `socket`;
// LOCKSTEP_NCCL_PLUGIN, the plug-in's file (else the one that was built or installed beside this
// program). The GPU is CUDA's first one (CUDA_VISIBLE_DEVICES).
//
// Threads: one caller, before others begin: it reads and sets the environment. Failure: one line
// that says what to do.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties {

struct NcclSetup {
  std::string library;      // for load_nccl()
  bool uses_plugin = true;  // else NCCL's own sockets
  std::string plugin;       // its file
  const char* network() const { return uses_plugin ? "Lockstep" : "Socket"; }  // as NCCL has it
};

// Refuses what was set and makes no sense; what was not set need not be there.
Result<NcclSetup> nccl_setup();

using Variables = std::vector<std::pair<std::string, std::string>>;

// For the process of one rank, before it loads NCCL. `run` is the same for all ranks, and no other
// run's; `log` is the file that NCCL logs to.
Variables nccl_variables(const NcclSetup& setup, const std::string& run, std::uint32_t rank,
                         const std::string& log);
void set_variables(const Variables& variables);

// Loads the plug-in, so that NCCL finds it by its name, and looks whether it is ours.
Status load_plugin(const NcclSetup& setup);

// Whether the model knows the ring of this version (reference/order.h).
Status check_nccl_version(int version, const std::string& library);

// Whether the lane can run here, from a process that may use the GPU: all of the above, and the
// GPU opened. Prints one line; returns 0, kNoDevice or 1.
constexpr int kNoDevice = 77;
int probe_nccl();

// The same, by another process of this program.
struct Probe {
  bool is_ready = false;
  bool lacks_device = false;
  std::string line;  // what there is, or what is wrong
};
Probe probe_nccl_apart();

}  // namespace lockstep::properties
