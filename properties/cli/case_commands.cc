#include "properties/cli/case_commands.h"

#include <fmt/format.h>

#include <cstdlib>
#include <random>
#include <string>

#include "properties/case/case_json.h"
#include "properties/cli/found_with.h"
#include "properties/cli/number_options.h"
#include "properties/cli/output.h"
#include "properties/cli/resolve.h"

namespace lockstep::properties {

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

namespace {

// Takes options that the user does not give from the record of how the case was found. Returns an
// error text, or nothing.
std::string take_from_case(const CLI::App& command, Arguments& a) {
  return take_found_with(command, a.case_file,
                         {a.subject, a.lane, a.against, a.contract, a.values, a.nccl});
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

// Fills in what makes this run a part of a campaign. Returns an error text if it cannot be one.
std::string resolve_campaign(const Arguments& arguments, const CLI::App& command,
                             FuzzOptions& options) {
  if (options.lanes.size() != 1)
    return "--campaign: a campaign has one lane, so give --lane sim, gloo or nccl";
  if (options.lanes.front() == LaneKind::kHosts)
    return "--campaign: the lane hosts has no campaigns: use its hosts as parts of the lane gloo";
  const auto parts =
      arguments.parts == 0 ? std::nullopt : std::optional<std::uint64_t>(arguments.parts);
  const Result<CampaignPart> part = resolve_part(arguments.part, parts, [](const char* name) {
    return static_cast<const char*>(::getenv(name));
  });
  if (!part) return part.error().failure().detail;
  options.campaign =
      CampaignOptions{LOCKSTEP_VERSION,       arguments.campaign,  *part,
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
  return run_part(options);
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

// Resolves what a command runs its case on. Returns 0, or an exit code after one line.
template <class Options>
int prepare(Arguments& arguments, const CLI::App& command, Options& options) {
  if (const int code = refuse_machine(LaneKind::kSim, {}); code != 0) return code;
  if (const std::string wrong = take_from_case(command, arguments); !wrong.empty())
    return complain(wrong);
  if (const std::string wrong = resolve(arguments, options.lane, options.subject); !wrong.empty())
    return complain(wrong);
  options.case_file = arguments.case_file;
  return refuse_lane(arguments, options.lane, options.subject);
}

int replay(Arguments& arguments, const CLI::App& command) {
  const int code = prepare(arguments, command, arguments.replay);
  return code != 0 ? code : run_replay(arguments.replay);
}

int shrink_command(Arguments& arguments, const CLI::App& command) {
  const int code = prepare(arguments, command, arguments.shrink);
  return code != 0 ? code : run_shrink(arguments.shrink);
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

// The options of a part. A part goes on after a failure, and writes to the campaign's folder.
void add_part(CLI::App& command, Arguments& arguments) {
  CLI::Option* campaign = command.add_option(
      "--campaign", arguments.campaign,
      "run a part of the campaign in this folder, which many machines may share");
  for (const char* other : {"--out", "--json", "--junit", "--html", "--keep-going", "--fresh",
                            "--states", "--metamorphic", "--interleaved"})
    campaign->excludes(command.get_option(other));
  command
      .add_option("--part,--shard", arguments.part,
                  "which part: I/N, or auto, which is as Slurm, Kubernetes, Open MPI or PMI say")
      ->capture_default_str()
      ->needs(campaign);
  add_whole(command, "--parts,--shards", arguments.parts,
            "how many there are, where the environment does not say (Kubernetes)", 1)
      ->needs(campaign);
  add_seconds(command, "--block", arguments.block_seconds,
              "seconds from one record of a part to the next")
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
  add_part(*fuzz_app, arguments);
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

}  // namespace

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

}  // namespace lockstep::properties
