#include "properties/explain/explain_bits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <utility>

#include "properties/explain/explain_more.h"
#include "properties/explain/named_orders.h"
#include "reference/arithmetic.h"
#include "reference/order.h"

namespace lockstep::properties {
namespace {

using reference::DType;
using reference::OrderRun;
using Values = std::vector<double>;

constexpr std::uint64_t kMostShift = 64;  // in values
// The newest first.
constexpr std::array<const char*, 3> kNcclRings = {
    "NCCL's ring (2.22 and newer)", "NCCL's ring (2.20 and 2.21)", "NCCL's ring (2.18 and 2.19)"};

DType type_of_part(DType dtype) { return dtype == DType::kComplex64 ? DType::kFloat32 : dtype; }

// The first names of named_orders() are those that the contract declares.
constexpr std::size_t kDeclared = 6;

std::vector<NamedOrder> declared_orders(DType dtype, std::uint32_t ranks, std::uint64_t count,
                                        std::uint64_t nccl_chunk) {
  auto orders = named_orders(ranks, count, reference::size_of(dtype), nccl_chunk);
  orders.resize(kDeclared);
  return orders;
}

Values values_of(DType dtype, const std::vector<std::uint64_t>& bits) {
  Values values;
  values.reserve(bits.size());
  for (const std::uint64_t each : bits) values.push_back(reference::to_double(dtype, each));
  return values;
}

// The sum of the contributions in this order; they begin at `offset` of the buffer.
Values sum_in(const std::vector<OrderRun>& runs, DType dtype, std::uint64_t offset,
              std::vector<Values> x) {
  const std::size_t count = x.front().size();
  std::size_t begin = 0;
  for (const OrderRun& run : runs) {
    if (run.end <= offset + begin || begin == count) continue;
    const std::size_t end = std::min<std::uint64_t>(count, run.end - offset);
    for (std::size_t i = 0; i + 1 < x.size(); ++i)
      reference::add_values(dtype, x[run.additions[i].into].data() + begin,
                            x[run.additions[i].from].data() + begin, end - begin);
    std::copy(x[run.result].begin() + static_cast<std::ptrdiff_t>(begin),
              x[run.result].begin() + static_cast<std::ptrdiff_t>(end),
              x.front().begin() + static_cast<std::ptrdiff_t>(begin));
    begin = end;
  }
  return std::move(x.front());
}

class Search {
 public:
  Search(const AverageInputs& inputs, const std::vector<std::uint64_t>& result)
      : dtype_(type_of_part(inputs.dtype)),
        offset_(inputs.offset),
        before_(inputs.before),
        result_(result) {
    for (const auto& rank : inputs.ranks) ranks_.push_back(values_of(dtype_, rank));
    divisor_ = inputs.divisor == 0 ? world() : inputs.divisor;
    const std::uint64_t count = std::max(inputs.buffer_count, offset_ + result.size());
    orders_ = declared_orders(dtype_, world(), count, inputs.nccl_chunk_bytes);
  }

  std::vector<BitsExplanation> run() {
    try_averages();
    try_other_divisors();
    try_other_contributions();
    try_what_is_there();
    try_offsets();
    return chosen();
  }

 private:
  std::uint32_t world() const { return static_cast<std::uint32_t>(ranks_.size()); }

  std::vector<Values> scaled(const std::vector<Values>& ranks, std::uint32_t divisor) const {
    std::vector<Values> out = ranks;
    const double factor = reference::scale_factor(dtype_, divisor);
    for (Values& each : out)
      reference::scale_values(dtype_, each.data(), each.data(), factor, each.size());
    return out;
  }

  std::uint64_t count_matches(const Values& values) const {
    std::uint64_t matches = 0;
    for (std::size_t i = 0; i < result_.size(); ++i) matches += is_match(values, i) ? 1 : 0;
    return matches;
  }

  bool is_match(const Values& values, std::size_t i) const {
    return reference::same_bits(dtype_, reference::round_from_double(dtype_, values[i]),
                                result_[i]);
  }

  void add(std::string order, std::string mistake, std::uint64_t matches) {
    found_.push_back({std::move(order), std::move(mistake), matches});
  }

