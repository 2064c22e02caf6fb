#include "benchmarks/report.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "benchmarks/origin.h"

namespace lockstep::benchmarks {
namespace {

// More digits than the clock and the machine can measure would only look exact.
double rounded(double value) { return std::round(value * 1e4) / 1e4; }

std::vector<double> rounded(std::vector<double> values) {
  for (double& value : values) value = rounded(value);
  return values;
}

unsigned long long printable(std::uint64_t value) { return value; }

}  // namespace

void Report::add(const std::vector<Row>& rows) {
  if (rows_.empty())
    std::printf("%-18s %5s  %-13s %10s %10s %11s %10s %6s\n", "workload", "ranks", "mode", "ms",
                "times_flat", "times_floor", "cpu_ms", "wrong");
  for (const Row& row : rows) {
    std::printf("%-18s %5d  %-13s %10.3f %10.3f %11.3f %10.3f %6llu\n", row.workload.c_str(),
                row.ranks, row.mode.c_str(), row.ms, row.times_flat, row.times_floor, row.cpu_ms,
                printable(row.wrong));
    rows_.push_back(row);
  }
  std::fflush(stdout);
}

void Report::add(const std::vector<OverlapRow>& rows) {
  if (overlap_.empty())
    std::printf("\n%-18s %5s  %-15s %11s %15s %10s %6s\n", "workload", "ranks", "buckets",
                "backward_ms", "launch_delay_us", "exposed_ms", "wrong");
  for (const OverlapRow& row : rows) {
    std::printf("%-18s %5d  %-15s %11.1f %15.1f %10.2f %6llu\n", row.workload.c_str(), row.ranks,
                row.buckets.c_str(), row.backward_ms, row.launch_delay_us, row.exposed_ms,
                printable(row.wrong));
    overlap_.push_back(row);
  }
  std::fflush(stdout);
}

std::uint64_t Report::wrong() const {
  std::uint64_t wrong = 0;
  for (const Row& row : rows_) wrong += row.wrong;
  for (const OverlapRow& row : overlap_) wrong += row.wrong;
  return wrong;
}

std::string Report::to_json(const std::string& commit) const {
  using nlohmann::ordered_json;
  ordered_json rows = ordered_json::array();
  for (const Row& row : rows_)
    rows.push_back({{"workload", row.workload},
                    {"ranks", row.ranks},
                    {"mode", row.mode},
                    {"ms", rounded(row.ms)},
                    {"times_flat", rounded(row.times_flat)},
                    {"times_floor", rounded(row.times_floor)},
                    {"cpu_ms", rounded(row.cpu_ms)},
                    {"base", row.base},
                    {"each_ms", rounded(row.each_ms)},
                    {"wrong", row.wrong}});
  ordered_json overlap = ordered_json::array();
  for (const OverlapRow& row : overlap_)
    overlap.push_back({{"workload", row.workload},
                       {"ranks", row.ranks},
                       {"buckets", row.buckets},
                       {"bucket_bytes", row.bucket_bytes},
                       {"backward_ms", rounded(row.backward_ms)},
                       {"launch_delay_us", rounded(row.launch_delay_us)},
                       {"exposed_ms", rounded(row.exposed_ms)},
                       {"wrong", row.wrong}});
  ordered_json out = origin_json("reducer", commit);
  out["rows"] = rows;
  out["overlap"] = overlap;
  return out.dump(1) + "\n";
}

}  // namespace lockstep::benchmarks
