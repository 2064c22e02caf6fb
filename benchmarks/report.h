// Report: the rows of a run, as a table and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

// Times are medians. `times_flat` is how many times as long as the flat all-reduce of Gloo,
// `times_floor` as the faster of the two floors.
struct Row {
  std::string workload;
  int ranks = 0;
  std::string mode;
  double ms = 0;
  double times_flat = 0;
  double times_floor = 0;
  double cpu_ms = 0;  // processor time of all ranks
  std::uint64_t wrong = 0;
};

// How well sums hide behind a backward of `backward_ms`.
struct OverlapRow {
  std::string workload;
  int ranks = 0;
  std::string buckets;
  std::int64_t bucket_bytes = 0;  // the limit; 0: reduced when backward has ended
  double backward_ms = 0;
  double launch_delay_us = 0;
  double exposed_ms = 0;
  std::uint64_t wrong = 0;
};

class Report {
 public:
  // Each prints its rows at once, under a heading when the last ones were of another kind.
  void add(const std::vector<Row>& rows);
  void add(const std::vector<OverlapRow>& rows);

  std::uint64_t wrong() const;
  std::string to_json() const;

 private:
  std::vector<Row> rows_;
  std::vector<OverlapRow> overlap_;
};

}  // namespace lockstep::benchmarks
