// Survival: how long it takes until something is found, from trials of which some found nothing
// before they ended. Kaplan and Meier's estimate (1958), the mean restricted to a horizon, and the
// log-rank test, which compares two sets of trials (Mantel 1966), stratified if there are several.
//
// These are pure functions. Times have any unit, as long as it is one; they are not negative.
#pragma once

#include <optional>
#include <vector>

namespace lockstep::properties {

struct Trial {
  double time = 0;        // until the event, or until the trial ended without one
  bool has_event = true;  // false: censored, as statistics calls it
};

// A step of the curve: from `time` on, this share of the trials has had no event.
struct SurvivalStep {
  double time = 0;
  double share = 1;
};

// Returns the steps in ascending order of time. The share is 1 before the first step.
std::vector<SurvivalStep> survival_curve(const std::vector<Trial>& trials);

// Returns the first time at which at most half of the trials are without an event, or nothing if
// the curve stays above.
std::optional<double> median_time(const std::vector<SurvivalStep>& curve);

// Returns the area under the curve from 0 to `horizon`: the mean time of a trial that ends there.
double restricted_mean(const std::vector<SurvivalStep>& curve, double horizon);

// The difference between two sets of trials, summed over strata (one planted bug is one stratum).
class LogRank {
 public:
  void add(const std::vector<Trial>& first, const std::vector<Trial>& second);
  // Events of the first set less those that are expected if both are alike: positive if the first
  // is faster.
  double excess() const { return excess_; }
  double statistic() const;  // chi-squared with one degree of freedom; 0 if there is no variance
  double p_value() const;

 private:
  double excess_ = 0;
  double variance_ = 0;
};

}  // namespace lockstep::properties
