// Workload: the sizes of a model's gradients, as a reducer sees them, and values whose average is
// known and exact.
//
// Values. The value of element g of the model (counted over all parameters) on rank r in step t is
// an integer of three digits that depends on g, r and t. The number of ranks is a power of two, so
// that scaling by 1/ranks and every partial sum are exact. There is one right result, whatever the
// order of the additions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

struct Workload {
  std::string name;
  std::string title;
  // The number of float32 elements of each parameter, in the order of registration.
  std::vector<std::int64_t> parameters;
  int repetitions = 1;  // repetitions of each contender; the caller may override it

  std::int64_t elements() const;
};

// The name of the workload that runs only on request.
constexpr const char* kTiny = "tiny";

// The measured workloads: resnet50, small_1000, one_tensor; and `tiny`, for tests.
std::vector<Workload> workloads();

// The values of one step.
class Values {
 public:
  Values(int ranks, int step);
  // Writes the values of `rank` for `count` elements, beginning with element `first` of the model.
  void fill(int rank, std::int64_t first, std::int64_t count, float* to) const;
  // Returns how many of `count` results differ in any bit from the exact average, or from the exact
  // sum.
  std::uint64_t not_average(std::int64_t first, std::int64_t count, const float* result) const;
  std::uint64_t not_sum(std::int64_t first, std::int64_t count, const float* result) const;

 private:
  std::vector<std::vector<float>> of_rank_;  // one period per rank
  std::vector<float> average_;
  std::vector<float> sum_;
};

}  // namespace lockstep::benchmarks
