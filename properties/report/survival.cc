#include "properties/report/survival.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::properties {
namespace {

constexpr double kHalf = 0.5;

// Of trials that are ordered by time: how many were still running just before `time`, and how many
// events there were at it.
struct AtTime {
  double at_risk = 0;
  double events = 0;
};

AtTime count_at(const std::vector<Trial>& trials, double time) {
  AtTime out;
  for (const Trial& trial : trials) {
    if (trial.time >= time) ++out.at_risk;
    if (trial.time == time && trial.has_event) ++out.events;
  }
  return out;
}

std::vector<double> event_times(const std::vector<Trial>& trials) {
  std::vector<double> times;
  for (const Trial& trial : trials)
    if (trial.has_event) times.push_back(trial.time);
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  return times;
}

}  // namespace

std::vector<SurvivalStep> survival_curve(const std::vector<Trial>& trials) {
  std::vector<SurvivalStep> curve;
  double share = 1;
  for (const double time : event_times(trials)) {
    const AtTime now = count_at(trials, time);
    share *= 1 - now.events / now.at_risk;
    curve.push_back({time, share});
  }
  return curve;
}

std::optional<double> median_time(const std::vector<SurvivalStep>& curve) {
  for (const SurvivalStep& step : curve)
    if (step.share <= kHalf) return step.time;
  return std::nullopt;
}

double restricted_mean(const std::vector<SurvivalStep>& curve, double horizon) {
  double area = 0;
  double from = 0;
  double share = 1;
  for (const SurvivalStep& step : curve) {
    if (step.time >= horizon) break;
    area += share * (step.time - from);
    from = step.time;
    share = step.share;
  }
  return area + share * (horizon - from);
}

void LogRank::add(const std::vector<Trial>& first, const std::vector<Trial>& second) {
  std::vector<Trial> both = first;
  both.insert(both.end(), second.begin(), second.end());
  for (const double time : event_times(both)) {
    const AtTime one = count_at(first, time);
    const AtTime all = count_at(both, time);
    const double share = one.at_risk / all.at_risk;
    excess_ += one.events - all.events * share;
    if (all.at_risk > 1)
      variance_ +=
          all.events * share * (1 - share) * (all.at_risk - all.events) / (all.at_risk - 1);
  }
}

double LogRank::statistic() const { return variance_ > 0 ? excess_ * excess_ / variance_ : 0; }

double LogRank::p_value() const { return std::erfc(std::sqrt(statistic()) / std::numbers::sqrt2); }

}  // namespace lockstep::properties
