#include "benchmarks/workload.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace lockstep::benchmarks {
namespace {

constexpr std::int64_t kPeriod = 4093;  // a prime: no size of a parameter or a bucket divides it

void batch_norm(std::vector<std::int64_t>& out, std::int64_t channels) {
  out.insert(out.end(), {channels, channels});
}

// Returns the parameters of ResNet-50 in their order: 161 of them, 25,557,032 elements.
std::vector<std::int64_t> resnet50() {
  std::vector<std::int64_t> out = {std::int64_t{64} * 3 * 7 * 7};
  batch_norm(out, 64);
  std::int64_t inputs = 64;
  std::int64_t planes = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      out.push_back(inputs * planes);
      batch_norm(out, planes);
      out.push_back(planes * planes * 9);
      batch_norm(out, planes);
      out.push_back(planes * planes * 4);
      batch_norm(out, planes * 4);
      if (block == 0) {
        out.push_back(inputs * planes * 4);
        batch_norm(out, planes * 4);
      }
      inputs = planes * 4;
    }
    planes *= 2;
  }
  out.insert(out.end(), {std::int64_t{2048} * 1000, 1000});
  return out;
}

std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

template <class Chunk>
void for_each_chunk(std::int64_t first, std::int64_t count, Chunk chunk) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (first + done) % kPeriod;
    const std::int64_t length = std::min(kPeriod - at, count - done);
    chunk(at, done, length);
    done += length;
  }
}

std::uint64_t differing(const std::vector<float>& period, std::int64_t first, std::int64_t count,
                        const float* result) {
  std::uint64_t wrong = 0;
  for_each_chunk(first, count, [&](std::int64_t at, std::int64_t done, std::int64_t length) {
    const float* expected = period.data() + at;
    const float* got = result + done;
    if (std::memcmp(expected, got, static_cast<std::size_t>(length) * sizeof(float)) == 0) return;
    for (std::int64_t i = 0; i < length; ++i)
      if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(got[i]))
        ++wrong;
  });
  return wrong;
}

}  // namespace

std::int64_t Workload::elements() const {
  return std::accumulate(parameters.begin(), parameters.end(), std::int64_t{0});
}

std::vector<Workload> workloads() {
  const std::vector<std::int64_t> small(1000, 64);
  return {
      {"resnet50", "the shapes of ResNet-50: 25.6 M float32 in 161 parameters", resnet50(), 15},
      {"small_1000", "1,000 parameters of 64 float32", small, 201},
      {"one_tensor", "one parameter of 16 Mi float32", {std::int64_t{16} << 20}, 15},
      {kTiny, "a few small parameters, for tests", {3, 1, 0, 5000, 64, 17, 300'000}, 1},
  };
}

Values::Values(int ranks, int step) : average_(kPeriod), sum_(kPeriod) {
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float>& values = of_rank_.emplace_back(kPeriod);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto salt = static_cast<std::uint32_t>(rank * 1000 + step);
      const std::uint32_t drawn = mixed(static_cast<std::uint32_t>(i) + 0x9e3779b9u * (salt + 1));
      // Values begin at 1, so that no sum is a zero, whose sign the order of additions could
      // decide.
      values[i] = static_cast<float>(drawn % 999 + 1);
      sum_[i] += values[i];
    }
  }
  for (std::size_t i = 0; i < sum_.size(); ++i) average_[i] = sum_[i] / static_cast<float>(ranks);
}

void Values::fill(int rank, std::int64_t first, std::int64_t count, float* to) const {
  const std::vector<float>& period = of_rank_[static_cast<std::size_t>(rank)];
  for_each_chunk(first, count, [&](std::int64_t at, std::int64_t done, std::int64_t length) {
    std::memcpy(to + done, period.data() + at, static_cast<std::size_t>(length) * sizeof(float));
  });
}

std::uint64_t Values::not_average(std::int64_t first, std::int64_t count,
                                  const float* result) const {
  return differing(average_, first, count, result);
}

std::uint64_t Values::not_sum(std::int64_t first, std::int64_t count, const float* result) const {
  return differing(sum_, first, count, result);
}

}  // namespace lockstep::benchmarks
