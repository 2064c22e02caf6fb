// LaunchPlan turns any number of tensor operations into the Table of one kernel launch.
//
// clear() begins a plan and append() adds a piece of work; argument() and blocks() are then what a
// kernel is launched with. A table that is too large for a kernel's argument (far_bytes() is not 0)
// has to be written to memory of the GPU first. plan_*() make the plans of a Device's operations
// and check their preconditions, which are the same on the host and on the GPU.
//
// The plan simplifies layouts first: it drops dimensions of size 1, and merges adjacent dimensions
// that have the same layout on both sides. So two sides that are dense in the same order, whatever
// their dimensions, become one run of elements, which moves 16 bytes at a time where both addresses
// allow.
//
// Threads: one thread uses a plan. A plan that is used again allocates nothing if it was as large
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

  // Adds two layouts of the same sizes. Pieces without elements are left out.
  void append(const std::byte* from, const Shape& from_shape, std::byte* to, const Shape& to_shape);
  // Adds equally many elements on both sides; both are dense.
  void append_dense(const std::byte* from, std::byte* to, std::int64_t elements);
  // For kFold: each piece begins in the first of `shards` shards, which are `stride` elements
  // apart.
  void set_shards(std::uint32_t shards, std::int64_t stride);

  bool empty() const { return segments_.empty(); }
  const kernels::Operation& operation() const { return operation_; }
  std::uint32_t blocks() const { return blocks_; }
  std::size_t segment_count() const { return segments_.size(); }

  // 0 if the segments fit into the kernel's argument.
  std::size_t far_bytes() const;
  // Writes both parts of a far table, far_bytes() in all. The caller copies them to the `place` of
  // argument().
  void write_far(std::byte* to) const;
  // Returns the kernel's argument, which is valid until the plan changes. `place` is the address of
  // the far table on the GPU, or null.
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

// The plans of Device::copy, add, pack_bucket, unpack_bucket and convert.
void plan_copy(LaunchPlan& plan, const Tensor& from, const Tensor& to);
void plan_add(LaunchPlan& plan, const Tensor& from, const Tensor& to);
void plan_gather(LaunchPlan& plan, std::span<const Transfer> transfers, double factor);
void plan_scatter(LaunchPlan& plan, std::span<const Transfer> transfers);
void plan_convert(LaunchPlan& plan, const Tensor& from, const Tensor& to, double factor);

// Computes to[i] = ((x0[i] + x1[i]) + x2[i]) + ..., where each x is first scaled by `factor` and
// rounded (G2, G3). `from` holds the shards one behind the other: its element count is a multiple
// of that of `to`. Both are row-major.
void plan_fold(LaunchPlan& plan, const Tensor& from, const Tensor& to, double factor);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
