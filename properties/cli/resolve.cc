#include "properties/cli/resolve.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "faults/sim/nccl/nccl_profile.h"
#include "properties/cli/found_with.h"
#include "properties/cli/output.h"
#include "properties/lane/nccl_cache.h"
#include "properties/lane/nccl_played.h"
#include "properties/lane/nccl_setup.h"
#include "properties/lane/needs.h"
#include "properties/lane/process_ranks.h"
#include "properties/subject/torch_subject.h"

namespace lockstep::properties {
namespace {

// The releases that the simulated NCCL can follow.
std::string nccl_names() {
  std::string names;
  for (const faults::NcclRelease& release : faults::kNcclReleases)
    names += (names.empty() ? "" : " ") + std::string(release.name);
  return names;
}

// Resolves the second subject. Returns an error text if it cannot run beside the first.
std::string resolve_against(const Arguments& arguments, Subject& subject) {
  Result<Subject> parsed = find_subject(arguments.against);
  if (!parsed) return "--against: " + parsed.error().failure().detail;
  const bool is_seeded = subject.kind == Subject::Kind::kSeeded;
  if (is_seeded && parsed->kind == Subject::Kind::kSeeded)
    return "--against: only one of the two subjects can have a planted bug";
  subject.against = std::make_shared<const Subject>(std::move(*parsed));
  return {};
}

// Copies the release of --nccl into the subjects, for the simulator. Returns an error text.
std::string choose_simulated_nccl(const Arguments& arguments, Subject& subject) {
  if (!faults::nccl_release(arguments.nccl))
    return fmt::format("--nccl: the simulator has no NCCL '{}': give one of {}", arguments.nccl,
                       nccl_names());
  if (!common_capabilities(subject).has(Capability::kGpu))
    return "--nccl: the subject does not say that it works on a GPU";
  if (!arguments.transport.empty() && arguments.transport != "nccl")
    return "--nccl: there is no NCCL in cases on the transport " + arguments.transport;
  subject.profile.nccl = arguments.nccl;
  if (!subject.against) return {};
  Subject other = *subject.against;
  other.profile.nccl = arguments.nccl;
  subject.against = std::make_shared<const Subject>(std::move(other));
  return {};
}

// Applies --nccl and --played for the lane nccl, whose ranks inherit them through the environment.
// Returns an error text.
std::string resolve_nccl(const Arguments& arguments, LaneKind lane) {
  if (arguments.nccl.empty() && !arguments.is_played) return {};
  const bool is_simulated = lane == LaneKind::kSim && arguments.lane != "all";
  if (is_simulated && !arguments.is_played) return {};
  if (lane != LaneKind::kNccl)
    return "--nccl is for the lanes sim and nccl, and --played for the lane nccl (--lane nccl)";
  if (arguments.is_played) play_nccl();
  if (arguments.nccl.empty()) return {};
  const Result<std::string> library = find_nccl(arguments.nccl, nccl_cache());
  if (!library) return "--nccl: " + library.error().failure().detail;
  ::setenv("LOCKSTEP_NCCL", library->c_str(), 1);
  return {};
}

// Returns the folder of this program.
std::string own_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

// Replaces this program by lockstep-seeded, which has planted bugs in the real lanes, too, or says
// why it cannot. Few runs need that program, so all others use this one, which builds in half the
// time.
int become_seeded(const Arguments& arguments) {
  const std::string program = own_folder() + "/lockstep-seeded";
  ::execv(program.c_str(), arguments.argv);
  return complain(fmt::format(
      "planted bugs in the lanes gloo and nccl are in the program {}, which does not start ({}): "
      "build the target lockstep-seeded",
      program, std::strerror(errno)));
}

}  // namespace

std::string resolve(const Arguments& arguments, LaneKind& lane, Subject& subject) {
  lane = lane_named(arguments.lane);
  if (std::string wrong = resolve_nccl(arguments, lane); !wrong.empty()) return wrong;
  Result<Subject> parsed = find_subject(arguments.subject);
  if (!parsed) return parsed.error().failure().detail;
  subject = std::move(*parsed);
  if (arguments.contract == "lockstep") hold_to_lockstep(subject);
  if (arguments.values == "exact" && !arguments.against.empty())
    return "--values: two subjects are compared bit by bit, so leave out --against";
  if (arguments.values == "exact") hold_to_values_alone(subject);
  if (!arguments.against.empty())
    if (std::string wrong = resolve_against(arguments, subject); !wrong.empty()) return wrong;
  if (lane == LaneKind::kSim && !arguments.nccl.empty())
    if (std::string wrong = choose_simulated_nccl(arguments, subject); !wrong.empty()) return wrong;
  const Subject* with_group = subject.has_own_group() ? &subject : nullptr;
  if (subject.against && subject.against->has_own_group()) with_group = subject.against.get();
  if (with_group == nullptr && lane == LaneKind::kNccl &&
      !common_capabilities(subject).has(Capability::kGpu))
    return "the nccl lane is for reducers with parameters on a GPU, which subjects from outside "
           "do not have";
  if (with_group == nullptr)
    return lane == LaneKind::kHosts ? check_hosts(arguments.hosts) : std::string();
  if (lane == LaneKind::kHosts && has_hosts(*with_group)) return check_hosts(arguments.hosts);
  if (arguments.lane != "gloo" && !arguments.lane.empty()) return has_no_such_lane(*with_group);
  lane = LaneKind::kGloo;
  return {};
}

void add_judged_by(CLI::App& command, Arguments& arguments) {
  add_contract(command, arguments.contract, arguments.values);
}

void add_lane_and_subject(CLI::App& command, Arguments& arguments, bool all_lanes) {
  std::vector<std::string> lanes = {"sim", "gloo", "nccl", "hosts"};
  if (all_lanes) lanes.push_back("all");
  command
      .add_option(
          "--lane", arguments.lane,
          all_lanes ? "where to run: the simulator (which is meant when it is left out), real Gloo "
                      "over TCP, NCCL on a GPU, Gloo between hosts of their own, or all, which is "
                      "the first two"
                    : "where to run: the simulator (which is meant when it is left out), real Gloo "
                      "over TCP, NCCL on a GPU, or Gloo between hosts of their own")
      ->check(CLI::IsMember(lanes));
  command
      .add_option("--subject", arguments.subject,
                  "the reducer under test: reducer, seeded:ID, torch, torch:VERSION, torch:FOLDER "
                  "(ci/torch builds these), python:FILE.py:FUNCTION, or a shared library")
      ->capture_default_str();
  command.add_option("--against", arguments.against,
                     "a second one that runs every case, too: the two must agree bit for bit, as "
                     "far as their contracts expect the same; without faults");
  command.add_option("--nccl", arguments.nccl,
                     "the NCCL of the lane nccl: a version that ci/nccl has fetched, or a file; in "
                     "the lane sim, the release that the simulated NCCL follows: " +
                         nccl_names() + " (2.28 if left out)");
  command.add_flag("--played", arguments.is_played,
                   "in the lane nccl, play the GPU on the host; where there is none, but an NCCL, "
                   "this happens by itself");
  add_hosts_options(command, arguments.hosts);
}

int refuse_machine(LaneKind lane, const Subject& subject, int jobs) {
  const Status status = check_needs(needs_of(lane, subject, jobs));
  return status.ok() ? 0 : complain(status, kInconclusive);
}

int refuse_lane(const Arguments& arguments, LaneKind lane, const Subject& subject) {
  if (!has_lane(lane, Subject()))
    return complain("this program has the simulator's lane alone: build the target lockstep");
  if (!has_lane(lane, subject)) return become_seeded(arguments);
  if (lane == LaneKind::kSim) return 0;  // it was checked first
  if (const int code = refuse_machine(lane, subject); code != 0) return code;
  if (lane == LaneKind::kHosts) return refuse_hosts(arguments.hosts);
  if (lane != LaneKind::kNccl) return 0;
  const Probe probe = probe_nccl_apart();
  if (probe.is_ready) return 0;
  if (!probe.lacks_device) return complain("the nccl lane cannot run: " + probe.line);
  std::string why = "LOCKSTEP_NCCL_PLAYED=0";
  if (may_play_nccl()) {
    play_nccl();
    const Probe played = probe_nccl_apart();
    if (played.is_ready) {
      write_aside(fmt::format("no CUDA device: {}\n", played.line));
      return 0;
    }
    why = played.line;
  }
  write_aside(
      fmt::format("skipped: no CUDA device ({}), and none is played ({})\n", probe.line, why));
  return kInconclusive;
}

}  // namespace lockstep::properties
