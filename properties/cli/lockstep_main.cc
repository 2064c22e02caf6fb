// The program `lockstep`. README.md and --help describe its options and exit codes.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <sstream>
#include <string>

#include "faults/seeded/seeded.h"
#include "faults/sim/nccl/nccl_profile.h"
#include "properties/case/case_json.h"
#include "properties/cli/campaign.h"
#include "properties/cli/commands.h"
#include "properties/cli/component.h"
#include "properties/cli/corpus_check.h"
#include "properties/cli/demo.h"
#include "properties/cli/doctor.h"
#include "properties/cli/eval.h"
#include "properties/cli/exhaust.h"
#include "properties/cli/explain.h"
#include "properties/cli/export.h"
#include "properties/cli/found_with.h"
#include "properties/cli/fuzz.h"
#include "properties/cli/hosts.h"
#include "properties/cli/kept_folder.h"
#include "properties/cli/matrix.h"
#include "properties/cli/new_project.h"
#include "properties/cli/number_options.h"
#include "properties/cli/numbers.h"
#include "properties/cli/orders.h"
#include "properties/cli/output.h"
#include "properties/cli/scaling.h"
#include "properties/cli/shell.h"
#include "properties/cli/usage.h"
#include "properties/hosts/namespaces.h"
#include "properties/lane/nccl_cache.h"
#include "properties/lane/nccl_played.h"
#include "properties/lane/nccl_setup.h"
#include "properties/lane/needs.h"
#include "properties/lane/process_ranks.h"
#include "properties/process/terminal.h"
#include "properties/subject/torch_subject.h"

