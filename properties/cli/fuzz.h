// fuzz: generates cases, runs them, and shrinks the first failure. See `lockstep fuzz --help`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/campaign/part.h"
#include "properties/campaign/plan.h"
#include "properties/case/switched.h"
#include "properties/generate/generate.h"
#include "properties/lane/lane.h"
#include "properties/report/failure_report.h"

namespace lockstep::properties {

// This process runs a part of a campaign (cli/campaign.h).
struct CampaignOptions {
  std::string version;  // of this program
  std::string folder;
  CampaignPart part;
  std::string faults;  // as on the command line, like the next one
  std::string transport;
  bool has_seed = false;      // otherwise the campaign's counts, or one is drawn
  double block_seconds = 10;  // a part that is killed repeats about as much
};

struct FuzzOptions {
  std::vector<LaneKind> lanes = {LaneKind::kSim};
  Subject subject;
  double seconds = 60;      // for all lanes together; ignored if `cases` is set
  std::uint64_t cases = 0;  // for each lane
  std::uint64_t least = 0;  // a run in which fewer cases pass is inconclusive
  std::uint64_t seed = 1;
  int jobs = 0;  // 0: as many as suit the lane
  GenerateOptions generate;
  bool keep_going = false;    // after a failure, search for different ones
  bool is_fresh = false;      // do not run the failures of earlier runs first
  bool is_verbose = false;    // print at the end all that was counted
  bool is_quiet = false;      // print nothing; for callers that have a use for the report alone
  bool shows_states = false;  // print the table of states and faults at the end
  double shrink_seconds = 20;
  std::optional<Case> around;  // runs the neighbours of this case, and generates none
  std::string out = "lockstep-out";
  std::string json;
  std::string junit;
  std::string html;
  std::string program;  // the program's name as the user called it, for the replay command
  std::optional<CampaignOptions> campaign;
};

struct Totals;
// How many processes run the cases of a lane unless the user says how many.
int usual_jobs(LaneKind lane);
// Fills in what the workers have counted.
void copy_totals(const Totals& totals, RunReport& report);

// Reads host, staged or nccl; nothing means cases of all transports.
std::optional<reference::Transport> transport_of(const std::string& name);

// Reads the value of --metamorphic (parse_switched()); nothing without one. Then cases have faults
// only if the user has asked for some.
Status parse_metamorphic(const std::string& text, bool has_faults, FuzzOptions& options);

std::string kinds_of_faults();  // their names, with commas between them

// Refuses a policy of schedules, and faults that the user listed, where no lane of the run has
// them: the run would do without, and nobody would notice.
Status check_lanes(const FuzzOptions& options);

// Returns the options with which cases of this lane are generated.
GenerateOptions generate_options_of(const FuzzOptions& options, LaneKind lane);

// Returns how many cases of the lane run at once where the user does not say it. A case of the
// simulator only computes. A case of the gloo lane mostly waits: for sockets, for the other ranks,
// and a second or more for a silent rank. On a GPU all processes take turns.
int usual_jobs(LaneKind lane);

// Returns the exit code: 0, the first failure's, or 130 after Ctrl-C. A case that is in flight when
// the time is over still has its limit (time_limit.h), and the run waits for it. A case that Ctrl-C
// interrupted is named, and the run is inconclusive. It is also inconclusive if the machine lacks
// what a lane needs (needs.h).
int run_fuzz(const FuzzOptions& options);

// Fuzzes one lane in the whole of options.seconds, and returns what came of it. Nothing of the
// options that concern reports, and no signal, is heeded. Failure: the folder or the machine.
Result<RunReport> fuzz_lane(const FuzzOptions& options, LaneKind lane);

// Shrinks a failing case, and reports what does not matter about it. `outcome` is the outcome of
// the failing run.
struct Shrunk {
  Case value;
  Outcome outcome;
  std::uint64_t executions = 0;
  std::vector<std::string> irrelevant;
  bool reproduced = true;    // false: the failure did not occur again, and nothing was shrunk
  bool was_cut_off = false;  // the time was over, or a signal came, before the case was small
};
Shrunk shrink_failure(const Case& value, const Outcome& outcome, LaneKind lane,
                      const Subject& subject, double seconds);
// If ranks of a wrapper in Python start other collectives, a process of theirs ends, or Gloo's time
// is up. Runs such a case once more with PyTorch's own checks, and adds their error to the verdict.
void add_detailed_checks(const Case& c, LaneKind lane, Subject subject, Outcome& outcome);

extern const char* const kCommit;  // the commit of this build

}  // namespace lockstep::properties
