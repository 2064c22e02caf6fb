// The sums of the simulated NCCL: bit for bit those of the model's nccl_ring, and with a factor
// those of fma() with one rounding.
#include "faults/sim/nccl/ring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "faults/sim/nccl/test_nccl_run.h"
#include "reference/arithmetic.h"
#include "reference/order.h"
#include "reference/values.h"

namespace lockstep::simulated {
namespace {

struct Type {
  NcclDataType nccl;
  reference::DType model;
};
constexpr Type kTypes[] = {{NcclDataType::kFloat64, reference::DType::kFloat64},
                           {NcclDataType::kFloat32, reference::DType::kFloat32},
                           {NcclDataType::kFloat16, reference::DType::kFloat16},
                           {NcclDataType::kBfloat16, reference::DType::kBFloat16}};

std::vector<double> contribution(reference::DType dtype, std::size_t count, int rank) {
  reference::Program program;
  program.values = reference::Values::kGeneral;
  reference::Parameter parameter;
  parameter.dtype = dtype;
  const reference::UseValues constant(program, parameter, static_cast<std::uint32_t>(rank), 0, 0);
  std::vector<double> values(count);
  for (std::size_t e = 0; e < count; ++e) values[e] = constant.at(e);
  return values;
}

std::vector<std::byte> bytes_of(reference::DType dtype, const std::vector<double>& values) {
  const std::size_t size = reference::size_of(dtype);
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = reference::round_from_double(dtype, values[i]);
    std::memcpy(bytes.data() + i * size, &bits, size);  // the low bytes come first
  }
  return bytes;
}

std::vector<std::byte> folded(reference::DType dtype, std::size_t count, int ranks,
                              const std::vector<reference::OrderRun>& runs) {
  std::vector<std::vector<double>> x;
  for (int rank = 0; rank < ranks; ++rank) x.push_back(contribution(dtype, count, rank));
  std::vector<double> result(count);
  std::uint64_t begin = 0;
  for (const reference::OrderRun& run : runs) {
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      const reference::Addition& addition = run.additions[i];
      reference::add_values(dtype, &x[addition.into][begin], &x[addition.from][begin],
                            run.end - begin);
    }
    for (; begin < run.end; ++begin) result[begin] = x[run.result][begin];
  }
  return bytes_of(dtype, result);
}

// What each rank has after an all-reduce of these counts, one behind the other.
std::vector<std::vector<std::vector<std::byte>>> reduced(int ranks, const Type& type,
                                                         const std::vector<std::size_t>& counts,
                                                         std::size_t chunk_bytes,
                                                         int version = 22809) {
  std::vector<std::vector<std::vector<std::byte>>> results(static_cast<std::size_t>(ranks));
  NcclRun run(ranks);
  run.options.version = version;
  run.options.chunk_bytes = chunk_bytes;
  const simulation::End end = run.run([&](SimRank& on) {
    const NcclComm comm = on.connected();
    for (const std::size_t count : counts) {
      std::vector<std::byte> bytes =
          bytes_of(type.model, contribution(type.model, count, on.rank()));
      const Ref<Storage> memory = *on.device().allocate(bytes.size());
      EXPECT_TRUE(write(on.device(), bytes, memory->data(), on.deadline()).ok());
      EXPECT_EQ(
          on.settled(comm, on.api().all_reduce(memory->data(), memory->data(), count, type.nccl,
                                               NcclRedOp::kSum, comm, on.native())),
          NcclResult::kSuccess);
      EXPECT_TRUE(read(on.device(), memory->data(), bytes, on.deadline()).ok());
      results[static_cast<std::size_t>(on.rank())].push_back(bytes);
    }
    on.destroy(comm);
  });
  EXPECT_EQ(end, simulation::End::kFinished) << run.wait_graph;
  return results;
}

class RingOfSimNccl : public testing::TestWithParam<int> {};