namespace lockstep::properties {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 fine, 1 usage, 2 inconclusive, 65 wrong bits, 66 deadlock, 67 livelock, 68 "
    "crash,\n"
    "69 not deterministic, 70 leak, 71 wrong or missing error, 72 ranks differ "
    "(diagnose),\n"
    "73 subjects differ (--against), 74 race on a GPU, mutexes locked in two orders, or misuse of\n"
    "NCCL, 75 NCCL did not run as pinned, 130 interrupted. The nccl lane without a CUDA device: 2.";

struct Arguments {
  char** argv = nullptr;
  std::string lane;  // empty: the simulator, except for torch and python
  std::string subject = "reducer";
  std::string against;  // empty: none
  // Empty: LOCKSTEP_NCCL, or the one that the loader finds; in the simulator its own.
  std::string nccl;
  bool is_played = false;
  std::string contract = "own";
  std::string values = "own";
  std::vector<std::string> subjects;  // of `matrix`
  std::string phase_faults;           // of `matrix`
  std::string faults = "swarm";
  std::string transport;    // empty: all kinds
  std::string metamorphic;  // empty: no case runs twice; all, or names of options
  std::string case_file;
  std::string shell;
  std::vector<std::string> records;
  CorpusCheckOptions corpus_check;
  FuzzOptions fuzz;
  std::string campaign;  // empty: none
  std::string shard = "auto";
  std::uint64_t shards = 0;  // 0: as --shard or the environment says
  double block_seconds = CampaignOptions().block_seconds;
  CampaignCommandOptions campaign_command;
  HostsOptions hosts;
  RankCommandOptions rank;
  ReplayOptions replay;
  ShrinkCommandOptions shrink;
  GenerateCommandOptions generate;
  ExportOptions to_export;
  ExplainOptions explain;
  OrdersOptions orders;
  EvalOptions eval;
  ExhaustOptions exhaust;
  ComponentOptions component;
  ScalingOptions scaling;
  MatrixOptions matrix;
  NewOptions new_project;
};

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

// The releases that the simulated NCCL can follow.
std::string nccl_names() {
  std::string names;
  for (const faults::NcclRelease& release : faults::kNcclReleases)
    names += (names.empty() ? "" : " ") + std::string(release.name);
  return names;
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

// Fills in lane and subject. Returns an error text if one of them is not available.
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

// What the user does not name is as it was when the case was found. Returns an error text.
std::string take_from_case(const CLI::App& command, Arguments& a) {
  return take_found_with(command, a.case_file,
                         {a.subject, a.lane, a.against, a.contract, a.values, a.nccl});
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

// Copies --transport into the options. Returns an error text if the cases would not follow it.
std::string resolve_transport(const Arguments& arguments, FuzzOptions& options) {
  if (arguments.transport.empty()) return {};
  if (options.lanes != std::vector{LaneKind::kSim})
    return "--transport: GPUs are simulated: it needs the lane sim alone";
  if (!common_capabilities(options.subject).has(Capability::kGpu))
    return "--transport: the subject does not say that it works on a GPU";
  options.generate.transport = transport_of(arguments.transport);
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

// Returns 0 if this machine has what the lane needs; otherwise prints one line.
int refuse_machine(LaneKind lane, const Subject& subject, int jobs = 1) {
  const Status status = check_needs(needs_of(lane, subject, jobs));
  return status.ok() ? 0 : complain(status, kInconclusive);
}

// Returns 0 if the lane can run here; otherwise prints one line.
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

// Resolves the lanes, the subject and the options of the generator. Returns an error text if one is
// not available.
std::string resolve_fuzz(Arguments& arguments, const CLI::App& command, LaneKind& lane) {
  FuzzOptions& options = arguments.fuzz;
  if (const std::string wrong = resolve(arguments, lane, options.subject); !wrong.empty())
    return wrong;
  options.lanes = {lane};
  if (arguments.lane == "all") options.lanes = {LaneKind::kSim, LaneKind::kGloo};
  if (const Status status = parse_faults(arguments.faults, options.generate); !status.ok())
    return status.failure().detail;
  if (const std::string wrong = resolve_transport(arguments, options); !wrong.empty()) return wrong;
  const CLI::Option* const faults = command.get_option_no_throw("--faults");
  const bool has_faults = options.around ? !options.around->faults.faults.empty()
                                         : faults->count() != 0 && arguments.faults != "none";
  if (!common_capabilities(options.subject).has(Capability::kFaults) && has_faults)
    return fmt::format("--faults: the subject '{}' takes no faults", options.subject.name());
  if (options.subject.against && has_faults)
    return "--against: faults meet two subjects at different times, so there must be none";
  if (options.subject.against) options.generate.faults = GenerateOptions::Faults::kNone;
  if (options.generate.is_interleaved &&
      !common_capabilities(options.subject).has(Capability::kInterleaved))
    return fmt::format(
        "--interleaved: the subject '{}' has no such programs (Lockstep's reducer and PyTorch's "
        "have)",
        options.subject.name());
  if (const Status status = parse_metamorphic(arguments.metamorphic, has_faults, options);
      !status.ok())
    return status.failure().detail;
  const Status status = check_lanes(options);
  return status.ok() ? std::string() : status.failure().detail;
}

// Fills in what makes this run a shard of a campaign. Returns an error text if it cannot be one.
std::string resolve_campaign(const Arguments& arguments, const CLI::App& command,
                             FuzzOptions& options) {
  if (options.lanes.size() != 1)
    return "--campaign: a campaign has one lane, so give --lane sim, gloo or nccl";
  if (options.lanes.front() == LaneKind::kHosts)
    return "--campaign: the lane hosts has no campaigns: use its hosts as shards of the lane gloo";
  const auto shards =
      arguments.shards == 0 ? std::nullopt : std::optional<std::uint64_t>(arguments.shards);
  const Result<Shard> shard = resolve_shard(arguments.shard, shards, [](const char* name) {
    return static_cast<const char*>(::getenv(name));
  });
  if (!shard) return shard.error().failure().detail;
  options.campaign =
      CampaignOptions{LOCKSTEP_VERSION,       arguments.campaign,  *shard,
                      arguments.faults,       arguments.transport, command.count("--seed") != 0,
                      arguments.block_seconds};
  return {};
}

int fuzz(Arguments& arguments, const CLI::App& command) {
  FuzzOptions& options = arguments.fuzz;
  if (const int code = refuse_machine(LaneKind::kSim, {}); code != 0) return code;
  LaneKind lane = LaneKind::kSim;
  if (const std::string wrong = resolve_fuzz(arguments, command, lane); !wrong.empty())
    return complain(wrong);
  for (const LaneKind each : options.lanes)
    if (const int code = refuse_lane(arguments, each, options.subject); code != 0) return code;
  if (command.count("--seed") == 0) options.seed = std::random_device{}();
  if (arguments.campaign.empty()) return run_fuzz(options);
  if (const std::string wrong = resolve_campaign(arguments, command, options); !wrong.empty())
    return complain(wrong);
  return run_shard(options);
}

// The case itself must be one that the subject can run: otherwise nothing was fixed.
int fixed_command(Arguments& arguments, const CLI::App& command) {
  if (const std::string wrong = take_from_case(command, arguments); !wrong.empty())
    return complain(wrong);
  Result<Case> around = read_case(arguments.case_file);
  if (!around) return complain(around.error());
  const Result<Subject> subject = find_subject(arguments.subject);
  if (!subject) return complain(subject.error());
  const std::string lacks =
      missing_message(*around, common_capabilities(*subject), arguments.subject);
  if (!lacks.empty()) return complain(lacks);
  arguments.fuzz.around = std::move(*around);
  return fuzz(arguments, command);
}

int generate_command(Arguments& arguments, const CLI::App& command) {
  GenerateCommandOptions& options = arguments.generate;
  if (const std::string wrong = resolve_fuzz(arguments, command, options.lane); !wrong.empty())
    return complain(wrong);
  options.generate = generate_options_of(arguments.fuzz, options.lane);
  return run_generate(options);
}

int replay(Arguments& arguments, const CLI::App& command) {
  ReplayOptions& options = arguments.replay;
  if (const int code = refuse_machine(LaneKind::kSim, {}); code != 0) return code;
  if (const std::string wrong = take_from_case(command, arguments); !wrong.empty())
    return complain(wrong);
  if (const std::string wrong = resolve(arguments, options.lane, options.subject); !wrong.empty())
    return complain(wrong);
  options.case_file = arguments.case_file;
  if (const int code = refuse_lane(arguments, options.lane, options.subject); code != 0)
    return code;
  return run_replay(options);
}

int shrink_command(Arguments& arguments, const CLI::App& command) {
  ShrinkCommandOptions& options = arguments.shrink;
  if (const int code = refuse_machine(LaneKind::kSim, {}); code != 0) return code;
  if (const std::string wrong = take_from_case(command, arguments); !wrong.empty())
    return complain(wrong);
  if (const std::string wrong = resolve(arguments, options.lane, options.subject); !wrong.empty())
    return complain(wrong);
  options.case_file = arguments.case_file;
  if (const int code = refuse_lane(arguments, options.lane, options.subject); code != 0)
    return code;
  return run_shrink(options);
}

// Resolves the subjects of a matrix, each with a lane in which it can run. Returns an error text if
// one is not available.
std::string resolve_columns(const Arguments& arguments, std::vector<PoolStation>& columns) {
  for (const std::string& name : arguments.subjects) {
    Result<Subject> subject = find_subject(name);
    if (!subject) return subject.error().failure().detail;
    for (const PoolStation& other : columns)
      if (other.subject.name() == subject->name())
        return fmt::format("--subjects: '{}' is there twice", subject->name());
    const bool has_group = subject->has_own_group();
    if (has_group && arguments.lane == "sim") return has_no_such_lane(*subject);
    LaneKind lane = lane_named(arguments.lane);
    if (has_group && !(lane == LaneKind::kHosts && has_hosts(*subject))) lane = LaneKind::kGloo;
    if (lane == LaneKind::kHosts)
      if (std::string wrong = check_hosts(arguments.hosts); !wrong.empty()) return wrong;
    columns.push_back({lane, std::move(*subject)});
  }
  (void)seeded::select("");  // the processes that run cases select the bugs of their subjects
  return {};
}

int matrix(Arguments& arguments) {
  MatrixOptions& options = arguments.matrix;
  if (const int code = refuse_machine(LaneKind::kSim, {}); code != 0) return code;
  if (const Status status = choose_cases(arguments.phase_faults, options); !status.ok())
    return complain(status.failure().detail);
  // Most of these faults act there alone.
  const bool has_phases = !arguments.phase_faults.empty();
  if (has_phases && arguments.lane.empty()) arguments.lane = "hosts";
  if (const std::string wrong = resolve_columns(arguments, options.columns); !wrong.empty())
    return complain(wrong);
  for (const PoolStation& column : options.columns)
    if (const int code = refuse_lane(arguments, column.lane, column.subject); code != 0)
      return code;
  const auto most = std::max_element(options.phases.worlds.begin(), options.phases.worlds.end());
  const bool has_too_few = arguments.lane == "hosts" && *most > host_count();
  if (has_phases && has_too_few)
    return complain(fmt::format("--ranks {}: the lane hosts has {} hosts", *most, host_count()));
  options.corpus = kept_folder(options.corpus);
  return run_matrix(options);
}

void add_policy(CLI::App& command, std::optional<Schedule::Policy>& policy) {
  const auto take = [&policy](const std::string& name) { policy = policy_of(name); };
  command
      .add_option_function<std::string>("--policy", take,
                                        "how every schedule of the simulator picks what runs next; "
                                        "without it cases draw a policy")
      ->check(CLI::IsMember(policy_names()));
}

void add_interleaved(CLI::App& command, bool& is_interleaved) {
  command.add_flag("--interleaved", is_interleaved,
                   "let forwards and backward calls interleave in every program that can have it, "
                   "and not in one of six");
}

// Adds the options of the generator, for `fuzz` and `generate`.
void add_sources_of_cases(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--faults", arguments.faults,
                  "swarm, none, or kinds of faults with commas between them: " + kinds_of_faults())
      ->capture_default_str();
  command
      .add_option("--transport", arguments.transport,
                  "every case on this one, in the simulator: host, staged (a GPU, over the "
                  "host's group), or nccl (a GPU, over NCCL); without it some of each")
      ->check(CLI::IsMember({"host", "staged", "nccl"}));
  add_interleaved(command, arguments.fuzz.generate.is_interleaved);
  command
      .add_flag("--metamorphic{all}", arguments.metamorphic,
                "no model: run every case once more with an option switched that must not change "
                "what comes out; --metamorphic=views,rebuild draws from these alone; without "
                "faults, unless --faults is given; options: " +
                    switchable_names())
      ->type_name("");
  add_policy(command, arguments.fuzz.generate.policy);
  // The option had this name before 0.1.0.
  const auto refuse_old_name = [](const std::string&) {
    throw CLI::ValidationError("--fabric", "the option is --transport now");
  };
  command.add_option_function<std::string>("--fabric", refuse_old_name)->group("");
}

// The options of a run of many cases.
void add_run_of_cases(CLI::App& command, FuzzOptions& f) {
  add_whole(command, "--seed", f.seed, "of the cases; drawn and printed when left out");
  command
      .add_option(
          "--jobs", f.jobs,
          "processes that run cases; without it 1 in the simulator and on a GPU, 4 over Gloo")
      ->check(CLI::Range(1, 64));
  command.add_option("--out", f.out, "folder for failing cases")->capture_default_str();
  command.add_option("--json", f.json, "write a report to this file");
  command.add_option("--junit", f.junit, "write a JUnit report to this file");
  command.add_option("--html", f.html, "write a page about the run to this file");
  add_seconds(command, "--shrink-time", f.shrink_seconds, "seconds to make a failing case small",
              true);
  command.add_flag("--keep-going", f.keep_going, "after a failure look for others that differ");
  command.add_flag("--verbose", f.is_verbose, "print at the end all that was counted");
}

// The options of a shard. A shard goes on after a failure, and writes to the campaign's folder.
void add_shard(CLI::App& command, Arguments& arguments) {
  CLI::Option* campaign = command.add_option(
      "--campaign", arguments.campaign,
      "run a shard of the campaign in this folder, which many machines may share");
  for (const char* other : {"--out", "--json", "--junit", "--html", "--keep-going", "--fresh",
                            "--states", "--metamorphic", "--interleaved"})
    campaign->excludes(command.get_option(other));
  command
      .add_option("--shard", arguments.shard,
                  "which shard: I/N, or auto, which is as Slurm, Kubernetes, Open MPI or PMI say")
      ->capture_default_str()
      ->needs(campaign);
  add_whole(command, "--shards", arguments.shards,
            "how many there are, where the environment does not say (Kubernetes)", 1)
      ->needs(campaign);
  add_seconds(command, "--block", arguments.block_seconds,
              "seconds from one record of a shard to the next")
      ->needs(campaign);
}

CLI::App* add_fuzz(CLI::App& app, Arguments& arguments) {
  FuzzOptions& f = arguments.fuzz;
  CLI::App* fuzz_app =
      app.add_subcommand("fuzz", "generate cases and run them until something fails");
  add_lane_and_subject(*fuzz_app, arguments, true);
  add_judged_by(*fuzz_app, arguments);
  auto* time = add_seconds(*fuzz_app, "--time", f.seconds, "seconds to search");
  add_whole(*fuzz_app, "--cases", f.cases, "cases to run, instead of a time", 1)->excludes(time);
  add_whole(*fuzz_app, "--least", f.least,
            "a run in which fewer cases than this pass is inconclusive (exit code 2)");
  add_sources_of_cases(*fuzz_app, arguments);
  add_run_of_cases(*fuzz_app, f);
  fuzz_app->add_flag("--states", f.shows_states,
                     "print at the end what the reducer was doing when faults acted");
  fuzz_app->add_flag("--fresh", f.is_fresh,
                     "do not run first what earlier runs found with this subject (in --out)");
  add_shard(*fuzz_app, arguments);
  return fuzz_app;
}

CLI::App* add_fixed(CLI::App& app, Arguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "fixed",
      "run a case that used to fail, and its neighbours: other schedules, values, options");
  command->add_option("case", arguments.case_file, "a case file")->required();
  add_lane_and_subject(*command, arguments, false);
  add_judged_by(*command, arguments);
  auto* time = add_seconds(*command, "--time", arguments.fuzz.seconds, "seconds to run");
  add_whole(*command, "--cases", arguments.fuzz.cases, "cases to run, instead of a time", 1)
      ->excludes(time);
  add_run_of_cases(*command, arguments.fuzz);
  return command;
}

CLI::App* add_generate(CLI::App& app, Arguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "generate", "write the case that `fuzz` with the same options has at an index of a seed");
  add_whole(*command, "seed", arguments.generate.seed, "as of fuzz --seed")->required();
  add_whole(*command, "index", arguments.generate.index, "of the case, from 0")->required();
  add_lane_and_subject(*command, arguments, false);
  add_judged_by(*command, arguments);
  add_sources_of_cases(*command, arguments);
  command->add_option("-o,--output", arguments.generate.output,
                      "the file to write; standard output when it is left out");
  return command;
}

CLI::App* add_eval(CLI::App& app, EvalOptions& options) {
  CLI::App* command = app.add_subcommand(
      "eval", "measure how many cases it takes to find each planted bug, in trials of many seeds");
  command->add_option("--bugs", options.bugs, "ids of planted bugs; all when it is left out")
      ->delimiter(',');
  add_whole(*command, "--trials", options.trials, "of each bug, each with the next seed", 1)
      ->default_str("20");
  add_whole(*command, "--cases", options.cases, "of a trial, at most", 1)->default_str("20000");
  add_whole(*command, "--seed", options.seed, "of the first trial")->default_str("1");
  command->add_option("--jobs", options.jobs, "trials at once")->check(CLI::Range(1, 64));
  add_policy(*command, options.policy);
  command->add_flag("--components", options.components,
                    "look with every component, and not with programs; --cases are situations");
  add_seconds(*command, "--shrink-time", options.shrink_seconds,
              "seconds to make each case small that found its bug", true)
      ->default_str("0");
  command
      ->add_option("--log", options.log,
                   "the file to which every trial is appended; those that it has are not run again")
      ->capture_default_str();
  command->add_option("--json", options.json, "write a report to this file");
  command->add_option("--html", options.html, "write a page with the survival curves to this file");
  command->add_option("--compare", options.compare, "two logs: compare them, and measure nothing")
      ->expected(2);
  return command;
}

CLI::App* add_exhaust(CLI::App& app, Arguments& arguments) {
  ExhaustOptions& options = arguments.exhaust;
  CLI::App* command = app.add_subcommand(
      "exhaust", "run a small program in every order of its steps that can matter");
  command
      ->add_option("--program", options.programs,
                   "programs of the folder properties/exhaust by name, or case files")
      ->delimiter(',')
      ->required();
  command
      ->add_option("--subject", arguments.subject,
                   "the reducer under test: reducer, seeded:ID, or a shared library")
      ->capture_default_str();
  command
      ->add_option("--log", options.log,
                   "the folder with a log for each program; a search goes on from its log")
      ->capture_default_str();
  add_seconds(*command, "--time", options.seconds, "seconds for each program");
  command->add_option("--jobs", options.jobs, "programs that run at once")
      ->check(CLI::Range(1, 64));
  const auto take_most = [&options](const std::string& text) {
    const std::optional<double> number = decimal_number(text);
    if (!number || *number < 1)
      throw CLI::ValidationError("--most", fmt::format("'{}' is not a number from 1 on", text));
    options.most = *number;
  };
  command
      ->add_option_function<std::string>(
          "--most", take_most, "a program with a higher estimate of its executions is refused")
      ->type_name("NUMBER")
      ->default_str("2e7");
  command->add_option("--out", options.out, "folder for failing cases")->capture_default_str();
  command->add_option("--json", options.json, "write a report to this file");
  return command;
}

int exhaust_command(Arguments& arguments) {
  if (const int code = refuse_machine(LaneKind::kSim, {}); code != 0) return code;
  ExhaustOptions& options = arguments.exhaust;
  LaneKind lane = LaneKind::kSim;
  if (const std::string wrong = resolve(arguments, lane, options.subject); !wrong.empty())
    return complain(wrong);
  if (lane != LaneKind::kSim)
    return complain("the subject 'torch' has no lane in the simulator, which the search needs");
  options.folder = kept_folder(options.folder);
  return run_exhaust(options);
}

CLI::App* add_matrix(CLI::App& app, Arguments& arguments) {
  MatrixOptions& options = arguments.matrix;
  CLI::App* command = app.add_subcommand(
      "matrix", "run the same cases on several subjects: groups of cases by subjects");
  command
      ->add_option("--subjects", arguments.subjects,
                   "the reducers under test, with commas between them: reducer, seeded:ID, torch, "
                   "or shared libraries")
      ->delimiter(',')
      ->required();
  add_whole(*command, "--cases", options.cases,
            "cases to generate, beside those that are kept (200); with --faults, of each cell (1)",
            1)
      ->default_str("");
  add_whole(*command, "--seed", options.seed, "of the generated cases")->default_str("1");
  add_interleaved(*command, options.is_interleaved);
  command->add_option("--faults", arguments.phase_faults,
                      "instead of kept and generated cases: these kinds of faults, or all, each in "
                      "each phase of training");
  command->add_option("--ranks", options.phases.worlds, "with --faults: how many ranks there are")
      ->delimiter(',')
      ->check(CLI::Range(2U, hosts::kMostHosts))
      ->default_str("2,3,8");
  command
      ->add_option("--lane", arguments.lane,
                   "where all subjects run; when it is left out, torch runs over Gloo, and all "
                   "others in the simulator, or with --faults all of them on hosts")
      ->check(CLI::IsMember({"sim", "gloo", "hosts"}));
  add_hosts_options(*command, arguments.hosts);
  command
      ->add_option("--jobs", options.jobs,
                   "cases at once; without it 1 in the simulator, 4 if a subject runs over Gloo")
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--corpus", options.corpus,
                   "folder of kept cases (*.json); those below its folder torch are findings; "
                   "none: no kept cases")
      ->capture_default_str();
  command->add_option("--out", options.out, "folder for the generated cases that fail")
      ->capture_default_str();
  command->add_option("--markdown", options.markdown, "write the matrix to this file as Markdown");
  command->add_option("--json", options.json, "write a report to this file");
  command->add_option("--html", options.html, "write a page to this file");
  return command;
}

