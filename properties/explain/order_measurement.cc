#include "properties/explain/order_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "reference/arithmetic.h"

namespace lockstep::properties {
namespace {

using reference::DType;

constexpr std::array<std::pair<const char*, DType>, 4> kDTypes = {{{"float32", DType::kFloat32},
                                                                   {"float64", DType::kFloat64},
                                                                   {"float16", DType::kFloat16},
                                                                   {"bfloat16", DType::kBFloat16}}};

// A line of an index: what one rank got from one call.
struct Got {
  std::uint64_t offset = 0;  // in the rank's results
  std::uint64_t bytes = 0;
  std::uint64_t begin = 0;  // in the buffer, in elements
};

// Of one rank: by entry, repeat and call.
using Index = std::map<std::array<std::uint32_t, 3>, Got>;

struct RankFiles {
  Index index;
  std::string results;
};

tl::unexpected<Status> torn(const std::string& file) {
  return failed(
      Status(Code::kInvalidArgument,
             file + ": it is not there, or it ends in the middle; did all ranks finish?"));
}

Result<std::string> content_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return torn(file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Result<RankFiles> read_rank(const std::string& folder, std::uint32_t rank) {
  const std::string name = fmt::format("{}/index.{}", folder, rank);
  Result<std::string> results = content_of(fmt::format("{}/results.{}", folder, rank));
  Result<std::string> index = content_of(name);
  if (!results) return failed(results.error());
  if (!index) return failed(index.error());
  RankFiles files;
  files.results = std::move(*results);
  std::istringstream lines(*index);
  std::array<std::uint32_t, 3> key{};
  Got got;
  while (lines >> key[0] >> key[1] >> key[2] >> got.offset >> got.bytes >> got.begin) {
    if (got.offset > files.results.size() || got.bytes > files.results.size() - got.offset)
      return torn(name);
    files.index[key] = got;
  }
  if (!lines.eof()) return torn(name);
  return files;
}

void append_bits(const RankFiles& files, const Got& got, std::uint64_t element_bytes,
                 std::vector<std::uint64_t>& out) {
  for (std::uint64_t at = 0; at + element_bytes <= got.bytes; at += element_bytes) {
    std::uint64_t bits = 0;  // the machines that this runs on are little-endian
    std::memcpy(&bits, files.results.data() + got.offset + at, element_bytes);
    out.push_back(bits);
  }
}

// The whole buffer, from what the ranks got of one call: of scattered sums one behind the other.
std::vector<std::uint64_t> joined(const std::vector<RankFiles>& ranks, std::vector<Got> got,
                                  std::uint64_t element_bytes, bool is_scattered) {
  std::vector<std::uint64_t> sums;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    append_bits(ranks[rank], got[rank], element_bytes, sums);
    if (!is_scattered && !sums.empty()) break;
  }
  return sums;
}

bool have_equal_bytes(const std::vector<RankFiles>& ranks, const std::vector<Got>& got) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    if (got[rank].bytes != got[0].bytes ||
        std::memcmp(ranks[rank].results.data() + got[rank].offset,
                    ranks[0].results.data() + got[0].offset, got[0].bytes) != 0)
      return false;
  return true;
}

std::vector<std::string> in_both(const std::vector<std::string>& a,
                                 const std::vector<std::string>& b) {
  std::vector<std::string> out;
  for (const std::string& each : a)
    if (std::find(b.begin(), b.end(), each) != b.end()) out.push_back(each);
  return out;
}

// The names that fit both; or nothing, if the two are not of one algorithm.
std::optional<std::vector<std::vector<std::string>>> in_common(const OrderGroup& group,
                                                               const OrderMeasurement& next) {
  const OrderMeasurement& before = *group.example;
  if (before.is_fixed() != next.is_fixed() || before.ranks_agree != next.ranks_agree)
    return std::nullopt;
  std::vector<std::vector<std::string>> families;
  if (!next.is_fixed()) return families;
  for (std::size_t call = 0; call < next.sums.front().size(); ++call) {
    const FoundOrder& a = before.orders[before.sums.front()[call]];
    const FoundOrder& b = next.orders[next.sums.front()[call]];
    if (a.rounding != b.rounding) return std::nullopt;
    families.push_back(in_both(group.families[call], b.families));
    if (families.back().empty() &&
        (!group.families[call].empty() || !b.families.empty() || a.signature() != b.signature()))
      return std::nullopt;
  }
  return families;
}

}  // namespace

const char* name_of(DType dtype) {
  for (const auto& [name, each] : kDTypes)
    if (each == dtype) return name;
  return "complex64";
}

Result<DType> dtype_named(const std::string& name) {
  for (const auto& [each, dtype] : kDTypes)
    if (name == each) return dtype;
  return failed(Status(Code::kInvalidArgument,
                       fmt::format("there is no dtype '{}' here: give float32, float64, float16 "
                                   "or bfloat16",
                                   name)));
}

bool OrderMeasurement::is_fixed() const {
  return std::all_of(sums.begin(), sums.end(),
                     [this](const auto& repeat) { return repeat == sums.front(); });
}

