#include "reducer/bucket/layout.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "reducer/base/check.h"
#include "reducer/base/sizes.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// FNV-1a over 64-bit words. Ranks exchange the hash, so it must not depend on the standard library.
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
  return round_up_size(elements, static_cast<std::int64_t>(kMemberAlignmentBytes / size_of(dtype)));
}

std::int64_t bytes_of(std::int64_t elements, DType dtype) {
  return multiply_sizes(elements, static_cast<std::int64_t>(size_of(dtype)));
}

BucketLayout place(std::span<const ParameterInfo> parameters,
                   std::span<const std::size_t> members) {
  LOCKSTEP_CHECK(!members.empty());
  BucketLayout bucket;
  bucket.dtype = parameters[members[0]].dtype;
  bucket.device = parameters[members[0]].device;
  bucket.sparse = parameters[members[0]].sparse;
  for (const std::size_t index : members) {
    const std::int64_t offset = align(bucket.elements, bucket.dtype);
    LOCKSTEP_CHECK_GE(offset, bucket.elements);  // Members do not overlap.
    bucket.members.push_back({index, offset, parameters[index].elements});
    bucket.elements = add_sizes(offset, parameters[index].elements);
  }
  return bucket;
}

std::uint64_t hash_of(const Layout& layout) {
  Hasher hasher;
  hasher.add(layout.buckets.size());
  for (const BucketLayout& bucket : layout.buckets) {
    hasher.add(static_cast<std::uint64_t>(bucket.dtype));
    hasher.add(static_cast<std::uint64_t>(bucket.device));
    if (bucket.sparse) hasher.add(~std::uint64_t{0});
    hasher.add(static_cast<std::uint64_t>(bucket.elements));
    hasher.add(bucket.members.size());
    for (const BucketMember& member : bucket.members) {
      hasher.add(member.parameter);
      hasher.add(static_cast<std::uint64_t>(member.offset));
      hasher.add(static_cast<std::uint64_t>(member.elements));
    }
  }
  return hasher.value();
}

Status invalid(std::string detail) { return Status(Code::kInvalidArgument, std::move(detail)); }

// Fills the buckets of B1, walking over `order`; the result is in the order of their first members.
std::vector<std::vector<std::size_t>> fill_buckets(std::span<const ParameterInfo> parameters,
                                                   std::span<const std::uint64_t> limits,
                                                   std::span<const std::size_t> order) {
  LOCKSTEP_CHECK(!limits.empty());
  struct Group {
    std::size_t open = 0;  // The index into lists.
    bool is_open = false;
    std::int64_t bytes = 0;
    std::size_t closed = 0;
  };
  std::map<std::pair<DType, int>, Group> groups;
  // The lists are opened in the order of their first members.
  std::vector<std::vector<std::size_t>> lists;
  for (const std::size_t i : order) {
    LOCKSTEP_CHECK_GE(parameters[i].elements, 0);
    if (parameters[i].sparse) {
      lists.push_back({i});
      continue;
    }
    Group& group = groups[{parameters[i].dtype, parameters[i].device}];
    if (!group.is_open) {
      group.is_open = true;
      group.open = lists.size();
      group.bytes = 0;
      lists.emplace_back();
    }
    lists[group.open].push_back(i);
    group.bytes = add_sizes(group.bytes, bytes_of(parameters[i].elements, parameters[i].dtype));
    const auto bytes = static_cast<std::uint64_t>(group.bytes);
    if (bytes < limits[std::min(group.closed, limits.size() - 1)]) continue;
    group.is_open = false;
    ++group.closed;
  }
  return lists;
}

Result<Layout> with_limits(Result<Layout> layout, std::span<const std::uint64_t> limits) {
  if (layout) layout->limits.assign(limits.begin(), limits.end());
  return layout;
}

}  // namespace

Result<Layout> assign_buckets(std::span<const ParameterInfo> parameters,
                              std::span<const std::uint64_t> limits) {
  if (limits.empty()) return failed(invalid("the list of bucket limits is empty"));
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].requires_grad) order.push_back(i);
  std::vector<std::vector<std::size_t>> lists = fill_buckets(parameters, limits, order);
  LOCKSTEP_CHECK_LE(lists.size(), order.size());  // None is empty.
  std::reverse(lists.begin(), lists.end());
  return with_limits(layout_from_buckets(parameters, lists), limits);
}

