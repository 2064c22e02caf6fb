// FailureReport: the report of a failing case for a person, and the report files of a whole run.
// These are pure functions of their arguments.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/case_json.h"
#include "properties/report/outcome.h"
#include "properties/report/state_coverage.h"

namespace lockstep::properties {

struct FailureReport {
  Case value;  // after shrinking
  Outcome outcome;
  std::string lane;
  std::string subject;
  std::string against;  // the other subject; empty if there is none
  // "lockstep" if the subject is held to that contract in place of its own profile; else empty.
  std::string contract;
  std::string values;  // "exact" if the subject is held to the values alone; else empty
  std::string nccl;    // the release of the simulated NCCL; empty: the simulator's own
  std::uint64_t seed = 0;
  std::uint64_t index = 0;  // the case's index under the seed
  double seconds_to_find = 0;
  std::uint64_t executions_to_find = 0;  // 0: it was not found by a search, but given
  std::uint64_t shrink_executions = 0;
  bool shrink_was_cut_off = false;      // before the case was as small as it can become
  std::vector<std::string> irrelevant;  // what can change without an effect on the failure
  std::string case_file;
  std::string program;  // the program's name in the replay command
  std::string replay;   // the whole command, where it is none of this program's; else empty
  std::string commit;
};

// How far a run was after some seconds.
struct RunProgress {
  double seconds = 0;
  std::uint64_t cases = 0;
  std::size_t features = 0;  // that were seen by then
};

struct RunReport {
  std::string lane;
  std::string subject;
  std::string against;  // the other subject; empty if there is none
  struct HeldTo {       // as in FailureReport
    std::string contract;
    std::string values;
  };
  HeldTo held_to;
  std::string nccl;  // as in FailureReport
  std::uint64_t seed = 0;
  std::string commit;
  double seconds = 0;
  struct Counts {
    std::uint64_t cases = 0;
    std::uint64_t ok = 0;
    std::uint64_t faulted_ok = 0;
    std::uint64_t interleaved = 0;  // cases in which forwards and backward calls interleave
    std::uint64_t errors = 0;       // of ranks that the oracles judged
    // How often the oracles could not judge something, by reason (oracle/unspecified.h).
    std::map<std::string, std::uint64_t> unspecified;
    std::uint64_t reruns = 0;  // of cases whose ranks had waited for a processor (CaseRunner)
  };
  Counts counts;
  struct Metamorphic {
    bool is_on = false;  // every case runs twice, with an option switched
    // How many cases were compared by the switched option, and how many were not, by reason.
    std::map<std::string, std::uint64_t> switched;
    std::map<std::string, std::uint64_t> not_comparable;
  };
  Metamorphic metamorphic;
  // With `against`, the programs that both subjects ran; if metamorphic, those that ran twice.
  struct Compared {
    std::uint64_t programs = 0;
    std::uint64_t whole = 0;  // those of them that ran to the last step
  };
  Compared compared;
  struct Coverage {
    std::uint64_t cases = 0;
    std::map<std::string, std::uint64_t> features;
    // For each feature and each kind of fault: the counted cases that had the one and in which the
    // other fired.
    std::map<std::string, std::map<std::string, std::uint64_t>> by_fault;
    std::vector<RunProgress> progress;  // in the order of time
    std::map<std::string, std::uint64_t> faults_fired;
    StateCoverage states;  // empty where it is not asked for
  };
  Coverage coverage;
  struct Planted {
    std::string id;   // of the bug; empty if there is none
    PlantedBug seen;  // counted over all cases
  };
  Planted planted;
  struct Determinism {
    std::uint64_t pairs = 0;  // of runs of one case
    std::uint64_t mismatches = 0;
  };
  Determinism determinism;
  struct Earlier {
    std::uint64_t run = 0;  // cases that earlier runs found, and that this one ran first
    std::uint64_t failing = 0;
  };
  Earlier earlier;
  std::vector<FailureReport> failures;
  // The reasons why the run proves less than it should: cases without an answer, or resources that
  // the machine lacks.
  std::vector<std::string> inconclusive;
  bool was_interrupted = false;  // by a signal, before its end

  // Whether it says that the subject is right, as far as it went.
  bool is_green() const { return failures.empty() && inconclusive.empty() && !was_interrupted; }
  double cases_per_second() const {
    return seconds > 0 ? static_cast<double>(counts.cases) / seconds : 0;
  }
};

std::string planted_line(const std::string& id, const PlantedBug& planted);  // empty without an id
// The next two report one run of a case, whether it failed or not. errors_block() returns one line
// per error, and nothing if there is none.
std::string errors_block(const std::vector<RankError>& errors);
std::string json_replay(const FailureReport& replay, const std::string& planted_bug);

// How the case was run, as its file keeps it.
FoundWith found_with(const FailureReport& report);
std::string replay_line(const FailureReport& report);  // the command for its case file
std::string failure_block(const FailureReport& report);
// A few lines for the end of a run: the cases, their rate and the failures; what they covered; what
// they exclude; where the rest stands, which is `page` if there is one. What a person has to know
// besides (cases of earlier runs, a comparison, why the run proves less) has lines of its own.
std::string summary(const RunReport& report, const std::string& page);
// All that was counted, as the page and `--verbose` have it.
std::string whole_summary(const RunReport& report);
// What a run without a failure excludes with 95 % confidence, and since when it saw no new feature;
// empty after a failure or without a case. A bug that shows in a share p of the cases survives n
// independent cases with probability (1 - p)^n.
std::string stopping_line(const RunReport& report);
std::string json_report(const RunReport& report);
std::string junit_report(const RunReport& report);

}  // namespace lockstep::properties
