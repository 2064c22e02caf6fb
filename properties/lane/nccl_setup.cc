#include "properties/lane/nccl_setup.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "faults/nccl_net/lockstep_net.h"
#include "properties/case/invalid.h"

namespace lockstep::properties {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPluginFile = "libnccl-net-lockstep.so";
constexpr int kOldestRing = 22200;
// The first release whose ring nobody has held against the model
// (benchmarks/nccl_versions/YOUNG.md).
constexpr int kFirstUnknownRing = 23300;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

fs::path own_program() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored);
}

// Searches the build folder, the folder of an installed program, and the folder of its libraries.
std::string usual_plugin() {
  const fs::path folder = own_program().parent_path();
  for (const fs::path& place :
       {folder, folder / "faults/nccl_net", folder / "../lib", folder / "../faults/nccl_net"}) {
    std::error_code error;
    if (fs::exists(place / kPluginFile, error)) return (place / kPluginFile).string();
  }
  return (folder / kPluginFile).string();
}

}  // namespace

Result<NcclSetup> nccl_setup() {
  NcclSetup setup;
  setup.library = variable("LOCKSTEP_NCCL");
  if (setup.library.empty()) setup.library = "libnccl.so.2";
  const std::string net = variable("LOCKSTEP_NCCL_NET");
  if (!net.empty() && net != "lockstep" && net != "socket")
    return failed(invalid(fmt::format(
        "LOCKSTEP_NCCL_NET is '{}': use lockstep (the plug-in with faults) or socket", net)));
  setup.uses_plugin = net != "socket";
  setup.plugin = variable("LOCKSTEP_NCCL_PLUGIN");
  std::error_code error;
  if (!setup.plugin.empty() && !fs::exists(setup.plugin, error))
    return failed(invalid(fmt::format("LOCKSTEP_NCCL_PLUGIN: there is no file {}", setup.plugin)));
  if (setup.plugin.empty()) setup.plugin = usual_plugin();
  return setup;
}

Variables nccl_variables(const NcclSetup& setup, const std::string& run, std::uint32_t rank,
                         const std::string& log) {
  Variables out = {
      // Every rank is a machine of its own; otherwise NCCL refuses two of them on one GPU.
      {"NCCL_HOSTID", fmt::format("lockstep-{}-r{}", run, rank)},
      {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_NET", setup.network()},  // so that NCCL fails where it would take another one
      {"NCCL_NET_PLUGIN", setup.uses_plugin ? "lockstep" : "none"},
      // Otherwise 2.28 unloads the plug-in with the process's last communicator, and the next one
      // cannot find the plug-in by its name (nccl#1978).
      {"NCCL_NET_PLUGIN_REF_COUNT", "1"},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_SOCKET_IFNAME", "lo"},
      // This pins the one order of addition for which the model has a formula. The size of its
      // chunks follows from the buffer.
      {"NCCL_ALGO", "Ring"},
      {"NCCL_PROTO", "Simple"},
      {"NCCL_TUNER_PLUGIN", "none"},  // one may change the size of chunks
      {"NCCL_BUFFSIZE", "4194304"},
      {"NCCL_MIN_NCHANNELS", "1"},
      {"NCCL_MAX_NCHANNELS", "1"},
      {"NCCL_MIN_P2P_NCHANNELS", "1"},
      {"NCCL_MAX_P2P_NCHANNELS", "1"},
      {"NCCL_NCHANNELS_PER_NET_PEER", "1"},
      {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_MNNVL_ENABLE", "0"},
      {"NCCL_CUMEM_HOST_ENABLE", "0"},  // needs NUMA, which containers lack
      // Connections of the ring are created with the communicator, not within a collective's time.
      {"NCCL_RUNTIME_CONNECT", "0"},
      {"NCCL_RAS_ENABLE", "0"},
      {"CUDA_MODULE_LOADING", "EAGER"},  // loading a kernel may wait for those that run
      // NcclLog reads these lines (nccl_log.h).
      {"NCCL_DEBUG", "INFO"},
      {"NCCL_DEBUG_SUBSYS", "INIT,NET,TUNING"},
      {"NCCL_DEBUG_FILE", log},
      {LOCKSTEP_NET_RANK, std::to_string(rank)},
      {LOCKSTEP_NET_IFNAME, "lo"},
  };
  return out;
}

void set_variables(const Variables& variables) {
  for (const auto& [name, value] : variables) {
    if (value.empty())
      ::unsetenv(name.c_str());
    else
      ::setenv(name.c_str(), value.c_str(), 1);
  }
}

Status load_plugin(const NcclSetup& setup) {
  if (!setup.uses_plugin) return {};
  const std::string advice =
      "build it (ninja lockstep_nccl_net), say where it is with "
      "LOCKSTEP_NCCL_PLUGIN=FILE, or go without (LOCKSTEP_NCCL_NET=socket)";
  std::error_code error;
  if (!fs::exists(setup.plugin, error))
    return invalid(fmt::format("there is no net plug-in {}: {}", setup.plugin, advice));
  // The library is never closed: NCCL uses what is loaded under that name, wherever it is stored.
  void* const library = ::dlopen(setup.plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return invalid(fmt::format("the net plug-in cannot be loaded ({}): {}", ::dlerror(), advice));
  void* const version = ::dlsym(library, "lockstep_net_version");
  if (version == nullptr)
    return invalid(fmt::format("{} is not our net plug-in: {}", setup.plugin, advice));
  const std::uint32_t its = reinterpret_cast<std::uint32_t (*)()>(version)();
  if (its == LOCKSTEP_NET_PLAN_VERSION) return {};
  return invalid(fmt::format("{} is of another build (its plans have version {}, ours {}): {}",
                             setup.plugin, its, LOCKSTEP_NET_PLAN_VERSION, advice));
}

SentMessages sent_messages(const NcclSetup& setup) {
  if (!setup.uses_plugin) return {};
  void* const library = ::dlopen(setup.plugin.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return {};
  void* const count = ::dlsym(library, "lockstep_net_count");
  lockstep_net_counts counts{};
  if (count != nullptr) reinterpret_cast<void (*)(lockstep_net_counts*)>(count)(&counts);
  ::dlclose(library);
  return {counts.sent_messages, counts.sent_bytes};
}

Status check_nccl_version(int version, const std::string& library) {
  if (version >= kOldestRing && version < kFirstUnknownRing) return {};
  const std::string its =
      fmt::format("{} is NCCL {}.{}", library, version / 10000, version % 10000 / 100);
  return invalid(
      version < kOldestRing
          ? its + ": the model knows how 2.22 and newer add; name another with LOCKSTEP_NCCL=FILE"
          : its +
                ": it is not known whether it adds as 2.22 to 2.32 do; name one of these with "
                "LOCKSTEP_NCCL=FILE, or hold its ring against the model first "
                "(benchmarks/nccl_versions/YOUNG.md)");
}

Probe probe_nccl_apart() {
  const std::string command = fmt::format("'{}' nccl-probe 2>&1", own_program().string());
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  Probe probe;
  if (pipe == nullptr) {
    probe.line = "no process can be started to look for a GPU";
    return probe;
  }
  std::array<char, 1000> text{};
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) {
    probe.line = text.data();  // the last line, because libraries may print others before it
    while (!probe.line.empty() && probe.line.back() == '\n') probe.line.pop_back();
  }
  const int status = ::pclose(pipe);
  probe.is_ready = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  probe.lacks_device = WIFEXITED(status) && WEXITSTATUS(status) == kNoDevice;
  if (probe.line.empty()) probe.line = "the process that looked for a GPU said nothing";
  return probe;
}

}  // namespace lockstep::properties
