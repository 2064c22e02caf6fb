// Measures contenders beside each other: in one run of real processes, one step of each after the
// other, in an order that moves on from step to step, so that what else the machine does meets all
// of them. The result of every step is compared with the exact one, element by element.
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
  // Positive control: rank 0 changes one element of each result before it is compared.
  bool spoil = false;
};

// Medians over the repetitions. A step lasts from when the first rank begins until the last one is
// done.
struct Summary {
  double ms = 0;
  std::vector<double> each_ms;  // by repetition
  double cpu_ms = 0;            // processor time, of all ranks together
  double launch_delay_us = 0;
  double exposed_ms = 0;
  std::uint64_t wrong = 0;  // elements, of all ranks and repetitions
};

using Contenders = std::vector<std::unique_ptr<Contender>>;
using MakeContenders = std::function<Result<Contenders>(const Place&)>;

// Steps that a contender needs before it is measured: a reducer rebuilds its buckets in the second.
Status warm_up(const Place& place, Contender& contender);

double median(std::vector<double> values);

// 0 and a summary for each contender; or the exit code of this program, after what went wrong was
// told on standard error.
int measure(const Plan& plan, const MakeContenders& make, std::vector<Summary>& summaries);

}  // namespace lockstep::benchmarks
