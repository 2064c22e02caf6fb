// Evaluation: what `lockstep eval` measured. Each planted bug is looked for in a number of trials,
// which differ by the seed of their cases. A trial ends when it finds the bug, or after a number of
// cases.
//
// The log has a line of JSON for the settings, and one for each trial, in the order in which they
// ended, so that an interrupted evaluation goes on where it was.
//
// These are pure functions. Failure: one line that names the line of the log, and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/report/survival.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

struct BugTrial {
  std::string bug;
  std::uint64_t seed = 0;
  bool found = false;
  std::uint64_t executions = 0;  // cases that were run until it was found, or until the end
  double seconds = 0;
  std::uint64_t reached = 0;    // how often the code of the bug ran
  std::uint64_t triggered = 0;  // and how often that made a difference
  std::string oracle;           // that found it
  std::uint64_t index = 0;      // of the case that found it
  // How much of that case is left when it was made small: its ranks, parameters, steps, records,
  // faults and deviations of the schedule (shrink/size.h). Nothing if it was not made small.
  std::optional<std::uint64_t> shrunk = std::nullopt;
};

struct EvaluationSettings {
  std::uint64_t cases = 20'000;  // the most cases of a trial
  std::string lane = "sim";
  std::string commit;
  std::string policy;  // the policy of every schedule; empty if the generator draws policies
};

struct Evaluation {
  EvaluationSettings settings;
  std::vector<BugTrial> trials;
};

std::string to_log_line(const EvaluationSettings& settings);
std::string to_log_line(const BugTrial& trial);

// Reads a log. A last line without an end, which a crash leaves, is dropped; `whole_bytes` is how
// much of the text counts. Any other line that cannot be read is an error.
Result<Evaluation> evaluation_from_log(const std::string& text, std::size_t& whole_bytes);

// The trials of one bug.
struct BugFigures {
  std::string bug;
  std::size_t trials = 0;
  std::size_t found = 0;
  std::size_t reached = 0;  // trials in which its code ran
  std::size_t triggered = 0;
  std::vector<Trial> times;          // in executions
  std::optional<double> median;      // executions until half of the trials have found it
  double restricted_mean = 0;        // executions, with the limit for those that found nothing
  double seconds = 0;                // mean of the trials
  std::optional<double> shrunk;      // median over the trials whose cases were made small
  std::vector<std::string> oracles;  // that found it
};
std::vector<BugFigures> figures_of(const Evaluation& evaluation);  // ascending by bug

// A table for a terminal, and a few lines below it.
std::string to_table(const Evaluation& evaluation);
std::string to_json(const Evaluation& evaluation);
// A page with a curve for every bug, and the table.
Result<std::string> to_page(const Evaluation& evaluation);

// Compares two evaluations bug by bug, over the bugs that both have: a table, and the stratified
// log-rank test. Fails if they have no bug in common or other limits.
Result<std::string> compare(const Evaluation& before, const Evaluation& after);

}  // namespace lockstep::properties
