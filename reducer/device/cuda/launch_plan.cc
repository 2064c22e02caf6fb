#include "reducer/device/cuda/launch_plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using kernels::Form;
using kernels::Kind;
using kernels::Layout;
using kernels::Operation;
using kernels::Segment;

static_assert(kernels::kLayoutDims == kMaxDims);

// Returns the dimensions that matter, the innermost of `to` first.
Layout simplified(const Shape& from, const Shape& to) {
  LOCKSTEP_CHECK_EQ(from.dims, to.dims);
  Layout layout;
  std::array<std::size_t, kMaxDims> order{};
  std::size_t count = 0;
  for (std::size_t d = static_cast<std::size_t>(to.dims); d-- > 0;)
    if (to.sizes[d] != 1) order[count++] = d;
  // This is an insertion sort: there are at most seven dimensions, and it is stable without extra
  // memory.
  for (std::size_t i = 1; i < count; ++i)
    for (std::size_t j = i; j > 0 && to.strides[order[j]] < to.strides[order[j - 1]]; --j)
      std::swap(order[j], order[j - 1]);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t d = order[i];
    const auto last = static_cast<std::size_t>(layout.dims - 1);
    if (layout.dims > 0 && to.strides[d] == layout.to[last] * layout.sizes[last] &&
        from.strides[d] == layout.from[last] * layout.sizes[last]) {
      layout.sizes[last] *= to.sizes[d];
      continue;
    }
    const auto next = static_cast<std::size_t>(layout.dims++);
    layout.sizes[next] = to.sizes[d];
    layout.from[next] = from.strides[d];
    layout.to[next] = to.strides[d];
  }
  return layout;
}

bool is_one_run(const Layout& layout) {
  return layout.dims == 0 || (layout.dims == 1 && layout.from[0] == 1 && layout.to[0] == 1);
}

int lanes_of(const Operation& operation) {
  const std::size_t widest = std::max(size_of(operation.from), size_of(operation.to));
  return kernels::kPackBytes / static_cast<int>(widest);
}

// Returns the number of elements before both sides are aligned to a pack; kLanes or more if they
// never are.
int head_of(const Operation& operation, const std::byte* from, const std::byte* to) {
  const int lanes = lanes_of(operation);
  const auto width = static_cast<std::uintptr_t>(lanes);
  const auto is_aligned = [&](const std::byte* data, std::size_t size, int head) {
    const auto at = reinterpret_cast<std::uintptr_t>(data) + static_cast<std::size_t>(head) * size;
    return at % (width * size) == 0;
  };
  int head = 0;
  while (head < lanes && !(is_aligned(from, size_of(operation.from), head) &&
                           is_aligned(to, size_of(operation.to), head)))
    ++head;
  return head;
}

std::uint64_t blocks_for(std::uint64_t items, std::uint32_t of_block) {
  return std::max<std::uint64_t>(1, (items + of_block - 1) / of_block);
}

}  // namespace

void LaunchPlan::clear(const Operation& operation, double factor) {
  operation_ = operation;
  segments_.clear();
  layouts_.clear();
  blocks_ = 0;
  argument_.table.factor = factor;
  argument_.table.shards = 1;
  argument_.table.shard_stride = 0;
}

void LaunchPlan::set_shards(std::uint32_t shards, std::int64_t stride) {
  LOCKSTEP_CHECK(operation_.kind == Kind::kFold);
  LOCKSTEP_CHECK(segments_.empty());
  argument_.table.shards = shards;
  argument_.table.shard_stride = stride;
}

void LaunchPlan::append_dense(const std::byte* from, std::byte* to, std::int64_t elements) {
  LOCKSTEP_CHECK_GE(elements, 0);
  if (elements == 0) return;
  const int lanes = lanes_of(operation_);
  const int head = head_of(operation_, from, to);
  Segment segment;
  segment.from = from;
  segment.to = to;
  segment.elements = static_cast<std::uint64_t>(elements);
  // A shard that begins at another offset in a pack than the first one cannot be read in packs.
  if (head < lanes && head + lanes <= elements && argument_.table.shard_stride % lanes == 0) {
    segment.form = Form::kPacked;
    segment.head = static_cast<std::uint8_t>(head);
  }
  add(segment);
}

