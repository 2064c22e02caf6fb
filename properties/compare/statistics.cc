#include "properties/compare/statistics.h"

#include <algorithm>
#include <cmath>

#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

constexpr double kSure = 0.95;

// The chance that exactly `hits` of `rounds` throws of a coin are heads.
double coin(std::size_t hits, std::size_t rounds) {
  double chance = std::pow(0.5, static_cast<double>(rounds));
  for (std::size_t i = 0; i < hits; ++i)
    chance *= static_cast<double>(rounds - i) / static_cast<double>(i + 1);
  return chance;
}

// The median lies between the values number `cut` and number rounds - 1 - cut, in their order, with
// this chance.
double coverage_of(std::size_t cut, std::size_t rounds) {
  double outside = 0;
  for (std::size_t i = 0; i <= cut; ++i) outside += 2 * coin(i, rounds);
  return std::max(0.0, 1 - outside);
}

Ratio interval_of(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const std::size_t rounds = ratios.size();
  std::size_t cut = 0;
  while (2 * (cut + 1) < rounds && coverage_of(cut + 1, rounds) >= kSure) ++cut;
  return {median_of(ratios), ratios[cut], ratios[rounds - 1 - cut], coverage_of(cut, rounds),
          rounds};
}

}  // namespace

double median_of(std::vector<double> values) {
  LOCKSTEP_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double percentile_of(std::vector<double> values, double percent) {
  LOCKSTEP_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return values[std::min(index, values.size() - 1)];
}

std::vector<double> ratios_of(const std::vector<double>& base, const std::vector<double>& other) {
  LOCKSTEP_CHECK_EQ(base.size(), other.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < base.size(); ++i) {
    LOCKSTEP_CHECK(base[i] > 0);
    ratios.push_back(other[i] / base[i]);
  }
  return ratios;
}

Ratio ratio_of(const std::vector<double>& base, const std::vector<double>& other) {
  LOCKSTEP_CHECK(!base.empty());
  return interval_of(ratios_of(base, other));
}

double chance_of(std::size_t on_one_side, std::size_t rounds) {
  double chance = 0;
  for (std::size_t hits = on_one_side; hits <= rounds; ++hits) chance += coin(hits, rounds);
  return chance;
}

Change judge_ratios(const std::vector<double>& ratios, double limit, std::size_t family) {
  LOCKSTEP_CHECK(!ratios.empty());
  LOCKSTEP_CHECK(family > 0);
  const auto count = [&ratios](auto is_counted) {
    return static_cast<std::size_t>(std::count_if(ratios.begin(), ratios.end(), is_counted));
  };
  const std::size_t slower = count([limit](double ratio) { return ratio > 1 + limit; });
  const std::size_t faster = count([limit](double ratio) { return ratio < 1 / (1 + limit); });
  // Each comparison has two sides on which it can be wrong.
  const double allowed = (1 - kSure) / (2 * static_cast<double>(family));
  if (chance_of(slower, ratios.size()) <= allowed) return Change::kSlower;
  if (chance_of(faster, ratios.size()) <= allowed) return Change::kFaster;
  const Ratio interval = interval_of(ratios);
  const bool is_within =
      interval.coverage >= kSure && interval.high <= 1 + limit && interval.low >= 1 / (1 + limit);
  return is_within ? Change::kWithin : Change::kUnclear;
}

}  // namespace lockstep::properties
