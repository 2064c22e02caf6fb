// The setup of the nccl lane, and the environment of its ranks. There is one process per rank, all
// on one GPU, as if each had a machine of its own (NCCL_HOSTID), so that their messages go over
// NCCL's network: our plug-in (faults/nccl_net), or sockets.
//
// From the user's environment: LOCKSTEP_NCCL, a libnccl.so.2 (else the one that the loader finds);
// LOCKSTEP_NCCL_NET, `lockstep` (the default) or `socket`; LOCKSTEP_NCCL_PLUGIN, the plug-in's file
// (else the one that was built or installed beside this program). The GPU is CUDA's first one
// (CUDA_VISIBLE_DEVICES).
//
// Threads: one caller, before others begin, because it reads and sets the environment. Failure: one
// line that says what to do.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::properties {

struct NcclSetup {
  std::string library;      // for load_nccl()
  bool uses_plugin = true;  // false: NCCL's own sockets
  std::string plugin;       // the plug-in's file
  const char* network() const { return uses_plugin ? "Lockstep" : "Socket"; }  // NCCL's name for it
};

// Refuses values that make no sense. Whatever the user did not set need not exist.
Result<NcclSetup> nccl_setup();

using Variables = std::vector<std::pair<std::string, std::string>>;

// Returns the variables for the process of one rank, to be set before it loads NCCL. `run` is the
// same for all ranks, and different from every other run's. `log` is the file for NCCL's log.
Variables nccl_variables(const NcclSetup& setup, const std::string& run, std::uint32_t rank,
                         const std::string& log);
void set_variables(const Variables& variables);

// Loads the plug-in, so that NCCL finds it by its name, and checks that it is ours.
Status load_plugin(const NcclSetup& setup);

// What this process has sent through the plug-in, which load_plugin() has loaded; zeros over NCCL's
// own sockets.
struct SentMessages {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};
SentMessages sent_messages(const NcclSetup& setup);

// Returns ok if the model knows the ring of this version (reference/order.h).
Status check_nccl_version(int version, const std::string& library);

// Checks whether the lane can run here, in a process that may use the GPU: all of the above, and
// opening the GPU. Prints one line; returns 0, kNoDevice or 1.
constexpr int kNoDevice = 77;
int probe_nccl();

// Like probe_nccl(), in another process of this program.
struct Probe {
  bool is_ready = false;
  bool lacks_device = false;
  std::string line;  // what the machine has, or what is wrong
};
Probe probe_nccl_apart();

}  // namespace lockstep::properties