CLI::App* add_diagnose(CLI::App& app, Arguments& arguments) {
  CLI::App* command = app.add_subcommand("diagnose",
                                         "join the flight records of the ranks of a job: "
                                         "Lockstep's (Reducer::flight_record), or those "
                                         "that PyTorch's recorder dumps, as JSON or pickled");
  command->add_option("record", arguments.records, "a file from each rank")->required();
  return command;
}

CLI::App* add_replay(CLI::App& app, Arguments& arguments) {
  CLI::App* command = app.add_subcommand("replay", "run one case and judge it");
  command->add_option("case", arguments.case_file, "a case file")->required();
  add_lane_and_subject(*command, arguments, false);
  add_judged_by(*command, arguments);
  command->add_option("--trace", arguments.replay.trace,
                      "write what happened in Chrome's trace format");
  command->add_option("--json", arguments.replay.json, "write a report to this file");
  command->add_option("--html", arguments.replay.html,
                      "write a page with what each rank did to this file");
  command->add_flag("--in-process", arguments.replay.in_process,
                    "run the case in this process, once and without a time limit, for a debugger: "
                    "gdb --args lockstep replay CASE --in-process");
  command->add_flag("--expect-fail", arguments.replay.expect_fail,
                    "exit with 0 if it fails, with 2 if not");
  return command;
}

