// What two libraries that were measured beside each other differ in: bits, times, what they tell of
// faults, and functions that they lack. The texts and tables of a report are made from it.
//
// Pure functions; any thread; nothing fails.
#pragma once

#include <string>
#include <vector>

#include "properties/compare/results.h"
#include "properties/compare/statistics.h"

namespace lockstep::properties {

struct TimeComparison {
  std::string name;
  bool has_base = false;  // a library may lack it
  bool has_other = false;
  double base_ms = 0;  // p50 of all values
  double other_ms = 0;
  double base_p99_ms = 0;
  double other_p99_ms = 0;
  bool is_judged = false;  // both have two rounds or more in common
  Ratio ratio;             // other / base
  Change change = Change::kUnclear;
  bool is_sum = false;
  std::uint64_t base_wrong = 0;
  std::uint64_t other_wrong = 0;
};

struct PairVerdict {
  std::string base;
  std::string other;
  double limit = 0;
  std::vector<TimeComparison> times;
  std::vector<BitsDifference> bits;
  std::vector<std::string>
      notes;  // what is told, what is lacking, what did not work, what is wrong

  bool has_change(Change change) const;
  bool is_different() const;  // in bits, in time, or in a note
  // "2.29.7 -> 2.30.7: bits of float32 sums at 3 ranks differ above 16 KiB; nothing slower than 2
  // %"
  std::string line(int ranks) const;
};

// Compares two of the libraries, by their index. `limit` is 0.02 for 2 %.
PairVerdict compare(const ComparisonResults& results, std::size_t base, std::size_t other,
                    double limit);
// All neighbours, in their order.
std::vector<PairVerdict> compare_all(const ComparisonResults& results, double limit);

// All of it for a terminal.
std::string to_text(const ComparisonResults& results, double limit);

// "1.02 [0.99, 1.05]", and one word for the change.
std::string ratio_text(const TimeComparison& time);
const char* change_text(Change change);
// The codes that survivors of a fault were told, such as "peer lost, timeout".
std::string told_text(const FaultResult& fault);
// The median over rounds and ranks of the time until they were told.
double told_after_ms(const FaultResult& fault);

}  // namespace lockstep::properties
