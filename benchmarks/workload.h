// Workload: what a model's gradients look like to a reducer, and values for them whose average is
// known and exact.
//
// Values. Element g of the model (counted over all parameters) is, on rank r in step t, a whole
// number of three digits that depends on all of them. The number of ranks is a power of two, so
// that scaling by 1/ranks and every partial sum is exact: one right result, whatever the order of
// additions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

struct Workload {
  std::string name;
  std::string title;
  std::vector<std::int64_t> parameters;  // elements of each, float32, in order of registration
  int repetitions = 1;                   // of each contender, unless the caller says otherwise

  std::int64_t elements() const;
};

// Of the workload that runs only if it is asked for.
constexpr const char* kTiny = "tiny";

// Those that are measured: resnet50, small_1000, one_tensor; and `tiny`, for tests.
std::vector<Workload> workloads();

// The values of one step.
class Values {
 public:
  Values(int ranks, int step);
  // Those of a rank, for `count` elements from element `first` of the model on.
  void fill(int rank, std::int64_t first, std::int64_t count, float* to) const;
  // How many of `count` results differ from the exact average, or the exact sum, in any bit.
  std::uint64_t not_average(std::int64_t first, std::int64_t count, const float* result) const;
  std::uint64_t not_sum(std::int64_t first, std::int64_t count, const float* result) const;

 private:
  std::vector<std::vector<float>> of_rank_;  // one period of each
  std::vector<float> average_;
  std::vector<float> sum_;
};

}  // namespace lockstep::benchmarks
