#include "properties/compare/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "reducer/base/check.h"
#include "reference/arithmetic.h"
#include "reference/order.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using Kind = Operation::Kind;

constexpr std::uint32_t kFewestRanks = 2;
constexpr std::uint32_t kMostRanks = 8;
constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
constexpr std::size_t kStepParameters = 4;
static_assert(std::endian::native == std::endian::little, "bits_of() and store() take low bytes");

constexpr std::pair<const char*, DType> kTypes[] = {{"float32", DType::kFloat32},
                                                    {"float64", DType::kFloat64},
                                                    {"float16", DType::kFloat16},
                                                    {"bfloat16", DType::kBFloat16}};

const char* name_of_kind(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kRankOrdered:
      return "rank_ordered";
    case Kind::kStep:
      break;
  }
  return "step";
}

// The finalizer of SplitMix64, whose 64 output bits all depend on all input bits.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Values of both signs whose exponents differ by up to 7, so that additions round.
double order_sensitive(std::uint32_t rank, std::uint64_t element) {
  const std::uint64_t hash = mixed(mixed(element) + rank);
  const double mantissa = 1.0 + static_cast<double>(hash >> 12) * 0x1p-52;
  const int exponent = static_cast<int>(hash & 7) - 4;
  return std::ldexp((hash & 8) != 0 ? -mantissa : mantissa, exponent);
}

// A gradient whose scaled value, the rank's share of an average, is exactly a whole number
// below 64. 1 / ranks is rounded, so that not every such number has a gradient; zero has.
double gradient_of_step(std::uint32_t ranks, std::uint32_t rank, std::uint64_t element) {
  const double factor = reference::scale_factor(DType::kFloat32, ranks);
  for (std::uint64_t share = mixed(mixed(element) + rank) % 64;; share = (share + 1) % 64) {
    const double gradient = static_cast<double>(share) * ranks;
    if (reference::scaled(DType::kFloat32, gradient, factor) == static_cast<double>(share))
      return gradient;
  }
}

void store(std::vector<std::byte>& into, std::uint32_t width, std::uint64_t element,
           std::uint64_t bits) {
  std::memcpy(into.data() + element * width, &bits, width);
}

// All ranks' values in this order, element by element.
std::vector<double> sum_in(const std::vector<reference::OrderRun>& runs, DType dtype,
                           std::vector<std::vector<double>> x) {
  std::vector<double> sum(x.front().size());
  std::uint64_t begin = 0;
  for (const reference::OrderRun& run : runs) {
    const std::size_t count = run.end - begin;
    for (std::size_t i = 0; i + 1 < x.size(); ++i)
      reference::add_values(dtype, x[run.additions[i].into].data() + begin,
                            x[run.additions[i].from].data() + begin, count);
    std::copy_n(x[run.result].data() + begin, count, sum.data() + begin);
    begin = run.end;
  }
  return sum;
}

}  // namespace

const char* dtype_name(DType dtype) {
  for (const auto& [name, each] : kTypes)
    if (each == dtype) return name;
  return "an unknown type";
}

std::uint64_t Operation::count() const { return bytes / reference::size_of(dtype); }

std::string Operation::name() const {
  return fmt::format("{}/{}/{}", name_of_kind(kind), dtype_name(dtype), size_text(bytes));
}

std::string Operation::enqueue_name() const {
  return fmt::format("enqueue/{}/{}", dtype_name(dtype), size_text(bytes));
}

std::string Operation::proxy_name() const {
  return fmt::format("proxy/{}/{}", dtype_name(dtype), size_text(bytes));
}

std::vector<std::int64_t> step_parameters(const Operation& operation) {
  LOCKSTEP_CHECK_GE(operation.count(), kStepParameters);
  const auto quarter = static_cast<std::int64_t>(operation.count() / kStepParameters);
  std::vector<std::int64_t> sizes(kStepParameters, quarter);
  sizes.back() = static_cast<std::int64_t>(operation.count()) -
                 quarter * static_cast<std::int64_t>(kStepParameters - 1);
  return sizes;
}

