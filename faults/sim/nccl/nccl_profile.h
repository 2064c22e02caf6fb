// NcclProfile: what is known to differ between versions of NCCL, as far as it reaches the code that
// calls NCCL. SimNccl follows the profile of its version; table.cc has the functions of a version.
//
// Sources are files of NCCL at the tags of the releases that are named, read for ring, abort and
// destroy in each release from 2.18.3 to 2.30.7. Only inline functions, for all builds of the
// simulator.
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::faults {

// The units of a chunk in the last iteration of the ring's all-reduce.
enum class RingUnits : std::uint8_t {
  k16Bytes,
  k4096Bytes,
  kThreads,  // 8 bytes for each thread of the kernel
};

struct NcclProfile {
  RingUnits ring_units = RingUnits::k16Bytes;
  // A connection that breaks is an asynchronous error on the ranks that use it, and so is an error
  // of a rank's own network.
  bool reports_network_errors = true;
  // Where such an error was reported, the abort may never return: here, that of every second
  // communicator.
  bool aborts_may_hang = false;
  // The abort and the destruction of a non-blocking communicator return before its work is over.
  bool ends_in_background = true;
  // A collective outside of a group returns ncclSuccess while it goes on.
  bool collectives_succeed_early = false;
  // The destruction of a communicator that has failed returns the error and leaves the calling
  // thread inside a group.
  bool failed_destroy_opens_group = true;
  // Destroying a communicator that was shrunk with the flag to abort never returns.
  bool destroy_after_shrink_hangs = false;
};

// The profile of a version as ncclGetVersion returns it, 2.18 or newer.
constexpr NcclProfile nccl_profile(int version) {
  NcclProfile profile;
  // runRing() of device/all_reduce.h (2.22.3), computeCollAlignCount() of enqueue.cc (2.20.5), and
  // runRing() of collectives/device/all_reduce.h (2.18.3, 2.19.3).
  if (version < 22203) profile.ring_units = RingUnits::k4096Bytes;
  if (version < 22003) profile.ring_units = RingUnits::kThreads;
  // ncclProxyProgress() of proxy.cc returns in 2.18 without setting asyncResult; progressOps()
  // drops the error from 2.26.2 to 2.27.7 (faults/played_gpu/FINDINGS.md).
  const bool is_lost =
      (version >= 21801 && version < 21901) || (version >= 22602 && version < 22803);
  profile.reports_network_errors = !is_lost;
  // From 2.19.1 on the progress thread goes on with the operation that failed. 2.26.2 removes that
  // operation: "Fix hangs due to the progress thread spinning", say its release notes.
  profile.aborts_may_hang = version >= 21901 && version < 22602;
  // ncclCommAbort() and ncclCommDestroy() of init.cc call commReclaim(); since 2.22.3 with
  // ncclAsyncLaunch().
  profile.ends_in_background = version >= 22203;
  // Measured (faults/played_gpu/FINDINGS.md): 2.22.3 does not, 2.23.4 does, and 2.26.2 does not.
  profile.collectives_succeed_early = version >= 22304 && version < 22602;
  // ncclCommDestroy() of init.cc starts a group before it looks at the state; 2.27.3 does not.
  profile.failed_destroy_opens_group = version >= 22403 && version != 22703;
  // Reported of 2.31.2 and newer: the destruction has a barrier that nobody else enters
  // (pytorch/pytorch#194775).
  profile.destroy_after_shrink_hangs = version >= 23102;
  return profile;
}

// The versions whose profiles or functions differ, oldest first: a name, and the release that is
// simulated under it.
struct NcclRelease {
  std::string_view name;
  int version;
};
inline constexpr std::array<NcclRelease, 8> kNcclReleases{{
    {"2.18", 21803},
    {"2.19", 21903},
    {"2.21", 22105},
    {"2.23", 22304},
    {"2.26", 22602},
    {"2.27", 22707},
    {"2.28", 22809},
    {"2.32", 23203},
}};

// Nothing if there is no release of that name.
constexpr std::optional<int> nccl_release(std::string_view name) {
  for (const NcclRelease& release : kNcclReleases)
    if (name == release.name) return release.version;
  return std::nullopt;
}

}  // namespace lockstep::faults