void LaunchPlan::append(const std::byte* from, const Shape& from_shape, std::byte* to,
                        const Shape& to_shape) {
  LOCKSTEP_CHECK(from_shape.same_sizes(to_shape));
  const std::int64_t elements = to_shape.elements();
  if (elements == 0) return;
  const Layout layout = simplified(from_shape, to_shape);
  if (is_one_run(layout)) return append_dense(from, to, elements);
  LOCKSTEP_CHECK(operation_.kind != Kind::kConvert);
  LOCKSTEP_CHECK(operation_.kind != Kind::kFold);
  // A layout that repeats, as in a model's layers of one shape, is stored once.
  const auto known = std::find_if(layouts_.rbegin(), layouts_.rend(), [&](const Layout& other) {
    return std::memcmp(&layout, &other, sizeof(layout)) == 0;
  });
  Segment segment;
  segment.from = from;
  segment.to = to;
  segment.elements = static_cast<std::uint64_t>(elements);
  segment.form = Form::kStrided;
  segment.layout = static_cast<std::uint16_t>(known == layouts_.rend()
                                                  ? static_cast<std::ptrdiff_t>(layouts_.size())
                                                  : layouts_.rend() - known - 1);
  if (known == layouts_.rend()) layouts_.push_back(layout);
  LOCKSTEP_CHECK_LT(layouts_.size(), std::size_t{1} << 16);
  add(segment);
}

void LaunchPlan::add(Segment segment) {
  const bool in_packs = segment.form == Form::kPacked;
  const auto lanes = static_cast<std::uint64_t>(lanes_of(operation_));
  const std::uint64_t blocks =
      in_packs ? blocks_for((segment.elements - segment.head) / lanes, kernels::kPacksPerBlock)
               : blocks_for(segment.elements, kernels::kElementsPerBlock);
  // A GPU can number this many blocks; at two bytes an element they cover 16 TB.
  LOCKSTEP_CHECK_LE(blocks, std::uint64_t{std::numeric_limits<std::int32_t>::max()} - blocks_);
  segment.first_block = blocks_;
  blocks_ += static_cast<std::uint32_t>(blocks);
  segments_.push_back(segment);
}

std::size_t LaunchPlan::table_bytes() const {
  return segments_.size() * sizeof(Segment) + layouts_.size() * sizeof(Layout);
}

std::size_t LaunchPlan::far_bytes() const {
  const std::size_t most =
      kernels::takes_many(operation_.kind) ? kernels::kManyBytes : kernels::kFewBytes;
  return table_bytes() <= most ? 0 : table_bytes();
}

void LaunchPlan::write_far(std::byte* to) const {
  LOCKSTEP_CHECK(far_bytes() != 0);
  write_segments(to);
}

void LaunchPlan::write_segments(std::byte* to) const {
  const std::size_t bytes = segments_.size() * sizeof(Segment);
  if (bytes != 0) std::memcpy(to, segments_.data(), bytes);
  if (!layouts_.empty()) std::memcpy(to + bytes, layouts_.data(), layouts_.size() * sizeof(Layout));
}

const kernels::ManySegments& LaunchPlan::argument(const std::byte* place) {
  LOCKSTEP_CHECK((far_bytes() != 0) == (place != nullptr));
  kernels::Table& table = argument_.table;
  table.segments = static_cast<std::uint32_t>(segments_.size());
  table.far_segments = reinterpret_cast<const Segment*>(place);
  table.far_layouts = nullptr;
  table.near_bytes = 0;
  if (place == nullptr) {
    write_segments(argument_.near);
    table.near_bytes = static_cast<std::uint32_t>(table_bytes());
  } else {
    table.far_layouts = reinterpret_cast<const Layout*>(place + segments_.size() * sizeof(Segment));
  }
  return argument_;
}