PreparedOperation prepare(const Operation& operation) {
  const std::uint64_t count = operation.count();
  const DType dtype = operation.dtype;
  const std::uint32_t width = reference::size_of(dtype);
  const bool is_step = operation.kind == Kind::kStep;
  PreparedOperation out;
  out.operation = operation;
  for (std::uint32_t rank = 0; rank < operation.ranks; ++rank) {
    out.inputs.emplace_back(count * width);
    for (std::uint64_t i = 0; i < count; ++i) {
      const double value = is_step ? gradient_of_step(operation.ranks, rank, i)
                                   : reference::nearest(dtype, order_sensitive(rank, i));
      store(out.inputs.back(), width, i, reference::round_from_double(dtype, value));
    }
  }
  const std::vector<reference::OrderRun> order =
      operation.kind == Kind::kAllReduce ? reference::nccl_ring(operation.ranks, count, width)
                                         : reference::rank_order(operation.ranks, count);
  out.expected = sum_with(out, order);
  return out;
}

// What a step adds is scaled first.
std::vector<std::byte> sum_with(const PreparedOperation& prepared,
                                const std::vector<reference::OrderRun>& order) {
  const Operation& operation = prepared.operation;
  const DType dtype = operation.dtype;
  const std::uint32_t width = reference::size_of(dtype);
  const std::uint64_t count = operation.count();
  std::vector<std::vector<double>> values;
  for (const auto& input : prepared.inputs) {
    std::vector<double>& own = values.emplace_back();
    for (const std::uint64_t bits : bits_of(input, width, 0, count))
      own.push_back(reference::to_double(dtype, bits));
    if (operation.kind != Kind::kStep) continue;
    const double factor = reference::scale_factor(dtype, operation.ranks);
    reference::scale_values(dtype, own.data(), own.data(), factor, own.size());
  }
  const std::vector<double> sum = sum_in(order, dtype, std::move(values));
  std::vector<std::byte> out(count * width);
  for (std::uint64_t i = 0; i < count; ++i)
    store(out, width, i, reference::round_from_double(dtype, sum[i]));
  return out;
}

Result<std::vector<Operation>> make_operations(std::uint32_t ranks,
                                               const std::vector<std::uint64_t>& sizes,
                                               const std::vector<std::string>& dtypes) {
  const auto refused = [](std::string text) {
    return failed(Status(Code::kInvalidArgument, std::move(text)));
  };
  if (ranks < kFewestRanks || ranks > kMostRanks)
    return refused(fmt::format("{} ranks: give {} to {}", ranks, kFewestRanks, kMostRanks));
  std::vector<Operation> out;
  for (const std::string& name : dtypes) {
    const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                          [&name](const auto& each) { return name == each.first; });
    if (type == std::end(kTypes))
      return refused(fmt::format(
          "the type '{}' is not known: use float32, float64, float16 or bfloat16", name));
    for (const std::uint64_t bytes : sizes)
      out.push_back({Kind::kAllReduce, type->second, bytes, ranks});
  }
  for (const Kind kind : {Kind::kRankOrdered, Kind::kStep})
    for (const std::uint64_t bytes : sizes) out.push_back({kind, DType::kFloat32, bytes, ranks});
  for (const std::uint64_t bytes : sizes)
    if (bytes < 64 || bytes % 16 != 0 || bytes > kMostBytes)
      return refused(fmt::format("a size of {} bytes: give multiples of 16 from 64 bytes to {}",
                                 bytes, size_text(kMostBytes)));
  return out;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::pair<std::uint64_t, const char*> kUnits[] = {{std::uint64_t{1} << 20, "MiB"},
                                                              {std::uint64_t{1} << 10, "KiB"}};
  for (const auto& [unit, name] : kUnits)
    if (bytes >= unit && bytes % unit == 0) return fmt::format("{} {}", bytes / unit, name);
  return fmt::format("{} B", bytes);
}

std::uint64_t count_differences(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                                std::uint32_t element_bytes) {
  LOCKSTEP_CHECK_EQ(a.size(), b.size());
  if (a == b) return 0;
  std::uint64_t differences = 0;
  for (std::size_t at = 0; at < a.size(); at += element_bytes)
    differences += std::memcmp(a.data() + at, b.data() + at, element_bytes) != 0 ? 1 : 0;
  return differences;
}

std::vector<std::uint64_t> bits_of(const std::vector<std::byte>& bytes, std::uint32_t element_bytes,
                                   std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> out;
  const std::uint64_t end = std::min<std::uint64_t>(bytes.size() / element_bytes, first + count);
  for (std::uint64_t i = first; i < end; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * element_bytes, element_bytes);
    out.push_back(bits);
  }
  return out;
}

}  // namespace lockstep::properties
