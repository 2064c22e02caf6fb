#include "properties/cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "properties/cli/output.h"
#include "properties/hosts/command.h"
#include "properties/hosts/namespaces.h"
#include "properties/lane/lane.h"
#include "properties/lane/nccl_cache.h"
#include "properties/lane/nccl_played.h"
#include "properties/lane/nccl_setup.h"
#include "properties/lane/needs.h"
#include "properties/oracle/verdict.h"
#include "properties/subject/python_subject.h"
#include "properties/subject/torch_subject.h"

namespace lockstep::properties {
namespace {

constexpr int kUsualGlooJobs = 4;

struct Finding {
  bool is_ready = false;
  std::string detail;  // what there is, or what is missing and what to do
};

void print(const std::string& what, const Finding& finding) {
  tell(fmt::format("{:<15}{}{}{}\n", what, finding.is_ready ? "ready" : "no",
                   finding.detail.empty() ? "" : ": ", finding.detail));
}

Finding look_at_lane(LaneKind lane, int jobs) {
  if (!has_lane(lane, Subject()))
    return {false, "this program has the simulator's lane alone; build the target lockstep"};
  const Status status = check_needs(needs_of(lane, {}, jobs));
  if (!status.ok()) return {false, status.failure().detail};
  return {true, fmt::format("{} process{} at once", jobs, jobs == 1 ? "" : "es")};
}

// `probe` is what the nccl lane found when it looked for a GPU.
Finding look_at_gpu(const Probe& probe) {
  return {probe.is_ready, probe.is_ready ? "CUDA's first device" : probe.line};
}

// Without a GPU the lane can play one, if there is an NCCL: the loader's, or one of the cache.
Finding look_at_nccl(Probe probe) {
  std::string how;
  if (probe.lacks_device && may_play_nccl()) {
    play_nccl();
    probe = probe_nccl_apart();
    const bool is_named = std::getenv("LOCKSTEP_NCCL") != nullptr;
    const std::vector<std::string> fetched =
        is_named ? std::vector<std::string>() : nccl_versions_in(nccl_cache());
    for (std::size_t i = fetched.size(); i-- > 0 && !probe.is_ready;) {
      ::setenv("LOCKSTEP_NCCL", find_nccl(fetched[i], nccl_cache())->c_str(), 1);
      probe = probe_nccl_apart();
      how = fmt::format(" (--nccl {})", fetched[i]);
    }
  }
  if (!probe.is_ready)
    return {false, probe.line + "; `ci/nccl fetch 2.28.9` brings an NCCL that runs without a GPU"};
  const Finding machine = look_at_lane(LaneKind::kNccl, 1);
  return machine.is_ready ? Finding{true, probe.line + how} : machine;
}

Finding look_at_nccl_versions() {
  const std::vector<std::string> versions = nccl_versions_in(nccl_cache());
  if (versions.empty())
    return {false,
            "none was fetched; `ci/nccl fetch 2.28.9` fetches one, `ci/nccl list` names them"};
  return {true, fmt::format("{} (fuzz --lane nccl --nccl VERSION, from 2.22 on)",
                            fmt::join(versions, ", "))};
}

// Whether ranks can have hosts of their own on this machine; the faults of the network need nft.
Finding look_at_hosts() {
  if (!has_lane(LaneKind::kHosts, Subject())) return look_at_lane(LaneKind::kHosts, 1);
  if (const Status status = hosts::try_namespaces(); !status.ok())
    return {false, status.failure().detail};
  const std::string namespaces = "in network namespaces (--netns 4)";
  if (hosts::find_program("nft").empty())
    return {true, namespaces +
                      ", without faults of the network: these need nft "
                      "(ci/setup --network)"};
  return {true, namespaces + ", with faults of the network"};
}

Finding look_at_planted_bugs() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (std::filesystem::exists(self.parent_path() / "lockstep-seeded", error))
    return {true, "in all lanes"};
  return {true, "in the simulator; for the lanes gloo and nccl build the target lockstep-seeded"};
}

Finding look_at_torch() {
  const Result<Subject> torch = torch_subject();
  if (!torch) return {false, torch.error().failure().detail};
  return {true, torch->rank_program};
}

Finding look_at_python() {
  const Result<std::string> python = describe_python();
  if (!python) return {false, python.error().failure().detail};
  return {true, *python};
}

// The versions beside the system's that ci/torch has built.
Finding look_at_torch_versions() {
  const std::vector<std::string> versions = built_torch_versions();
  if (versions.empty())
    return {false,
            "none was built; `ci/torch --version 2.9.1` builds one, `ci/torch --list` names them"};
  return {true, fmt::format("{} (fuzz --subject torch:VERSION)", fmt::join(versions, ", "))};
}

}  // namespace

int run_doctor() {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const Finding sim = look_at_lane(LaneKind::kSim, cores);
  const Finding gloo = look_at_lane(LaneKind::kGloo, kUsualGlooJobs);
  print("lane sim", sim);
  print("lane gloo", gloo);
  print("lane hosts", look_at_hosts());
  if (has_lane(LaneKind::kNccl, Subject())) {
    const Probe probe = probe_nccl_apart();
    print("gpu", look_at_gpu(probe));
    print("lane nccl", look_at_nccl(probe));
  } else {
    print("lane nccl", look_at_lane(LaneKind::kNccl, 1));
  }
  print("nccl versions", look_at_nccl_versions());
  print("planted bugs", look_at_planted_bugs());
  print("subject torch", look_at_torch());
  print("subject python", look_at_python());
  print("torch versions", look_at_torch_versions());
  return sim.is_ready && gloo.is_ready ? 0 : kInconclusive;
}

}  // namespace lockstep::properties
