#include "properties/subject/reducer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// The hash of a saved layout (B3): FNV-1a.
class LayoutHash {
 public:
  void add(std::uint64_t number) {
    for (int byte = 0; byte < 8; ++byte, number >>= 8U) value_ = (value_ ^ (number & 255)) * kPrime;
  }
  std::uint64_t value() const { return value_; }

 private:
  static constexpr std::uint64_t kPrime = 1099511628211U;
  std::uint64_t value_ = 14695981039346656037U;
};

std::uint64_t number_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0;
    case DType::kFloat32:
      return 1;
    case DType::kFloat16:
      return 2;
    case DType::kBFloat16:
      return 3;
    case DType::kComplex64:
      return 6;
    default:
      return ~std::uint64_t{0};  // It has no gradients.
  }
}

std::uint64_t hash_of(const Layout& layout) {
  LayoutHash hash;
  hash.add(layout.buckets.size());
  for (const BucketLayout& bucket : layout.buckets) {
    hash.add(number_of(bucket.dtype));
    hash.add(static_cast<std::uint64_t>(bucket.device));
    if (bucket.sparse) hash.add(~std::uint64_t{0});
    hash.add(static_cast<std::uint64_t>(bucket.elements));
    hash.add(bucket.members.size());
    for (const BucketMember& member : bucket.members) {
      hash.add(member.parameter);
      hash.add(static_cast<std::uint64_t>(member.offset));
      hash.add(static_cast<std::uint64_t>(member.elements));
    }
  }
  return hash.value();
}

std::uint64_t bytes_of(const BucketLayout& bucket) {
  return static_cast<std::uint64_t>(bucket.elements) * size_of(bucket.dtype);
}

std::uint64_t rounded_up(std::uint64_t bytes) {
  return (bytes + kMemberAlignmentBytes - 1) / kMemberAlignmentBytes * kMemberAlignmentBytes;
}

// The hooks that compress keep what they send of a bucket of wider elements.
std::uint64_t kept_by_hook(const BucketLayout& bucket, const reference::Replicated& options) {
  const bool compresses =
      options.hook == reference::Hook::kFloat16 || options.hook == reference::Hook::kBFloat16;
  return compresses ? static_cast<std::uint64_t>(bucket.elements) * 2 : 0;
}

// Whether the gradient lies in the storage of the bucket, as far as sizes tell. A view has no gaps
// (B7): a gradient of the user's own may have gaps, and so as many bytes as the bucket.
bool is_bucket_view(const Tensor& gradient, const BucketLayout& bucket,
                    const BucketMember& member) {
  const auto at = static_cast<std::uint64_t>(gradient.data() - gradient.storage()->data());
  // The storage of a bucket without other elements has the size of a gradient's own.
  return gradient.shape().is_dense() && bucket.elements > member.elements &&
         gradient.storage()->bytes() == bytes_of(bucket) &&
         at == static_cast<std::uint64_t>(member.offset) * size_of(bucket.dtype);
}

}  // namespace

std::string flaw_of_layout(const LaidOut& laid_out, const std::vector<std::uint64_t>& limits,
                           bool has_any_limits) {
  const Layout& layout = laid_out.layout;
  if (!has_any_limits && layout.limits != limits)
    return fmt::format("the layout has the limits {}, and was made with {}",
                       fmt::join(layout.limits, " "), fmt::join(limits, " "));
  for (std::size_t b = 0; b < layout.buckets.size(); ++b)
    for (const BucketMember& member : layout.buckets[b].members)
      if (laid_out.parameters[member.parameter].device != layout.buckets[b].device)
        return fmt::format("bucket {} of the layout is of device {}, and its member {} is not", b,
                           layout.buckets[b].device, laid_out.parameters[member.parameter].name);
  if (layout.hash != hash_of(layout))
    return fmt::format("the layout has the hash {:x}, and that of its contents is {:x}",
                       layout.hash, hash_of(layout));
  const std::string text = save(layout);
  const Result<Layout> loaded = load_layout(text);
  if (!loaded) return "the layout cannot be loaded as it was saved: " + loaded.error().to_string();
  return save(*loaded) == text ? "" : "the layout is another one when it was saved and loaded";
}

std::uint64_t most_memory(const std::vector<LaidOut>& reducers,
                          const std::vector<Ref<Parameter>>& parameters,
                          const std::vector<Ref<Buffer>>& buffers,
                          const reference::Program& program) {
  std::uint64_t most = 0;
  std::set<const Storage*> in_buckets;
  for (const LaidOut& reducer : reducers) {
    for (const BucketLayout& bucket : reducer.layout.buckets) {
      if (bucket.sparse) continue;
      most += bytes_of(bucket) + kept_by_hook(bucket, program.options);
      for (const BucketMember& member : bucket.members) {
        const std::string& name = reducer.parameters[member.parameter].name;  // "p12"
        const Tensor& gradient = parameters[std::stoul(name.substr(1))]->grad();
        if (program.options.views && gradient.defined() && is_bucket_view(gradient, bucket, member))
          in_buckets.insert(gradient.storage().get());
      }
    }
  }
  std::set<const Storage*> of_gradients;
  for (const Ref<Parameter>& each : parameters)
    if (each->grad().defined() && !in_buckets.contains(each->grad().storage().get()) &&
        of_gradients.insert(each->grad().storage().get()).second)
      most += each->grad().storage()->bytes();
  if (program.options.keep_buffers) return most;
  for (const Ref<Buffer>& each : buffers)
    most += rounded_up(static_cast<std::uint64_t>(each->value().elements()) *
                       size_of(each->value().dtype()));
  return most;
}

std::string SparsePadding::look_at(const Collective& collective) {
  const std::size_t bytes = collective.count * size_of(collective.dtype);
  if (collective.dtype == DType::kByte) {
    rows_.resize(bytes / sizeof(std::int64_t));
    std::memcpy(rows_.data(), collective.data, bytes);
    return {};
  }
  const std::string bucket = "bucket " + std::to_string(collective.bucket);
  if (rows_.empty()) return bucket + " is sent with values before the numbers of its rows";
  const auto padding = static_cast<std::size_t>(
      std::count_if(rows_.begin(), rows_.end(), [](std::int64_t number) { return number < 0; }));
  const std::byte* const end = collective.data + bytes;
  const bool is_zero = std::all_of(end - bytes / rows_.size() * padding, end,
                                   [](std::byte byte) { return byte == std::byte{0}; });
  return is_zero ? "" : bucket + " is sent with values behind its rows that are not zero";
}

std::string flaw_of_padding(const LaidOut& reducer, const Collective& collective) {
  const Layout& layout = reducer.layout;
  const BucketLayout& bucket = layout.buckets[static_cast<std::size_t>(collective.bucket)];
  const auto parts = static_cast<std::size_t>(parts_of(bucket.dtype));
  const auto elements = static_cast<std::size_t>(bucket.elements);
  if (bucket.sparse || collective.count != elements * parts) return {};
  const std::size_t unit = size_of(collective.dtype) * parts;
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  std::size_t end = 0;
  for (const BucketMember& member : bucket.members) {
    const std::size_t begin = static_cast<std::size_t>(member.offset) * unit;
    if (end < begin && !std::all_of(collective.data + end, collective.data + begin, is_zero))
      return "bucket " + std::to_string(collective.bucket) + " is sent with a padding before " +
             reducer.parameters[member.parameter].name + " that is not zero";
    end = begin + static_cast<std::size_t>(member.elements) * unit;
  }
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
