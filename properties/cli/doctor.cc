#include "properties/cli/doctor.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "properties/cli/output.h"
#include "properties/lane/lane.h"
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

Finding look_at_nccl() {
  if (!has_lane(LaneKind::kNccl, Subject())) return look_at_lane(LaneKind::kNccl, 1);
  const Probe probe = probe_nccl_apart();
  if (!probe.is_ready) return {false, probe.line};
  const Finding machine = look_at_lane(LaneKind::kNccl, 1);
  return machine.is_ready ? Finding{true, probe.line} : machine;
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
  print("planted bugs", look_at_planted_bugs());
  print("subject torch", look_at_torch());
  return sim.is_ready && gloo.is_ready ? 0 : static_cast<int>(Failing::kInconclusive);
}

}  // namespace lockstep::properties
