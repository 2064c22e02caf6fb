// Measures contenders beside each other, in one run of real processes. The contenders take steps in
// turn, and their order rotates from step to step, so that other load on the machine affects all of
// them alike. The result of every step is compared with the exact one, element by element.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "benchmarks/contender.h"

namespace lockstep::benchmarks {

struct Plan {
  int ranks = 2;
  int repetitions = 1;
  std::size_t contenders = 0;
  // If true, rank 0 changes one element of each result before the comparison (a positive control).
  bool spoil = false;
};

// Medians over the repetitions. The time of a step runs from the moment at which the first rank
// begins until the last rank is done.
struct Summary {
  double ms = 0;
  std::vector<double> each_ms;  // one value per repetition
  double cpu_ms = 0;            // processor time, summed over all ranks
  double launch_delay_us = 0;
  double exposed_ms = 0;
  std::uint64_t wrong = 0;  // elements, summed over all ranks and repetitions
};

using Contenders = std::vector<std::unique_ptr<Contender>>;
using MakeContenders = std::function<Result<Contenders>(const Place&)>;

// Runs the steps that a contender needs before it is measured: a reducer rebuilds its buckets in
// the second step.
Status warm_up(const Place& place, Contender& contender);

double median(std::vector<double> values);

// Returns 0 and writes a summary for each contender. On failure it prints the cause on standard
// error and returns the exit code of this program.
int measure(const Plan& plan, const MakeContenders& make, std::vector<Summary>& summaries);

}  // namespace lockstep::benchmarks
