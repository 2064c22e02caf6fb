#include "reducer/bucket/layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "reducer/base/check.h"

namespace lockstep::inline LOCKSTEP_NS {
namespace {

// FNV-1a over 64-bit words: the hash travels between ranks, so it must not depend on the standard
// library.
class Hasher {
 public:
  void add(std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) {
      hash_ ^= (word >> (8 * byte)) & 0xff;
      hash_ *= 0x100000001b3ull;
    }
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ull;
};

std::int64_t align(std::int64_t elements, DType dtype) {
  const auto step = static_cast<std::int64_t>(kMemberAlignmentBytes / size_of(dtype));
  return (elements + step - 1) / step * step;
}

BucketLayout place(std::span<const ParameterInfo> parameters,
                   std::span<const std::size_t> members) {
  BucketLayout bucket;
  bucket.dtype = parameters[members[0]].dtype;
  bucket.device = parameters[members[0]].device;
  for (const std::size_t index : members) {
    const std::int64_t offset = align(bucket.elements, bucket.dtype);
    bucket.members.push_back({index, offset, parameters[index].elements});
    bucket.elements = offset + parameters[index].elements;
  }
  return bucket;
}

void finish(Layout& layout) {
  Hasher hasher;
  hasher.add(layout.buckets.size());
  for (const BucketLayout& bucket : layout.buckets) {
    hasher.add(static_cast<std::uint64_t>(bucket.dtype));
    hasher.add(static_cast<std::uint64_t>(bucket.device));
    hasher.add(static_cast<std::uint64_t>(bucket.elements));
    hasher.add(bucket.members.size());
    for (const BucketMember& member : bucket.members) {
      hasher.add(member.parameter);
      hasher.add(static_cast<std::uint64_t>(member.offset));
      hasher.add(static_cast<std::uint64_t>(member.elements));
    }
  }
  layout.hash = hasher.value();
}

Status invalid(std::string detail) { return Status(Code::kInvalidArgument, std::move(detail)); }

}  // namespace

namespace {

// The buckets of B1 in the order of their first members, walking over `order`.
std::vector<std::vector<std::size_t>> fill_buckets(std::span<const ParameterInfo> parameters,
                                                   std::span<const std::uint64_t> limits,
                                                   std::span<const std::size_t> order) {
  struct Group {
    std::size_t open = 0;  // index into lists
    bool is_open = false;
    std::uint64_t bytes = 0;
    std::size_t closed = 0;
  };
  std::map<std::pair<DType, int>, Group> groups;
  std::vector<std::vector<std::size_t>> lists;  // opened in the order of their first members
  for (const std::size_t i : order) {
    LOCKSTEP_CHECK_GE(parameters[i].elements, 0);
    Group& group = groups[{parameters[i].dtype, parameters[i].device}];
    if (!group.is_open) {
      group.is_open = true;
      group.open = lists.size();
      group.bytes = 0;
      lists.emplace_back();
    }
    lists[group.open].push_back(i);
    group.bytes +=
        static_cast<std::uint64_t>(parameters[i].elements) * size_of(parameters[i].dtype);
    if (group.bytes < limits[std::min(group.closed, limits.size() - 1)]) continue;
    group.is_open = false;
    ++group.closed;
  }
  return lists;
}

}  // namespace

Result<Layout> assign_buckets(std::span<const ParameterInfo> parameters,
                              std::span<const std::uint64_t> limits) {
  if (limits.empty()) return failed(invalid("the list of bucket limits is empty"));
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].requires_grad) order.push_back(i);
  std::vector<std::vector<std::size_t>> lists = fill_buckets(parameters, limits, order);
  std::reverse(lists.begin(), lists.end());
  return layout_from_buckets(parameters, lists);
}

Result<Layout> assign_buckets_in_order(std::span<const ParameterInfo> parameters,
                                       std::span<const std::uint64_t> limits,
                                       std::span<const std::size_t> order) {
  if (limits.empty()) return failed(invalid("the list of bucket limits is empty"));
  for (const std::size_t index : order)
    if (index >= parameters.size())
      return failed(invalid("the order names parameter " + std::to_string(index) +
                            ", but there are " + std::to_string(parameters.size())));
  return layout_from_buckets(parameters, fill_buckets(parameters, limits, order));
}

Result<Layout> layout_from_buckets(std::span<const ParameterInfo> parameters,
                                   std::span<const std::vector<std::size_t>> buckets) {
  std::vector<bool> placed(parameters.size(), false);
  Layout layout;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::string where = "bucket " + std::to_string(b);
    if (buckets[b].empty()) return failed(invalid(where + " is empty"));
    for (const std::size_t index : buckets[b]) {
      if (index >= parameters.size())
        return failed(invalid(where + " names parameter " + std::to_string(index) +
                              ", but there are " + std::to_string(parameters.size())));
      const ParameterInfo& info = parameters[index];
      const ParameterInfo& first = parameters[buckets[b][0]];
      if (placed[index])
        return failed(invalid(where + " holds parameter " + info.name + " for the second time"));
      if (!info.requires_grad)
        return failed(
            invalid(where + " holds parameter " + info.name + ", which requires no gradient"));
      if (info.dtype != first.dtype)
        return failed(invalid(where + " mixes dtypes: " + first.name + " is " +
                              name_of(first.dtype) + ", " + info.name + " is " +
                              name_of(info.dtype)));
      if (info.device != first.device)
        return failed(invalid(where + " mixes devices: " + first.name + " is on " +
                              std::to_string(first.device) + ", " + info.name + " on " +
                              std::to_string(info.device)));
      placed[index] = true;
    }
    layout.buckets.push_back(place(parameters, buckets[b]));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].requires_grad && !placed[i])
      return failed(invalid("parameter " + parameters[i].name + " is in no bucket"));
  finish(layout);
  return layout;
}

}  // namespace lockstep::inline LOCKSTEP_NS