  // One explanation an order. `summands` are scaled already.
  void add_sums(const std::vector<Values>& summands, const std::string& mistake) {
    for (const NamedOrder& order : orders_)
      add(order.name, mistake, count_matches(sum_in(order.runs, dtype_, offset_, summands)));
  }

  void try_averages() {
    const std::vector<Values> summands = scaled(ranks_, divisor_);
    for (const NamedOrder& order : orders_) {
      averages_.push_back(sum_in(order.runs, dtype_, offset_, summands));
      add(order.name, "", count_matches(averages_.back()));
    }
  }

  void try_other_divisors() {
    const std::uint32_t n = divisor_;
    if (n > 1) add_sums(ranks_, "it is the sum and not the average");
    for (const std::uint32_t other : {n - 1, n + 1, n * n})
      if (other > 1 && other != n)
        add_sums(scaled(ranks_, other), fmt::format("it is divided by {} and not by {}", other, n));
    const double factor = reference::scale_factor(dtype_, n);
    for (const NamedOrder& order : orders_) {
      Values sum = sum_in(order.runs, dtype_, offset_, ranks_);
      reference::scale_values(dtype_, sum.data(), sum.data(), factor, sum.size());
      add(order.name, "it is divided after the sum and not before", count_matches(sum));
    }
  }

  void try_other_contributions() {
    const std::vector<Values> summands = scaled(ranks_, divisor_);
    for (std::uint32_t rank = 0; rank < world(); ++rank) {
      std::vector<Values> other = summands;
      std::fill(other[rank].begin(), other[rank].end(), 0.0);
      add_sums(other, fmt::format("rank {} is missing", rank));
      other = summands;
      reference::add_values(dtype_, other[rank].data(), summands[rank].data(), other[rank].size());
      add_sums(other, fmt::format("rank {} is counted twice", rank));
      for (std::uint32_t peer = 0; peer < world(); ++peer) {
        if (peer == rank) continue;
        other = summands;
        other[rank] = summands[peer];
        add_sums(other, fmt::format("rank {} has the values of rank {}", rank, peer));
      }
    }
  }

  void try_what_is_there() {
    const std::vector<Values> summands = scaled(ranks_, divisor_);
    for (std::uint32_t rank = 0; rank < world(); ++rank) {
      if (world() > 1 || divisor_ > 1)
        add("", fmt::format("rank {}'s own values, neither divided nor summed", rank),
            count_matches(ranks_[rank]));
      if (world() > 1)
        add("", fmt::format("rank {}'s own values, divided and not summed", rank),
            count_matches(summands[rank]));
    }
    if (before_.size() != result_.size()) return;
    const Values before = values_of(dtype_, before_);
    add("", "the average of the pass before", count_matches(before));
    for (std::size_t i = 0; i < orders_.size(); ++i) {
      Values sum = averages_[i];
      reference::add_values(dtype_, sum.data(), before.data(), sum.size());
      add(orders_[i].name, "it is added to the average of the pass before", count_matches(sum));
    }
  }

  void try_offsets() {
    const auto count = static_cast<std::int64_t>(result_.size());
    const auto most = std::min<std::int64_t>(kMostShift, count / 2);
    for (std::int64_t shift = -most; shift <= most; ++shift) {
      if (shift == 0) continue;
      std::uint64_t matches = 0;
      for (std::int64_t i = std::max<std::int64_t>(0, -shift); i < std::min(count, count - shift);
           ++i)
        matches += reference::same_bits(
            dtype_,
            reference::round_from_double(dtype_, averages_[0][static_cast<std::size_t>(i + shift)]),
            result_[static_cast<std::size_t>(i)]);
      // What is moved in from outside is not known.
      const auto known = static_cast<std::uint64_t>(count - std::abs(shift));
      if (matches == known && known > 1)
        add(orders_[0].name,
            fmt::format("it lies {} value{} too {}", std::abs(shift),
                        std::abs(shift) == 1 ? "" : "s", shift > 0 ? "early" : "late"),
            result_.size());
    }
  }

  std::vector<BitsExplanation> chosen() {
    std::uint64_t most = 0;
    for (const BitsExplanation& each : found_) most = std::max(most, each.matches);
    if (2 * most < result_.size()) return {};
    const bool is_right = std::any_of(found_.begin(), found_.end(), [&](const auto& each) {
      return each.mistake.empty() && each.matches == most;
    });
    std::erase_if(found_, [&](const BitsExplanation& each) {
      return each.matches != most || (is_right && !each.mistake.empty());
    });
    if (most < result_.size())
      found_.resize(1);
    else
      join_orders();
    leave_out_older_rings();
    return std::move(found_);
  }

