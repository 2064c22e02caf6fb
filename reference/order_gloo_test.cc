// Claim: gloo_ring and gloo_bcube are the orders in which the Gloo library adds, bit for bit.
// Method: ranks as threads over TCP on 127.0.0.1, one all-reduce a case, the result of every rank
// against the model's fold. So that agreement means something, the fold in rank order must differ.
// A failure means: this Gloo adds in another order than the model says (G3), or rounds otherwise.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstring>
#include <exception>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "reference/arithmetic.h"
#include "reference/order.h"
#include "reference/values.h"

namespace lockstep::reference {
namespace {

struct Reduction {
  Order order = Order::kRing;
  DType dtype = DType::kFloat32;
  std::uint64_t elements = 0;
  std::uint64_t max_segment_bytes = 0;
};

// bf16 is unknown to Gloo. A sum of floats, rounded to its upper half: another way to the same bits
// than the model's.
void sum_bfloat16(void* into, const void* a, const void* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t x = 0;
    std::uint16_t y = 0;
    std::memcpy(&x, static_cast<const char*>(a) + 2 * i, 2);
    std::memcpy(&y, static_cast<const char*>(b) + 2 * i, 2);
    const float sum =
        std::bit_cast<float>(std::uint32_t{x} << 16) + std::bit_cast<float>(std::uint32_t{y} << 16);
    const auto bits = std::bit_cast<std::uint32_t>(sum);
    const auto rounded = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(static_cast<char*>(into) + 2 * i, &rounded, 2);
  }
}

// What rank `rank` contributes to reduction `index`.
std::vector<double> contribution(const Reduction& reduction, std::uint32_t index,
                                 std::uint32_t rank) {
  Program program;
  program.values = Values::kGeneral;
  Parameter parameter;
  parameter.dtype = reduction.dtype;
  std::vector<std::uint32_t> position(reduction.elements);
  std::iota(position.begin(), position.end(), 0U);
  std::vector<double> values(reduction.elements);
  UseValues(program, parameter, rank, 0, index).read(values.data(), position.data(), values.size());
  return values;
}

std::vector<double> folded(const Reduction& reduction, std::uint32_t index, std::uint32_t ranks,
                           const std::vector<OrderRun>& runs) {
  std::vector<std::vector<double>> x;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    x.push_back(contribution(reduction, index, rank));
  }
  std::vector<double> result(reduction.elements);
  std::uint64_t begin = 0;
  for (const OrderRun& run : runs) {
    for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
      const Addition& addition = run.additions[i];
      add_values(reduction.dtype, &x[addition.into][begin], &x[addition.from][begin],
                 run.end - begin);
    }
    for (; begin < run.end; ++begin) result[begin] = x[run.result][begin];
  }
  return result;
}

// The library's result on one rank, as bytes.
std::vector<char> reduce_with_gloo(const std::shared_ptr<gloo::Context>& context,
                                   const Reduction& reduction, std::uint32_t index,
                                   std::uint32_t rank) {
  const std::uint32_t bytes = size_of(reduction.dtype);
  std::vector<char> buffer(reduction.elements * bytes);
  const std::vector<double> values = contribution(reduction, index, rank);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = round_from_double(reduction.dtype, values[i]);
    std::memcpy(buffer.data() + i * bytes, &bits, bytes);  // the low bytes come first
  }
  gloo::AllreduceOptions options(context);
  if (reduction.dtype == DType::kFloat32) {
    options.setOutput(reinterpret_cast<float*>(buffer.data()), reduction.elements);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  } else {
    options.setOutput(reinterpret_cast<gloo::float16*>(buffer.data()), reduction.elements);
    if (reduction.dtype == DType::kBFloat16) {
      options.setReduceFunction(&sum_bfloat16);
    } else {
      options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(
          &gloo::sum<gloo::float16>));
    }
  }
  options.setAlgorithm(reduction.order == Order::kRing ? gloo::AllreduceOptions::Algorithm::RING
                                                       : gloo::AllreduceOptions::Algorithm::BCUBE);
  options.setMaxSegmentSize(reduction.max_segment_bytes);
  options.setTag(index);
  gloo::allreduce(options);
  return buffer;
}