// The sum in rank order and Gloo's ring must differ, so that agreement means something.
TEST_P(RingOfSimNccl, AddsInTheOrderOfTheModel) {
  const int n = GetParam();
  const auto ranks = static_cast<std::uint32_t>(n);
  std::size_t other_than_ranks = 0;
  std::size_t other_than_gloo = 0;
  for (const Type& type : kTypes) {
    const std::size_t size = reference::size_of(type.model);
    for (const std::size_t chunk : {std::size_t{64}, std::size_t{48}, std::size_t{2} << 20}) {
      const std::size_t loop = ranks * chunk / size;
      std::vector<std::size_t> counts{1, ranks - 1, ranks, ranks + 1, 16 * ranks + 1, 1000};
      if (loop < 1000) counts.insert(counts.end(), {loop, loop - 1, loop + 1, 3 * loop + 5});
      const auto results = reduced(n, type, counts, chunk);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::vector<std::byte> expected =
            folded(type.model, counts[i], n, reference::nccl_ring(ranks, counts[i], size, chunk));
        for (const auto& of_rank : results)
          ASSERT_TRUE(of_rank.at(i) == expected)
              << counts[i] << " elements of " << size << " bytes, chunks of " << chunk;
        other_than_ranks +=
            expected != folded(type.model, counts[i], n, reference::rank_order(ranks, counts[i]));
        other_than_gloo += expected != folded(type.model, counts[i], n,
                                              reference::gloo_ring(ranks, counts[i], size, chunk));
      }
    }
  }
  if (n > 2) {
    EXPECT_GT(other_than_ranks, 30U);
    EXPECT_GT(other_than_gloo, 30U);
  } else {
    EXPECT_EQ(other_than_ranks + other_than_gloo, 0U);
  }
}

// Each release adds in the order that the model has for it, which differs from the order of 2.28.
TEST_P(RingOfSimNccl, AddsInTheOrderOfTheModelForItsVersion) {
  const int n = GetParam();
  const auto ranks = static_cast<std::uint32_t>(n);
  constexpr std::size_t kChunk = 4096;
  for (const auto& [version, ring] : {std::pair{21803, reference::NcclRing::kUpTo219},
                                      std::pair{21903, reference::NcclRing::kUpTo219},
                                      std::pair{22105, reference::NcclRing::kSince220},
                                      std::pair{22304, reference::NcclRing::kSince222}}) {
    std::size_t other_than_newer = 0;
    for (const Type& type : kTypes) {
      const std::size_t size = reference::size_of(type.model);
      const std::size_t loop = ranks * kChunk / size;
      const std::vector<std::size_t> counts{1, ranks + 1, 100, 1000, loop, 3 * loop + 5, 20000};
      const auto results = reduced(n, type, counts, kChunk, version);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::vector<std::byte> expected = folded(
            type.model, counts[i], n, reference::nccl_ring(ranks, counts[i], size, kChunk, ring));
        for (const auto& of_rank : results)
          ASSERT_TRUE(of_rank.at(i) == expected)
              << counts[i] << " elements of " << size << " bytes, version " << version;
        other_than_newer +=
            expected !=
            folded(type.model, counts[i], n, reference::nccl_ring(ranks, counts[i], size, kChunk));
      }
    }
    if (n > 2 && ring != reference::NcclRing::kSince222)
      EXPECT_GT(other_than_newer, 4U) << version;
    else
      EXPECT_EQ(other_than_newer, 0U) << version;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingOfSimNccl, testing::Range(2, 7));

template <class T>
T summed(NcclDataType type, T x, T sum, const NcclReduction& reduction = {}) {
  T out{};
  add_to_sum(type, reduction, reinterpret_cast<std::byte*>(&out),
             reinterpret_cast<const std::byte*>(&x), reinterpret_cast<const std::byte*>(&sum),
             sizeof(T));
  return out;
}

