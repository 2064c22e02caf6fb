// LaunchPlan: one kernel launch over any number of pieces of work, from tensors to a kernel's
// Table.
//
// clear() begins a plan, append() adds a piece, and then argument() and blocks() are what a kernel
// is launched with. A table that is too large for a kernel's argument (far_bytes() is not 0) has to
// be written to memory of the GPU first. plan_*() make the plans of a Device's operations, with
// its preconditions; the host and the GPU have the same ones.
//
// Layouts are made simple first: dimensions of size 1 go, and neighbours that lie alike on both
// sides become one, so that what is dense in the same order on both sides, whatever its dimensions,
// is one run of elements, moved 16 bytes at a time where both addresses allow.
//
// Threads: a plan belongs to one. A plan that is used again allocates nothing when it was as large
// before. No operation of a plan may write an element twice or write what another piece reads.
#pragma once

#include <span>
#include <vector>

#include "reducer/device/cuda/kernel_table.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class LaunchPlan {
 public:
  void clear(const kernels::Operation& operation, double factor);

  // Two layouts of the same sizes. Pieces without elements are left out.
  void append(const std::byte* from, const Shape& from_shape, std::byte* to, const Shape& to_shape);
  // As many elements on both sides, both dense.
  void append_dense(const std::byte* from, std::byte* to, std::int64_t elements);
  // kFold: each piece begins in the first of `shards` shards, `stride` elements apart.
  void set_shards(std::uint32_t shards, std::int64_t stride);

  bool empty() const { return segments_.empty(); }
  const kernels::Operation& operation() const { return operation_; }
  std::uint32_t blocks() const { return blocks_; }
  std::size_t segment_count() const { return segments_.size(); }

  // 0 when the segments travel in the kernel's argument.
  std::size_t far_bytes() const;
  // Both parts of a far table, far_bytes() in all, to be copied to `place` of argument().
  void write_far(std::byte* to) const;
  // Valid until the plan changes. `place`: where the far table lies on the GPU, or null.
  const kernels::ManySegments& argument(const std::byte* place);

 private:
  void add(kernels::Segment segment);
  void write_segments(std::byte* to) const;
  std::size_t table_bytes() const;

  kernels::Operation operation_;
  std::vector<kernels::Segment> segments_;
  std::vector<kernels::Layout> layouts_;
  std::uint32_t blocks_ = 0;
  kernels::ManySegments argument_;
};

// What Device::copy, add, gather, scatter and convert do.
void plan_copy(LaunchPlan& plan, const Tensor& from, const Tensor& to);
void plan_add(LaunchPlan& plan, const Tensor& from, const Tensor& to);
void plan_gather(LaunchPlan& plan, std::span<const Transfer> transfers, double factor);
void plan_scatter(LaunchPlan& plan, std::span<const Transfer> transfers);
void plan_convert(LaunchPlan& plan, const Tensor& from, const Tensor& to, double factor);

// to[i] = ((x0[i] + x1[i]) + x2[i]) + ..., each x scaled by `factor` first and rounded (G2, G3).
// `from` holds the shards one behind the other: its elements are a multiple of to's. Both
// row-major.
void plan_fold(LaunchPlan& plan, const Tensor& from, const Tensor& to, double factor);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