  // Where rings of several releases explain the same, the newest stands for them.
  void leave_out_older_rings() {
    for (std::size_t newer = 0; newer < kNcclRings.size(); ++newer) {
      std::set<std::string> explained;
      for (const BitsExplanation& each : found_)
        if (each.order == kNcclRings[newer]) explained.insert(each.mistake);
      std::erase_if(found_, [&](const BitsExplanation& each) {
        const auto ring = std::find(kNcclRings.begin(), kNcclRings.end(), each.order);
        return ring != kNcclRings.end() && ring > kNcclRings.begin() + newer &&
               explained.contains(each.mistake);
      });
    }
  }

  // One explanation takes the place of those that differ in the order alone, and have every order.
  void join_orders() {
    for (std::size_t i = 0; i < found_.size(); ++i) {
      const std::string mistake = found_[i].mistake;
      const auto is_same = [&mistake](const auto& each) { return each.mistake == mistake; };
      if (found_[i].order.empty() || static_cast<std::size_t>(std::count_if(
                                         found_.begin(), found_.end(), is_same)) != orders_.size())
        continue;
      const BitsExplanation joined{kAnyOrder, mistake, found_[i].matches};
      std::erase_if(found_, is_same);
      found_.insert(found_.begin() + static_cast<std::ptrdiff_t>(i), joined);
    }
  }

  DType dtype_;
  std::uint64_t offset_;
  const std::vector<std::uint64_t>& before_;
  const std::vector<std::uint64_t>& result_;
  std::vector<Values> ranks_;
  std::uint32_t divisor_ = 1;
  std::vector<NamedOrder> orders_;
  std::vector<Values> averages_;  // by order
  std::vector<BitsExplanation> found_;
};

}  // namespace

std::vector<BitsExplanation> explain_bits(const AverageInputs& inputs,
                                          const std::vector<std::uint64_t>& result) {
  const auto is_whole = [&](const auto& found) {
    return !found.empty() && found.front().matches == result.size();
  };
  auto declared = Search(inputs, result).run();
  if (is_whole(declared) && declared.front().mistake.empty()) return declared;
  if (auto found = explain_by_orders(inputs, result); is_whole(found)) return found;
  if (is_whole(declared)) return declared;
  for (const auto explain :
       {explain_by_arithmetic, explain_by_weights, explain_by_parts, explain_by_flipped_bit})
    if (auto found = explain(inputs, result); is_whole(found)) return found;
  // An order that gives most of the bits says more than that none gives all.
  return declared.empty() ? explain_by_rounding(inputs, result) : declared;
}

std::string to_text(const std::vector<BitsExplanation>& explanations, std::uint64_t values) {
  constexpr std::size_t kMostListed = 4;
  if (explanations.empty()) return "nothing that is known here gives these bits";
  std::vector<std::pair<std::string, std::vector<std::string>>> by_mistake;
  for (const BitsExplanation& each : explanations) {
    const auto same = std::find_if(by_mistake.begin(), by_mistake.end(),
                                   [&](const auto& other) { return other.first == each.mistake; });
    if (same == by_mistake.end())
      by_mistake.push_back({each.mistake, {each.order}});
    else
      same->second.push_back(each.order);
  }
  std::string out;
  for (std::size_t i = 0; i < std::min(by_mistake.size(), kMostListed); ++i) {
    const auto& [mistake, orders] = by_mistake[i];
    if (i > 0) out += "; or ";
    if (orders.front().empty()) {
      out += mistake;
      continue;
    }
    out += orders.front() == kAnyOrder
               ? fmt::format("the average, in {}", kAnyOrder)
               : fmt::format("the average, added in {}", fmt::join(orders, " or "));
    if (!mistake.empty()) out += ", but " + mistake;
  }
  if (by_mistake.size() > kMostListed)
    out += fmt::format("; or {} more", by_mistake.size() - kMostListed);
  const std::uint64_t matches = explanations.front().matches;
  if (matches < values) out += fmt::format(" (this explains {} of {} values)", matches, values);
  return out;
}

}  // namespace lockstep::properties