TEST(SumsOfSimNccl, IntegersWrapAround) {
  EXPECT_EQ(summed<std::int8_t>(NcclDataType::kInt8, 127, 2), -127);
  EXPECT_EQ(summed<std::uint8_t>(NcclDataType::kUint8, 255, 2), 1);
  EXPECT_EQ(summed<std::int32_t>(NcclDataType::kInt32, INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(summed<std::uint32_t>(NcclDataType::kUint32, UINT32_MAX, 2), 1U);
  EXPECT_EQ(summed<std::int64_t>(NcclDataType::kInt64, INT64_MAX, 1), INT64_MIN);
  EXPECT_EQ(summed<std::uint64_t>(NcclDataType::kUint64, UINT64_MAX, 5), 4U);
  EXPECT_EQ(summed<std::int32_t>(NcclDataType::kInt32, -5, 1, {true, 3}), -14);
}

// The product is not rounded before the addition: 3 * (1/3) rounds to 1, and is a little more.
TEST(SumsOfSimNccl, AFactorIsFusedWithTheAddition) {
  const float third = 1.0F / 3.0F;
  EXPECT_EQ(summed<float>(NcclDataType::kFloat32, 3, -1, {true, third}), std::fma(3, third, -1.0F));
  EXPECT_NE(summed<float>(NcclDataType::kFloat32, 3, -1, {true, third}), 3 * third - 1);
}

// Of random bit patterns, against long double, which holds what they need exactly.
TEST(SumsOfSimNccl, FusedHalvesRoundOnce) {
  std::mt19937_64 random(7);
  std::size_t rounded_twice_differs = 0;
  for (const auto& [type, model] : {Type{NcclDataType::kFloat16, reference::DType::kFloat16},
                                    Type{NcclDataType::kBfloat16, reference::DType::kBFloat16}}) {
    for (int i = 0; i < 200'000; ++i) {
      const auto near_one = [&, of = model] {
        const double x = std::ldexp(static_cast<double>(random() % 2048) - 1024.0,
                                    static_cast<int>(random() % 12) - 16);
        return reference::nearest(of, x);
      };
      const double x = near_one();
      const double k = near_one();
      const double y = near_one();
      // At most 22 bits of a product, and a sum of those over 50 places: exact.
      const double exact = x * k + y;
      const double expected = reference::nearest(model, exact);
      const double product_first = reference::nearest(model, reference::nearest(model, x * k) + y);
      rounded_twice_differs += expected != product_first;
      const auto bits = [&, of = model](double value) {
        return static_cast<std::uint16_t>(reference::round_from_double(of, value));
      };
      const std::uint16_t got = summed<std::uint16_t>(type, bits(x), bits(y), {true, k});
      ASSERT_EQ(reference::to_double(model, got), expected) << x << " * " << k << " + " << y;
    }
  }
  EXPECT_GT(rounded_twice_differs, 10'000U);
}

TEST(SumsOfSimNccl, AFactorOfTheDeviceOrTheHostScalesEachContribution) {
  for (const bool is_on_device : {true, false}) {
    NcclRun run(2);
    run.run([is_on_device](SimRank& on) {
      const NcclComm comm = on.connected();
      const Tensor data = on.made(std::vector<float>(40, static_cast<float>(on.rank() + 1)));
      const Tensor on_device = on.made(std::vector<float>{0.5F});
      float on_host = 0.5F;
      NcclRedOp op{};
      EXPECT_EQ(
          on.api().red_op_create_pre_mul_sum(
              &op, is_on_device ? static_cast<void*>(on_device.data()) : &on_host, kNcclFloat,
              is_on_device ? NcclScalarResidence::kDevice : NcclScalarResidence::kHostImmediate,
              comm),
          NcclResult::kSuccess);
      EXPECT_EQ(on.settled(comm, on.api().all_reduce(data.data(), data.data(), 40, kNcclFloat, op,
                                                     comm, on.native())),
                NcclResult::kSuccess);
      EXPECT_EQ(on.values(data), std::vector<float>(40, 1.5F));
      EXPECT_EQ(on.api().red_op_destroy(op, comm), NcclResult::kSuccess);
      EXPECT_EQ(on.api().red_op_destroy(op, comm), NcclResult::kInvalidArgument);
      on.destroy(comm);
    });
    EXPECT_EQ(run.findings_text(), "");
  }
}

}  // namespace
}  // namespace lockstep::simulated
