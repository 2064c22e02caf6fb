// Suite: which contenders are measured beside each other.
//
//   resnet50, small_1000, one_tensor
//                      a step of the reducer in each mode, beside two lower bounds: `flat`, one
//                      all-reduce of Gloo, and `buckets`, the reducer's buckets in flight without
//                      a reducer
//   first_pass         the first step of a reducer beside a later one
//   orders             rank-ordered sums beside Gloo's ring, in a process group
//   overlap            buckets of several sizes under a backward that takes as long as the sum of
//                      its gradients
//   tiny               a part for tests, which runs only on request
#pragma once

#include <string>
#include <vector>

#include "benchmarks/measure.h"
#include "benchmarks/program.h"
#include "benchmarks/report.h"

namespace lockstep::benchmarks {

std::vector<std::string> suite_parts();

class Suite final : public Bench {
 public:
  explicit Suite(Choice choice) : choice_(std::move(choice)) {}

  int run() override;
  std::uint64_t wrong() const override { return report_.wrong(); }
  std::string to_json() const override { return report_.to_json(choice_.commit); }

 private:
  bool is_on(const std::string& part) const;
  Plan plan(int ranks, int repetitions, std::size_t contenders) const;
  int steps(const Workload& workload, int ranks);
  int first_pass(const Workload& workload, int ranks);
  int orders(int ranks);
  int overlap(const Workload& workload, int ranks);
  void add_rows(const std::string& workload, int ranks, const std::vector<std::string>& modes,
                const std::vector<Summary>& found);

  const Choice choice_;
  Report report_;
};

}  // namespace lockstep::benchmarks