std::vector<Reduction> reductions_for(std::uint32_t n) {
  std::vector<Reduction> reductions;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const std::uint64_t segment = 64 / size_of(dtype);  // elements of a 64-byte segment
    const std::set<std::uint64_t> sizes = {1,
                                           n - 1,
                                           n,
                                           n + 1,
                                           std::uint64_t{2} * n - 1,
                                           std::uint64_t{2} * n,
                                           std::uint64_t{2} * n + 1,
                                           std::uint64_t{3} * n * segment,
                                           std::uint64_t{3} * n * segment + 1,
                                           std::uint64_t{2} * n * segment - 1,
                                           std::uint64_t{5} * n * segment + 7,
                                           1000};
    for (const std::uint64_t elements : sizes) {
      reductions.push_back({Order::kRing, dtype, elements, 64});
      reductions.push_back({Order::kRing, dtype, elements, std::uint64_t{1024} * 1024});
      reductions.push_back({Order::kBcube, dtype, elements, std::uint64_t{1024} * 1024});
    }
  }
  // Longer than two of the library's own segments a rank.
  if (n == 3)
    reductions.push_back(
        {Order::kRing, DType::kFloat32, 6 * 262144 + 5, std::uint64_t{1024} * 1024});
  return reductions;
}

// results[rank][reduction], as bytes. A rank that throws leaves its message.
struct GlooRanks {
  std::vector<std::vector<std::vector<char>>> results;
  std::vector<std::string> errors;
};

GlooRanks run_ranks(std::uint32_t n, const std::vector<Reduction>& reductions) {
  std::signal(SIGPIPE, SIG_IGN);  // the library writes to sockets without asking for EPIPE
  gloo::transport::tcp::attr address("127.0.0.1");
  const auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::HashStore store;
  GlooRanks all;
  all.results.resize(n);
  all.errors.resize(n);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank),
                                                                   static_cast<int>(n));
        context->setTimeout(std::chrono::seconds(60));
        auto at = std::shared_ptr<gloo::transport::Device>(device);
        context->connectFullMesh(store, at);
        for (std::uint32_t i = 0; i < reductions.size(); ++i) {
          all.results[rank].push_back(reduce_with_gloo(context, reductions[i], i, rank));
        }
      } catch (const std::exception& error) {
        all.errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

// How many elements the two differ in.
std::size_t differences(DType dtype, const std::vector<char>& bytes,
                        const std::vector<double>& values) {
  const std::uint32_t size = size_of(dtype);
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * size, size);
    count += !same_bits(dtype, bits, round_from_double(dtype, values[i]));
  }
  return count;
}

class OrderOfGloo : public testing::TestWithParam<std::uint32_t> {};

TEST_P(OrderOfGloo, IsTheModelsBitForBitAndNotRankOrder) {
  const std::uint32_t n = GetParam();
  const std::vector<Reduction> reductions = reductions_for(n);
  const GlooRanks gloo = run_ranks(n, reductions);
  std::size_t naive_differences[2] = {0, 0};
  for (std::uint32_t rank = 0; rank < n; ++rank) ASSERT_EQ(gloo.errors[rank], "");
  for (std::uint32_t i = 0; i < reductions.size(); ++i) {
    const Reduction& reduction = reductions[i];
    const bool is_ring = reduction.order == Order::kRing;
    const std::vector<double> expected =
        folded(reduction, i, n,
               is_ring ? gloo_ring(n, reduction.elements, size_of(reduction.dtype),
                                   reduction.max_segment_bytes)
                       : gloo_bcube(n, reduction.elements));
    for (std::uint32_t rank = 0; rank < n; ++rank) {
      ASSERT_EQ(gloo.results[rank].size(), reductions.size());
      ASSERT_EQ(differences(reduction.dtype, gloo.results[rank][i], expected), 0U)
          << (is_ring ? "ring, " : "bcube, ") << reduction.elements << " elements of "
          << size_of(reduction.dtype) << " bytes, segments " << reduction.max_segment_bytes
          << ", rank " << rank;
    }
    const std::vector<double> naive = folded(reduction, i, n, rank_order(n, reduction.elements));
    naive_differences[is_ring] += differences(reduction.dtype, gloo.results[0][i], naive);
  }
  if (n > 2) {
    EXPECT_GT(naive_differences[0], 100U);
    EXPECT_GT(naive_differences[1], 100U);
  } else {  // an addition of two is the same in both orders
    EXPECT_EQ(naive_differences[0] + naive_differences[1], 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, OrderOfGloo, testing::Range(2U, 9U));

}  // namespace
}  // namespace lockstep::reference
