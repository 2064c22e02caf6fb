// Report: collects the rows of a run, and writes them as a table and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

// The times are medians. `times_flat` is the ratio to the flat all-reduce of Gloo, and
// `times_floor` is the ratio to the faster of the two lower bounds.
struct Row {
  std::string workload;
  int ranks = 0;
  std::string mode;
  double ms = 0;
  double times_flat = 0;
  double times_floor = 0;
  double cpu_ms = 0;  // processor time of all ranks
  std::uint64_t wrong = 0;
  std::string base;             // the mode that `times_flat` refers to
  std::vector<double> each_ms;  // of each repetition
};

// How much of the all-reduces a backward of `backward_ms` hides.
struct OverlapRow {
  std::string workload;
  int ranks = 0;
  std::string buckets;
  // The limit of a bucket's size. Zero means that everything is reduced after backward has ended.
  std::int64_t bucket_bytes = 0;
  double backward_ms = 0;
  double launch_delay_us = 0;
  double exposed_ms = 0;
  std::uint64_t wrong = 0;
};

class Report {
 public:
  // Each call prints its rows at once. It prints a heading first if the last rows were of another
  // kind.
  void add(const std::vector<Row>& rows);
  void add(const std::vector<OverlapRow>& rows);

  std::uint64_t wrong() const;
  // `commit` is that of the checkout.
  std::string to_json(const std::string& commit) const;

 private:
  std::vector<Row> rows_;
  std::vector<OverlapRow> overlap_;
};

}  // namespace lockstep::benchmarks
