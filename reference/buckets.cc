#include "reference/buckets.h"

#include <algorithm>
#include <cassert>

#include "reference/arithmetic.h"

namespace lockstep::reference {
namespace {

// Members of one (dtype, device) group in the order of parameters.
struct Group {
  DType dtype = DType::kFloat32;
  std::uint32_t device = 0;
  std::size_t open = 0;  // the bucket being filled, as an index into the list
  bool is_open = false;
  std::uint64_t bytes = 0;  // in the open bucket, without padding
  std::size_t closed = 0;   // buckets before it
};

Group& group_of(std::vector<Group>& groups, const Parameter& parameter) {
  for (Group& group : groups) {
    if (group.dtype == parameter.dtype && group.device == parameter.device) return group;
  }
  Group group;
  group.dtype = parameter.dtype;
  group.device = parameter.device;
  return groups.emplace_back(group);
}

// Bucket number `at`, empty, for this parameter.
ExpectedBucket& open_bucket(std::vector<ExpectedBucket>& buckets, std::size_t at,
                            const Parameter& parameter) {
  if (buckets.size() <= at) buckets.resize(at + 1);
  ExpectedBucket& opened = buckets[at];
  opened.dtype = parameter.dtype;
  opened.device = parameter.device;
  opened.sparse = parameter.sparse;
  opened.count = 0;
  opened.parameters.clear();
  opened.offsets.clear();
  return opened;
}

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

void assign_buckets(const Program& program, const Contract& contract,
                    const std::vector<std::uint32_t>* order, std::vector<ExpectedBucket>& buckets) {
  std::vector<std::uint32_t> pinned;
  if (program.options.pinned != 0 && order == nullptr) {
    pinned = pinned_order(program);
    order = &pinned;
  }
  const bool is_limited =
      !contract.starts_without_limits || order != nullptr || program.options.mode == Mode::kDynamic;
  const std::vector<std::uint64_t> limits = bucket_limits(program.options);
  std::size_t used = 0;
  std::vector<Group> groups;
  const std::size_t walked = order ? order->size() : program.parameters.size();
  for (std::uint32_t step = 0; step < walked; ++step) {
    const std::uint32_t index = order ? (*order)[step] : step;
    const Parameter& parameter = program.parameters[index];
    if (!is_reduced(parameter) || !is_original(parameter)) continue;
    if (parameter.sparse) {
      append(open_bucket(buckets, used++, parameter), index, element_count(parameter), 1);
      continue;
    }
    Group& group = group_of(groups, parameter);
    if (!group.is_open) {
      group.is_open = true;
      group.open = used++;
      group.bytes = 0;
      open_bucket(buckets, group.open, parameter);
    }
    const std::uint64_t elements = element_count(parameter);
    const std::uint32_t element_bytes = size_of(parameter.dtype);
    assert(contract.alignment_bytes % element_bytes == 0);
    append(buckets[group.open], index, elements, contract.alignment_bytes / element_bytes);
    group.bytes += elements * element_bytes;
    if (is_limited && group.bytes >= limits[std::min(group.closed, limits.size() - 1)]) {
      group.is_open = false;
      ++group.closed;
    }
  }
  buckets.resize(used);
  // They are listed in the order of their first members. What is ready first is launched first;
  // until that is known, the reverse is a guess at it (B2).
  if (!order) std::reverse(buckets.begin(), buckets.end());
}

}  // namespace lockstep::reference