CLI::App* add_shrink(CLI::App& app, Arguments& arguments) {
  CLI::App* command =
      app.add_subcommand("shrink", "make a failing case small; writes CASE.min.json");
  command->add_option("case", arguments.case_file, "a case file")->required();
  add_lane_and_subject(*command, arguments, false);
  add_judged_by(*command, arguments);
  add_seconds(*command, "--budget", arguments.shrink.budget_seconds, "seconds");
  command->add_option("--html", arguments.shrink.html,
                      "write a page with what each rank did in the small case to this file");
  return command;
}

// A command, and what runs when it was given.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};

// campaign report|merge|triage
void add_campaign(CLI::App& app, CampaignCommandOptions& options, std::vector<Command>& commands) {
  CLI::App* group = app.add_subcommand("campaign", "what all shards of a campaign have done");
  group->require_subcommand(1);
  CLI::App* report = group->add_subcommand(
      "report", "print progress, features, failures, and what the campaign excludes");
  CLI::App* merge = group->add_subcommand(
      "merge", "write the smallest case of every pair of features as case files");
  CLI::App* triage = group->add_subcommand(
      "triage", "group the failures by their signatures, and make the first of each smaller");
  for (CLI::App* each : {report, merge, triage}) {
    each->add_option("folder", options.folder, "of the campaign")->required();
    each->add_option("--json", options.json, "write a report to this file");
  }
  for (CLI::App* each : {report, triage})
    each->add_option("--html", options.html, "write a page to this file");
  for (CLI::App* each : {merge, triage}) {
    each->add_option("--subject", options.subject,
                     "what to run where the campaign names a library or a file, which does not run "
                     "by itself");
    each->add_option("--against", options.against, "the same for the campaign's other subject");
  }
  merge->add_option("--out", options.out, "folder for the cases; FOLDER/merged if left out");
  add_seconds(*triage, "--shrink-time", options.shrink_seconds,
              "seconds to make the first case of a group smaller", true);
  triage->add_flag("--all", options.all, "make every failing case small that is not yet");
  commands.push_back({report, [&options] { return run_campaign_report(options); }});
  commands.push_back({merge, [&options] { return run_campaign_merge(options); }});
  commands.push_back({triage, [&options] { return run_campaign_triage(options); }});
}

