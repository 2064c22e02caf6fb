// The program `lockstep`. README.md and --help describe its options and exit codes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <sstream>
#include <string>

#include "faults/seeded/seeded.h"
#include "properties/cli/arguments.h"
#include "properties/cli/case_commands.h"
#include "properties/cli/demo.h"
#include "properties/cli/doctor.h"
#include "properties/cli/kept_folder.h"
#include "properties/cli/number_options.h"
#include "properties/cli/numbers.h"
#include "properties/cli/output.h"
#include "properties/cli/resolve.h"
#include "properties/cli/shell.h"
#include "properties/cli/usage.h"
#include "properties/hosts/namespaces.h"
#include "properties/lane/nccl_setup.h"
#include "properties/lane/process_ranks.h"
#include "properties/process/last_words.h"
#include "properties/process/terminal.h"

namespace lockstep::properties {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 fine, 1 usage, 2 inconclusive, 65 wrong bits, 66 deadlock, 67 livelock, 68 "
    "crash,\n"
    "69 not deterministic, 70 leak, 71 wrong or missing error, 72 ranks differ "
    "(diagnose),\n"
    "73 subjects differ (--against), 74 race on a GPU, mutexes locked in two orders, or misuse of\n"
    "NCCL, 75 NCCL did not run as pinned, 130 interrupted. The nccl lane without a CUDA device: 2.";

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

// campaign report|merge
void add_campaign(CLI::App& app, CampaignCommandOptions& options, std::vector<Command>& commands) {
  CLI::App* group = app.add_subcommand("campaign", "what all parts of a campaign have done");
  group->require_subcommand(1);
  CLI::App* report = group->add_subcommand(
      "report", "print progress, features, failures, and what the campaign excludes");
  CLI::App* merge = group->add_subcommand(
      "merge", "write the smallest case of every pair of features as case files");
  for (CLI::App* each : {report, merge}) {
    each->add_option("folder", options.folder, "of the campaign")->required();
    each->add_option("--json", options.json, "write a report to this file");
  }
  merge->add_option("--subject", options.subject,
                    "what to run where the campaign names a library or a file, which does not run "
                    "by itself");
  merge->add_option("--against", options.against, "the same for the campaign's other subject");
  merge->add_option("--out", options.out, "folder for the cases; FOLDER/merged if left out");
  commands.push_back({report, [&options] { return run_campaign_report(options); }});
  commands.push_back({merge, [&options] { return run_campaign_merge(options); }});
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
  add_gate(app, a, commands);
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
  lockstep::properties::drop_handlers_of_ucx();
  // This program starts itself as one rank of a lane, or to look for a GPU. These commands are not
  // for users, so --help omits them.
  if (argc == 2 && std::string(argv[1]) == "nccl-probe") return lockstep::properties::probe_nccl();
  if (argc == 3 && std::string(argv[1]) == "rank-server")
    return lockstep::properties::serve_ranks(std::atoi(argv[2]));
  return lockstep::properties::after_telling(lockstep::properties::run(argc, argv));
}