Result<Layout> assign_buckets_in_order(std::span<const ParameterInfo> parameters,
                                       std::span<const std::uint64_t> limits,
                                       std::span<const std::size_t> order) {
  if (limits.empty()) return failed(invalid("the list of bucket limits is empty"));
  for (const std::size_t index : order)
    if (index >= parameters.size())
      return failed(invalid("the order names parameter " + std::to_string(index) +
                            ", but there are " + std::to_string(parameters.size())));
  return with_limits(layout_from_buckets(parameters, fill_buckets(parameters, limits, order)),
                     limits);
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
      if ((info.sparse || first.sparse) && buckets[b].size() > 1)
        return failed(invalid(where + " holds parameter " + (first.sparse ? first : info).name +
                              " beside others: its gradients are sparse, and need a bucket of "
                              "their own"));
      if (info.device != first.device)
        return failed(invalid(where + " mixes devices: " + first.name + " is on " +
                              std::to_string(first.device) + ", " + info.name + " on " +
                              std::to_string(info.device)));
      placed[index] = true;
    }
    layout.buckets.push_back(place(parameters, buckets[b]));
    if (bytes_of(layout.buckets.back().elements, layout.buckets.back().dtype) == kTooLarge)
      return failed(invalid(where + ", which begins with parameter " +
                            parameters[buckets[b][0]].name +
                            ", has more bytes than any memory: check the sizes of its parameters"));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].requires_grad && !placed[i])
      return failed(invalid("parameter " + parameters[i].name + " is in no bucket"));
  LOCKSTEP_CHECK_EQ(layout.buckets.size(), buckets.size());
  layout.hash = hash_of(layout);
  return layout;
}

Status check_layout(const Layout& layout, std::span<const ParameterInfo> parameters) {
  std::vector<std::vector<std::size_t>> lists;
  for (const BucketLayout& bucket : layout.buckets) {
    lists.emplace_back();
    for (const BucketMember& member : bucket.members) lists.back().push_back(member.parameter);
  }
  const Result<Layout> fresh = layout_from_buckets(parameters, lists);
  if (!fresh)
    return invalid("the layout is not one of these parameters: " + fresh.error().failure().detail);
  LOCKSTEP_CHECK_EQ(fresh->buckets.size(), lists.size());
  for (std::size_t b = 0; b < lists.size(); ++b) {
    const BucketLayout& theirs = layout.buckets[b];
    const BucketLayout& ours = fresh->buckets[b];
    const std::string where =
        "the layout is not one of these parameters: bucket " + std::to_string(b) + " ";
    if (theirs.dtype != ours.dtype)
      return invalid(where + "is of " + name_of(theirs.dtype) + ", its parameters are of " +
                     name_of(ours.dtype));
    if (theirs.sparse != ours.sparse)
      return invalid(where + (theirs.sparse
                                  ? "is of sparse gradients, those of its parameters are not"
                                  : "is not of sparse gradients, its parameter's are"));
    if (theirs.device != ours.device)
      return invalid(where + "is on device " + std::to_string(theirs.device) +
                     ", its parameters are on device " + std::to_string(ours.device));
    LOCKSTEP_CHECK_EQ(theirs.members.size(), ours.members.size());
    for (std::size_t m = 0; m < ours.members.size(); ++m) {
      const std::string& name = parameters[ours.members[m].parameter].name;
      if (theirs.members[m].elements != ours.members[m].elements)
        return invalid(where + "has " + std::to_string(theirs.members[m].elements) +
                       " elements for parameter " + name + ", which has " +
                       std::to_string(ours.members[m].elements));
      if (theirs.members[m].offset != ours.members[m].offset)
        return invalid(where + "has parameter " + name + " at element " +
                       std::to_string(theirs.members[m].offset) + ", and not at " +
                       std::to_string(ours.members[m].offset));
    }
    if (theirs.elements != ours.elements)
      return invalid(where + "has " + std::to_string(theirs.elements) +
                     " elements, its parameters need " + std::to_string(ours.elements));
  }
  if (layout.hash != fresh->hash)
    return invalid("the hash of the layout is not that of its contents");
  return {};
}