std::vector<CallSpan> spans_of(const OrderMeasurement& measurement) {
  assert(!measurement.sums.empty());
  std::vector<CallSpan> spans;
  const std::vector<std::uint32_t>& calls = measurement.sums.front();
  for (std::uint32_t call = 0; call < calls.size(); ++call) {
    if (!spans.empty() && spans.back().sums == calls[call])
      spans.back().last = call + 1;
    else
      spans.push_back({call + 1, call + 1, calls[call]});
  }
  return spans;
}

std::vector<OrderGroup> groups_of(const std::vector<const OrderMeasurement*>& measurements) {
  std::vector<OrderGroup> groups;
  for (const OrderMeasurement* each : measurements) {
    if (!groups.empty()) {
      if (auto families = in_common(groups.back(), *each)) {
        groups.back().last = each->request.elements;
        groups.back().example = each;
        groups.back().families = std::move(*families);
        continue;
      }
    }
    OrderGroup& group =
        groups.emplace_back(OrderGroup{each->request.elements, each->request.elements, each, {}});
    if (!each->is_fixed()) continue;
    for (const std::uint32_t sums : each->sums.front())
      group.families.push_back(each->orders[sums].families);
  }
  return groups;
}

std::vector<std::uint64_t> coarse_sizes(std::uint64_t most) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t power = 1; power <= most; power *= 2) {
    sizes.push_back(power);
    if (power > 1 && power + power / 2 <= most) sizes.push_back(power + power / 2);
  }
  return sizes;
}

std::vector<std::uint64_t> sizes_between(std::uint64_t low, std::uint64_t high,
                                         std::uint32_t count) {
  std::vector<std::uint64_t> sizes;
  const std::uint64_t gap = high - low;
  for (std::uint64_t i = 1; i <= count; ++i) {
    const std::uint64_t size = low + gap * i / (count + 1);
    if (size > low && size < high && (sizes.empty() || sizes.back() != size)) sizes.push_back(size);
  }
  return sizes;
}

Status write_plan(const std::string& folder, std::uint32_t ranks,
                  const std::vector<OrderRequest>& requests) {
  std::map<DType, std::uint64_t> most;
  std::string plan;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const OrderRequest& each = requests[i];
    most[each.dtype] = std::max(most[each.dtype], each.elements);
    plan += fmt::format("{} {} {} {} {} {} {}\n", i, each.collective, name_of(each.dtype),
                        each.elements, each.calls, each.repeats, each.root);
  }
  const auto write = [&](const std::string& name, const std::string& content) -> Status {
    std::ofstream out(folder + "/" + name, std::ios::binary);
    out << content << std::flush;
    if (out) return {};
    return Status(Code::kInvalidArgument, fmt::format("{}/{} cannot be written", folder, name));
  };
  for (const auto& [dtype, elements] : most) {
    const OrderFinder finder(dtype, ranks);
    const std::uint64_t bytes = reference::size_of(dtype);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::string values;
      for (const std::uint64_t bits : finder.values_of(rank, elements))
        values.append(reinterpret_cast<const char*>(&bits), bytes);
      const Status status = write(fmt::format("values.{}.{}", name_of(dtype), rank), values);
      if (!status.ok()) return status;
    }
  }
  return write("plan", plan);
}

Result<std::vector<OrderMeasurement>> read_measurements(const std::string& folder,
                                                        std::uint32_t ranks,
                                                        const std::vector<OrderRequest>& requests) {
  std::vector<RankFiles> files;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Result<RankFiles> read = read_rank(folder, rank);
    if (!read) return failed(read.error());
    files.push_back(std::move(*read));
  }
  std::map<DType, OrderFinder> finders;
  std::vector<OrderMeasurement> out;
  for (std::uint32_t entry = 0; entry < requests.size(); ++entry) {
    OrderMeasurement& measured = out.emplace_back();
    measured.request = requests[entry];
    const DType dtype = measured.request.dtype;
    const OrderFinder& finder = finders.try_emplace(dtype, dtype, ranks).first->second;
    const std::uint64_t bytes = reference::size_of(dtype);
    const bool is_scattered = measured.request.collective.starts_with("reduce_scatter");
    const bool is_rooted = measured.request.collective == "reduce";
    std::map<std::vector<std::uint64_t>, std::uint32_t> known;  // by offsets in the ranks' results
    for (std::uint32_t repeat = 0; repeat < measured.request.repeats; ++repeat) {
      auto& of_repeat = measured.sums.emplace_back();
      for (std::uint32_t call = 0; call < measured.request.calls; ++call) {
        std::vector<Got> got;
        std::vector<std::uint64_t> offsets;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          const auto found = files[rank].index.find({entry, repeat, call});
          if (found == files[rank].index.end())
            return torn(fmt::format("{}/index.{}", folder, rank));
          got.push_back(found->second);
          offsets.push_back(found->second.offset);
        }
        const auto [at, is_new] =
            known.emplace(offsets, static_cast<std::uint32_t>(measured.orders.size()));
        of_repeat.push_back(at->second);
        if (!is_new) continue;
        if (!is_scattered && !is_rooted && !have_equal_bytes(files, got))
          measured.ranks_agree = false;
        const auto sums = joined(files, got, bytes, is_scattered);
        measured.hashes.push_back(hash_of(sums, bytes));
        measured.orders.push_back(finder.find(sums, 0, measured.request.elements));
      }
    }
  }
  return out;
}

}  // namespace lockstep::properties
