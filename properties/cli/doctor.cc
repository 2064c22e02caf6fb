#include "properties/cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "properties/cli/output.h"
#include "properties/lane/lane.h"
#include "properties/lane/nccl_cache.h"
#include "properties/lane/nccl_played.h"
#include "properties/lane/nccl_setup.h"
#include "properties/lane/needs.h"
#include "properties/oracle/verdict.h"
#include "properties/subject/torch_subject.h"

namespace lockstep::properties {
namespace {

constexpr int kUsualGlooJobs = 4;

struct Finding {
  bool is_ready = false;
  std::string detail;  // what there is, or what is missing and what to do
};

void print(const std::string& what, const Finding& finding) {
  tell(fmt::format("{:<14}{}{}{}\n", what, finding.is_ready ? "ready" : "no",
                   finding.detail.empty() ? "" : ": ", finding.detail));
}

Finding look_at_lane(LaneKind lane, int jobs) {
  if (!has_lane(lane, Subject()))
    return {false, "this program has the simulator's lane alone; build the target lockstep"};
  const Status status = check_needs(needs_of(lane, {}, jobs));
  if (!status.ok()) return {false, status.failure().detail};
  return {true, fmt::format("{} process{} at once", jobs, jobs == 1 ? "" : "es")};
}

// Without a GPU the lane can play one, if there is an NCCL.
Finding look_at_nccl() {
  if (!has_lane(LaneKind::kNccl, Subject())) return look_at_lane(LaneKind::kNccl, 1);
  Probe probe = probe_nccl_apart();
  if (probe.lacks_device && may_play_nccl()) {
    play_nccl();
    if (const Probe played = probe_nccl_apart(); played.is_ready)
      probe = {true, false, fmt::format("{} ({})", played.line, probe.line)};
  }
  if (!probe.is_ready) return {false, probe.line};
  const Finding machine = look_at_lane(LaneKind::kNccl, 1);
  return machine.is_ready ? Finding{true, probe.line} : machine;
}

Finding look_at_nccl_versions() {
  const std::vector<std::string> versions = nccl_versions_in(nccl_cache());
  if (versions.empty())
    return {false,
            "none was fetched; `ci/nccl fetch 2.28.9` fetches one, `ci/nccl list` names them"};
  return {true, fmt::format("{} (fuzz --lane nccl --nccl VERSION)", fmt::join(versions, ", "))};
}

// Whether a process may make a network namespace, in which ranks have addresses of their own.
Finding look_at_namespaces() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::unshare(CLONE_NEWNET) == 0 ? 0 : errno);
  int state = 0;
  if (child < 0 || ::waitpid(child, &state, 0) != child || !WIFEXITED(state))
    return {false, "no process could be started to try it"};
  const int error = WEXITSTATUS(state);
  if (error == 0) return {true, "network namespaces can be made"};
  return {false, fmt::format("unshare(CLONE_NEWNET): {}; run as root, or with CAP_SYS_ADMIN",
                             std::generic_category().message(error))};
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

}  // namespace

int run_doctor() {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const Finding sim = look_at_lane(LaneKind::kSim, cores);
  const Finding gloo = look_at_lane(LaneKind::kGloo, kUsualGlooJobs);
  print("lane sim", sim);
  print("lane gloo", gloo);
  print("lane nccl", look_at_nccl());
  print("nccl versions", look_at_nccl_versions());
  print("namespaces", look_at_namespaces());
  print("planted bugs", look_at_planted_bugs());
  print("subject torch", look_at_torch());
  return sim.is_ready && gloo.is_ready ? 0 : static_cast<int>(Failing::kInconclusive);
}

}  // namespace lockstep::properties
