// For tests that run NCCL itself on a GPU that is played: which library, and with which network.
// LOCKSTEP_NCCL names a library; otherwise it is one that ci/nccl has fetched into the folder
// LOCKSTEP_NCCL_CACHE (.cache/nccl of the sources unless it is set). Tests that are to run wherever
// there is an NCCL take the one that the loader finds, too. Without one that can be played they are
// skipped.
//
// Threads: those of the test. To be used before NCCL is.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "faults/played_gpu/played_gpu.h"
#include "reducer/base/status.h"
#include "reducer/device/host/queue_device.h"

namespace lockstep::testing {

constexpr const char* kLoadersNccl = "libnccl.so.2";

// Empty if none was fetched.
inline std::string played_library() {
  if (const char* const named = std::getenv("LOCKSTEP_NCCL"); named != nullptr) return named;
  const char* const cache = std::getenv("LOCKSTEP_NCCL_CACHE");
  const std::filesystem::path folder = cache != nullptr ? cache : LOCKSTEP_NCCL_USUAL_CACHE;
  for (const char* version :
       {"2.28.9", "2.27.7", "2.30.7", "2.22.3", "2.29.7", "2.32.3", "2.26.2", "2.23.4"}) {
    std::error_code ignored;
    const std::filesystem::path file = folder / version / "lib/libnccl.so.2";
    if (std::filesystem::exists(file, ignored)) return file.string();
  }
  return {};
}

enum class PlayedNetwork { kPlugin, kSockets };

template <PlayedNetwork kNetwork, bool kTakesLoaders = false>
struct PlayedNccl {
  static std::string library() {
    const bool is_plugin = kNetwork == PlayedNetwork::kPlugin;
    ::setenv("NCCL_NET", is_plugin ? "Lockstep" : "Socket", 1);
    ::setenv("NCCL_NET_PLUGIN", is_plugin ? "lockstep" : "none", 1);
    ::setenv("NCCL_MIN_P2P_NCHANNELS", "1", 1);
    ::setenv("NCCL_MAX_P2P_NCHANNELS", "1", 1);
    // NCCL finds the plug-in by its name.
    if (is_plugin) (void)::dlopen(LOCKSTEP_NET_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    const std::string fetched = played_library();
    return fetched.empty() && kTakesLoaders ? kLoadersNccl : fetched;
  }
  static Result<std::unique_ptr<Device>> open() {
    const std::string file = library();
    const std::string none =
        "no NCCL to play: fetch one (ci/nccl fetch 2.28.9), or name the folder with "
        "LOCKSTEP_NCCL_CACHE";
    if (file.empty()) return failed(Status(Code::kInvalidArgument, none));
    void* const module = ::dlopen(LOCKSTEP_PLAYED_GPU, RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) return failed(Status(Code::kInternal, ::dlerror()));
    const auto load = reinterpret_cast<LockstepPlayedLoad>(::dlsym(module, "lockstep_played_load"));
    if (const char* const why = load(file.c_str()); why != nullptr)
      return file == kLoadersNccl
                 ? failed(Status(Code::kInvalidArgument, none + "; " + std::string(why)))
                 : failed(Status(Code::kInternal, why));
    return std::unique_ptr<Device>(std::make_unique<QueueDevice>());
  }
};

}  // namespace lockstep::testing
