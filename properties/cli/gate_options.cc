#include <CLI/CLI.hpp>

#include "properties/cli/arguments.h"
#include "properties/cli/gate.h"
#include "properties/cli/number_options.h"
#include "properties/cli/output.h"
#include "properties/cli/resolve.h"

namespace lockstep::properties {
namespace {

int run_gate(Arguments& arguments, bool is_record) {
  GateOptions& options = arguments.gate;
  if (const int code = refuse_machine(LaneKind::kSim, {}); code != 0) return code;
  if (const std::string wrong = resolve(arguments, options.lane, options.subject); !wrong.empty())
    return complain(wrong);
  if (const int code = refuse_lane(arguments, options.lane, options.subject); code != 0)
    return code;
  return is_record ? run_gate_record(options) : run_gate_check(options);
}

}  // namespace

void add_gate(CLI::App& app, Arguments& arguments, std::vector<Command>& commands) {
  GateOptions& options = arguments.gate;
  CLI::App* group = app.add_subcommand(
      "gate", "hold a reducer to the bits that it had before a change (in a project's CI)");
  group->require_subcommand(1);
  CLI::App* record = group->add_subcommand("record", "record the bits of every case of a folder");
  CLI::App* check =
      group->add_subcommand("check", "fail where a case has other bits than recorded");
  for (CLI::App* each : {record, check}) {
    each->add_option("folder", options.folder, "of the gate; record fills a new one with cases")
        ->required();
    each->add_option("--label", options.label,
                     "the version and platform that have these bits, such as 2.15.0-linux-x86_64; "
                     "that of this machine if left out");
    each->add_option("--lane", arguments.lane,
                     "where to run: sim (which is meant when it is left out), gloo, or nccl")
        ->check(CLI::IsMember({"sim", "gloo", "nccl"}));
    each->add_option("--subject", arguments.subject, "the reducer under test, as that of fuzz")
        ->capture_default_str();
    add_judged_by(*each, arguments);
  }
  record->add_option("--why", options.why, "the reason why bits are others than before");
  add_whole(*record, "--cases", options.cases, "to generate for a new folder", 1)
      ->capture_default_str();
  add_whole(*record, "--seed", options.seed, "of these cases")->capture_default_str();
  commands.push_back({record, [&arguments] { return run_gate(arguments, true); }});
  commands.push_back({check, [&arguments] { return run_gate(arguments, false); }});
}

}  // namespace lockstep::properties
