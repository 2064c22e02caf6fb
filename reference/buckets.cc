#include "reference/buckets.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <utility>

#include "reference/arithmetic.h"

namespace lockstep::reference {
namespace {

// The buckets of one dtype and device.
struct Group {
  std::optional<std::size_t> open;  // the one being filled, as an index into the list
  std::uint64_t bytes = 0;          // in that bucket, without padding
  std::size_t closed = 0;           // how many there are before it
};

// B3: a member starts where the one before it ends, rounded up to the alignment.
void append(ExpectedBucket& bucket, std::uint32_t index, std::uint64_t elements,
            std::uint64_t alignment) {
  const std::uint64_t offset =
      alignment == 0 ? bucket.count : (bucket.count + alignment - 1) / alignment * alignment;
  bucket.parameters.push_back(index);
  bucket.offsets.push_back(offset);
  bucket.count = offset + elements;
}

}  // namespace

std::vector<ExpectedBucket> assign_buckets(const Program& program, const Contract& contract,
                                           const std::vector<std::uint32_t>* order) {
  const bool is_ordered = order != nullptr || program.options.pinned != 0;
  const std::vector<std::uint64_t> limits = bucket_limits(program.options);
  std::vector<ExpectedBucket> buckets;
  std::map<std::pair<DType, std::uint32_t>, Group> groups;
  for (const std::uint32_t index : order ? *order : construction_order(program)) {
    assert(index < program.parameters.size());
    const Parameter& parameter = program.parameters[index];
    assert(is_reduced(parameter));
    assert(parameter.shared_with == 0);
    Group& group = groups[{parameter.dtype, parameter.device}];
    if (parameter.sparse || !group.open) {
      if (!parameter.sparse) group.open = buckets.size();
      ExpectedBucket& opened = buckets.emplace_back();
      opened.dtype = parameter.dtype;
      opened.device = parameter.device;
      opened.sparse = parameter.sparse;
    }
    const std::uint64_t elements = element_count(parameter);
    const std::uint32_t element_bytes = size_of(parameter.dtype);
    assert(contract.alignment_bytes % element_bytes == 0);
    ExpectedBucket& bucket = parameter.sparse ? buckets.back() : buckets[*group.open];
    append(bucket, index, elements, contract.alignment_bytes / element_bytes);
    if (parameter.sparse) continue;
    group.bytes += elements * element_bytes;
    if (group.bytes < limits[std::min(group.closed, limits.size() - 1)]) continue;
    group = {std::nullopt, 0, group.closed + 1};
  }
  // They are listed in the order of their first members. What is ready first is launched first;
  // until that is known, the reverse is a guess at it (B2).
  if (!is_ordered) std::ranges::reverse(buckets);
  return buckets;
}

}  // namespace lockstep::reference