std::vector<Command> add_commands_on_cases(CLI::App& app, Arguments& a) {
  CLI::App* fuzz_app = add_fuzz(app, a);
  CLI::App* fixed_app = add_fixed(app, a);
  CLI::App* replay_app = add_replay(app, a);
  CLI::App* shrink_app = add_shrink(app, a);
  CLI::App* show_app = app.add_subcommand("show", "print a case in English");
  show_app->add_option("case", a.case_file, "a case file")->required();
  CLI::App* generate_app = add_generate(app, a);
  return {{fuzz_app, [=, &a] { return fuzz(a, *fuzz_app); }},
          {fixed_app, [=, &a] { return fixed_command(a, *fixed_app); }},
          {replay_app, [=, &a] { return replay(a, *replay_app); }},
          {shrink_app, [=, &a] { return shrink_command(a, *shrink_app); }},
          {show_app, [&a] { return run_show(a.case_file); }},
          {generate_app, [=, &a] { return generate_command(a, *generate_app); }},
          {add_export(app, a.to_export), [&a] { return run_export(a.to_export); }}};
}

std::vector<Command> add_other_commands(CLI::App& app, Arguments& a) {
  std::vector<Command> commands;
  commands.push_back({add_diagnose(app, a), [&a] { return run_diagnose(a.records); }});
  commands.push_back({add_eval(app, a.eval), [&a] {
                        const int code = refuse_machine(LaneKind::kSim, {});
                        return code != 0 ? code : run_eval(a.eval);
                      }});
  commands.push_back({add_matrix(app, a), [&a] { return matrix(a); }});
  commands.push_back(
      {add_component(app, a.component), [&a] { return run_component(a.component); }});
  commands.push_back({add_exhaust(app, a), [&a] { return exhaust_command(a); }});
  commands.push_back(
      {add_explain_bits(app, a.explain), [&a] { return run_explain_bits(a.explain); }});
  commands.push_back({add_orders(app, a.orders), [&a] { return run_orders(a.orders); }});
  commands.push_back({add_scaling(app, a.scaling), [&a] { return run_scaling(a.scaling); }});
  add_campaign(app, a.campaign_command, commands);
  commands.push_back({add_rank(app, a.rank), [&a] { return run_rank_command(a.rank); }});
  commands.push_back({app.add_subcommand("demo",
                                         "show what Lockstep does, on a bug that PyTorch's reducer "
                                         "had for three years"),
                      run_demo});
  commands.push_back({add_new(app, a.new_project), [&a] { return run_new(a.new_project); }});
  commands.push_back(
      {app.add_subcommand("doctor",
                          "say what this machine can run, and what is missing for the rest"),
       run_doctor});

  CLI::App* corpus_app = app.add_subcommand("corpus", "regression cases");
  corpus_app->require_subcommand(1);
  CLI::App* check_app =
      corpus_app->add_subcommand("check", "run every case of a folder and judge it");
  check_app->add_option("--subject", a.subject, "the reducer under test, as that of fuzz")
      ->capture_default_str();
  check_app->add_option("--jobs", a.corpus_check.jobs, "cases at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  CLI::App* convert_app =
      corpus_app->add_subcommand("convert", "write every case anew, in the newest schema");
  for (CLI::App* each : {check_app, convert_app})
    each->add_option("folder", a.corpus_check.folder, "with *.json files")->capture_default_str();
  commands.push_back({corpus_app, [&a, convert_app] {
                        if (*convert_app) return run_corpus_convert(a.corpus_check.folder);
                        Result<Subject> subject = find_subject(a.subject);
                        if (!subject) return complain(subject.error());
                        a.corpus_check.subject = std::move(*subject);
                        const int code = refuse_machine(LaneKind::kGloo, a.corpus_check.subject,
                                                        a.corpus_check.jobs);
                        a.corpus_check.folder = kept_folder(a.corpus_check.folder);
                        return code != 0 ? code : run_corpus_check(a.corpus_check);
                      }});

  CLI::App* completion_app =
      app.add_subcommand("completion", "print what a shell needs to complete commands and options");
  completion_app->add_option("shell", a.shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  commands.push_back({completion_app, [&a, &app] {
                        tell_reference(a.shell == "bash" ? bash_completion(app)
                                                         : zsh_completion(app));
                        return 0;
                      }});
  commands.push_back(
      {app.add_subcommand("man", "print the manual page; read it with: man -l -"), [&app] {
         tell_reference(man_page(app, LOCKSTEP_VERSION));
         return 0;
       }});
  return commands;
}

int run(int argc, char** argv) {
  CLI::App app("Lockstep checks data-parallel gradient reducers against a slow model, bit for bit.",
               "lockstep");
  app.require_subcommand(1);
  app.footer(kExitCodes);
  app.set_version_flag("--version", fmt::format("lockstep {} ({})", LOCKSTEP_VERSION, kCommit));
  Arguments arguments;
  arguments.argv = argv;
  const std::string program = argc > 0 ? argv[0] : "lockstep";
  arguments.fuzz.program = arguments.replay.program = arguments.shrink.program = program;
  arguments.campaign_command.program = arguments.matrix.program = program;
  arguments.matrix.command = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  arguments.exhaust.program = arguments.component.program = program;
  std::vector<Command> commands = add_commands_on_cases(app, arguments);
  for (Command& command : add_other_commands(app, arguments))
    commands.push_back(std::move(command));
  group_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    const int code = app.exit(success, text, text);
    tell_reference(text.str());
    return code;
  } catch (const CLI::ParseError& error) {
    return complain(usage_error(app, error.what(), program));
  }
  if (const Status status = check_reports(app); !status.ok()) return complain(status);
  for (const Command& command : commands)
    if (*command.app) return command.run();
  return kUsage;  // a command is required, so this is not reached
}

}  // namespace
}  // namespace lockstep::properties

int main(int argc, char** argv) {
  lockstep::properties::open_standard_streams();
  // This program starts itself as one rank of a lane, or to look for a GPU. These commands are not
  // for users, so --help omits them.
  if (argc == 2 && std::string(argv[1]) == "nccl-probe") return lockstep::properties::probe_nccl();
  if (argc == 3 && std::string(argv[1]) == "rank-server")
    return lockstep::properties::serve_ranks(std::atoi(argv[2]));
  return lockstep::properties::after_telling(lockstep::properties::run(argc, argv));
}
