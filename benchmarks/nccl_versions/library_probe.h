// Probes one NCCL library on a machine without a GPU, in child processes that it may crash or hang:
// what it exports, which names it reads from the environment, which plug-in tables it looks up, and
// what each function returns.
//
// Plug-in tables. NCCL looks them up when it initializes a communicator's network, which it does
// not reach without a device. The probe calls that part by itself: ncclNetInit(), which the wheels
// still name in .symtab, with a communicator of zeros. The library's own pointer to dlsym() is
// replaced, so that the names are recorded. Up to 2.21 ncclGetUniqueId() looks them up, and up
// to 2.26 ncclNetPluginLoad().
//
// Threads: one caller, in a process without other threads (it forks).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "benchmarks/nccl_versions/child_process.h"
#include "reducer/base/status.h"

namespace lockstep::benchmarks {

struct CallProbe {
  std::string function;   // with what was passed, where the same function is called twice
  bool is_there = false;  // in the library
  ChildResult child;
  int result = 0;     // if the call returned
  std::string error;  // ncclGetLastError()
};

struct PluginProbe {
  bool is_possible = false;  // the library has ncclNetInit() in .symtab
  ChildResult child;
  int result = 0;
  std::string network;  // the name of the network that the communicator got
  std::vector<std::pair<std::string, bool>> asked;  // each name, and whether the plug-in has it
};

struct LibraryProbe {
  int version = 0;                         // as ncclGetVersion returns it
  std::string refusal;                     // why load_nccl() refuses it; empty if it does not
  std::vector<std::string> exports;        // nccl*, without the pncclX beside each ncclX
  std::vector<std::string> environment;    // NCCL_*
  std::vector<std::string> plugin_tables;  // names of tables among the library's texts
  PluginProbe empty_plugin;                // a plug-in without any table
  PluginProbe own_plugin;                  // faults/nccl_net
  std::vector<CallProbe> calls;
};

struct ProbeOptions {
  std::string empty_plugin;  // files named libnccl-net-NAME.so
  std::string own_plugin;
  double limit_seconds = 30;  // for each call
};

// Fails if the file is no library for this machine, or ends the process when it is loaded.
Result<LibraryProbe> probe_library(const std::string& library, const ProbeOptions& options);

}  // namespace lockstep::benchmarks
