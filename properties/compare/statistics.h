// Times of two libraries that were taken in turns, round by round: their ratio, an interval for it,
// and whether a difference is more than chance.
//
// Each round gives one ratio. Nothing is assumed about how times are distributed: the interval is
// that of the median, from the ratios in their order, and the test counts the rounds on one side (a
// sign test).
//
// Pure functions; any thread; nothing fails.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::properties {

// Neither may be empty.
double median_of(std::vector<double> values);
double percentile_of(std::vector<double> values, double percent);  // the nearest rank

struct Ratio {
  double middle = 0;  // the median of the rounds' ratios
  double low = 0;
  double high = 0;
  double coverage = 0;  // how sure it is that the true median lies in [low, high]
  std::size_t rounds = 0;
};

// The ratio other / base. The interval covers the median with 95 % or more where the rounds are
// enough for that (6), and otherwise reaches from the least ratio to the greatest. Both have as
// many values, one or more, all above 0.
Ratio ratio_of(const std::vector<double>& base, const std::vector<double>& other);
std::vector<double> ratios_of(const std::vector<double>& base, const std::vector<double>& other);

// How likely it is that so many or more of the rounds lie on one side by chance alone.
double chance_of(std::size_t on_one_side, std::size_t rounds);

enum class Change {
  kSlower,   // by more than the limit
  kFaster,   // by more than the limit
  kWithin,   // the whole interval lies within the limit
  kUnclear,  // the interval is too wide to tell
};

// Judges one of `family` comparisons: all of them together are wrong about kSlower and kFaster with
// a chance of 5 % at most. `limit` is 0.02 for 2 %.
Change judge_ratios(const std::vector<double>& ratios, double limit, std::size_t family);

}  // namespace lockstep::properties