void plan_copy(LaunchPlan& plan, const Tensor& from, const Tensor& to) {
  LOCKSTEP_CHECK(from.dtype() == to.dtype());
  plan.clear({Kind::kMove, from.dtype(), to.dtype()}, 1.0);
  plan.append(from.data(), from.shape(), to.data(), to.shape());
}

void plan_add(LaunchPlan& plan, const Tensor& from, const Tensor& to) {
  LOCKSTEP_CHECK(from.dtype() == to.dtype());
  if (from.dtype() == DType::kComplex64) return plan_add(plan, from.as_real(), to.as_real());
  plan.clear({Kind::kAdd, from.dtype(), to.dtype()}, 1.0);
  plan.append(from.data(), from.shape(), to.data(), to.shape());
}

void plan_gather(LaunchPlan& plan, std::span<const Transfer> transfers, double factor) {
  if (transfers.empty()) return plan.clear({}, factor);
  const DType dtype = transfers[0].gradient->dtype();
  const bool in_parts = factor != 1.0 && parts_of(dtype) != 1;
  const DType part = in_parts ? real_of(dtype) : dtype;
  plan.clear({factor == 1.0 ? Kind::kMove : Kind::kScale, part, part}, factor);
  for (const Transfer& transfer : transfers) {
    const Tensor& gradient = *transfer.gradient;
    LOCKSTEP_CHECK(gradient.dtype() == dtype);
    if (in_parts)
      plan.append(gradient.data(), gradient.shape().of_pairs(), transfer.slot,
                  transfer.order->of_pairs());
    else
      plan.append(gradient.data(), gradient.shape(), transfer.slot, *transfer.order);
  }
}

void plan_scatter(LaunchPlan& plan, std::span<const Transfer> transfers) {
  if (transfers.empty()) return plan.clear({}, 1.0);
  const DType dtype = transfers[0].gradient->dtype();
  plan.clear({Kind::kMove, dtype, dtype}, 1.0);
  for (const Transfer& transfer : transfers) {
    const Tensor& gradient = *transfer.gradient;
    LOCKSTEP_CHECK(gradient.dtype() == dtype);
    plan.append(transfer.slot, *transfer.order, gradient.data(), gradient.shape());
  }
}

void plan_convert(LaunchPlan& plan, const Tensor& from, const Tensor& to, double factor) {
  LOCKSTEP_CHECK_EQ(parts_of(from.dtype()), parts_of(to.dtype()));
  LOCKSTEP_CHECK(from.shape().same_strides(to.shape()));
  LOCKSTEP_CHECK(to.shape().is_dense());
  plan.clear({Kind::kConvert, real_of(from.dtype()), real_of(to.dtype())}, factor);
  plan.append_dense(from.data(), to.data(), to.elements() * parts_of(to.dtype()));
}

void plan_fold(LaunchPlan& plan, const Tensor& from, const Tensor& to, double factor) {
  LOCKSTEP_CHECK(from.dtype() == to.dtype());
  LOCKSTEP_CHECK(from.shape().is_dense());
  LOCKSTEP_CHECK(to.shape().is_dense());
  const DType part = real_of(to.dtype());
  plan.clear({Kind::kFold, part, part}, factor);
  if (to.elements() == 0) return;
  const std::int64_t shards = from.elements() / to.elements();
  LOCKSTEP_CHECK_GE(shards, std::int64_t{1});
  LOCKSTEP_CHECK_EQ(shards * to.elements(), from.elements());
  const std::int64_t elements = to.elements() * parts_of(to.dtype());
  plan.set_shards(static_cast<std::uint32_t>(shards), elements);
  plan.append_dense(from.data(), to.data(), elements);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