namespace {

constexpr std::string_view kTitle = "lockstep layout 1";

std::string hex(std::uint64_t value) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[15 - i] = kDigits[value >> (4 * i) & 15];
  return text;
}

// Reads line by line; each line is a keyword and words after it.
class LayoutReader {
 public:
  explicit LayoutReader(std::string_view text) : text_(text) {}

  Result<Layout> read() {
    LOCKSTEP_CHECK_EQ(number_, 0);  // A reader reads one text.
    Layout layout;
    std::uint64_t hash = 0;
    bool ended = false;
    while (!text_.empty()) {
      next_line();
      std::string_view line = line_;
      const std::string_view keyword = next_word();
      bool good = !ended;
      if (number_ == 1) {
        good = line == kTitle;
        line_ = {};
      } else if (keyword == "alignment") {
        good = good && number() == kMemberAlignmentBytes;
      } else if (keyword == "limits") {
        while (good && !line_.empty()) layout.limits.push_back(number());
      } else if (keyword == "bucket") {
        good = good && read_bucket(layout.buckets.emplace_back());
      } else if (keyword == "member") {
        good = good && !layout.buckets.empty();
        if (good) read_member(layout.buckets.back().members.emplace_back());
      } else {
        good = good && keyword == "hash";
        hash = number(16);
        ended = true;
      }
      if (!good || failed_ || !line_.empty())
        return failed(invalid("line " + std::to_string(number_) + " of the layout is wrong: '" +
                              std::string(line) + "'"));
    }
    if (!ended) return failed(invalid("the layout ends before its hash"));
    layout.hash = hash_of(layout);
    if (layout.hash != hash)
      return failed(invalid("the layout was changed: its hash is " + hex(layout.hash) +
                            ", and it says " + hex(hash)));
    return layout;
  }

 private:
  void next_line() {
    const std::size_t end = std::min(text_.find('\n'), text_.size());
    line_ = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    ++number_;
  }
  std::string_view next_word() {
    const std::size_t end = std::min(line_.find(' '), line_.size());
    const std::string_view word = line_.substr(0, end);
    line_.remove_prefix(std::min(end + 1, line_.size()));
    return word;
  }
  template <class T = std::uint64_t>
  T number(int base = 10) {
    const std::string_view word = next_word();
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    failed_ = failed_ || word.empty() || error != std::errc() || end != word.data() + word.size();
    return value;
  }

  bool read_bucket(BucketLayout& bucket) {
    const std::string_view dtype = next_word();
    bool known = false;
    for (int i = 0; i <= static_cast<int>(DType::kComplex64) && !known; ++i) {
      bucket.dtype = static_cast<DType>(i);
      known = name_of(bucket.dtype) == dtype;
    }
    bucket.device = number<int>();
    bucket.elements = size();
    bucket.sparse = line_ == "sparse";
    if (bucket.sparse) next_word();
    return known;
  }
  void read_member(BucketMember& member) {
    member.parameter = number<std::size_t>();
    member.offset = size();
    member.elements = size();
  }
  std::int64_t size() {
    const auto value = number<std::int64_t>();
    failed_ = failed_ || value < 0 || value == kTooLarge;
    return value;
  }

  std::string_view text_;
  std::string_view line_;  // The part of the line that is not read yet.
  int number_ = 0;
  bool failed_ = false;
};

}  // namespace

std::string save(const Layout& layout) {
  std::string text(kTitle);
  text += "\nalignment " + std::to_string(kMemberAlignmentBytes) + "\nlimits";
  for (const std::uint64_t limit : layout.limits) text += " " + std::to_string(limit);
  for (const BucketLayout& bucket : layout.buckets) {
    text += std::string("\nbucket ") + name_of(bucket.dtype) + " " + std::to_string(bucket.device) +
            " " + std::to_string(bucket.elements) + (bucket.sparse ? " sparse" : "");
    for (const BucketMember& member : bucket.members)
      text += "\nmember " + std::to_string(member.parameter) + " " + std::to_string(member.offset) +
              " " + std::to_string(member.elements);
  }
  return text + "\nhash " + hex(layout.hash) + "\n";
}

Result<Layout> load_layout(std::string_view text) { return LayoutReader(text).read(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
