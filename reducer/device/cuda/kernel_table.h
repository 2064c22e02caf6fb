// The arguments of a kernel: an Operation, and a Table of segments of elements to run it over.
//
// A launch has kThreads threads in each block. Every block works on one segment, which it finds in
// the table by its block number, so one launch takes any number of segments of any sizes. The
// segments are passed in the kernel's argument, behind the Table (`near`). For about a thousand
// segments and more, the argument holds their address (`far_*`) in the memory of the GPU. A launch
// copies the whole argument, used or not, so the argument has two sizes. Operations over a model's
// gradients (takes_many) have a kernel for each size, the others only for the small one.
// The structures are plain data, the same on both sides; launch_plan.h makes them, and
// kernel_bodies.h reads them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reducer/base/dtype.h"

namespace lockstep::kernels {

constexpr std::uint32_t kThreads = 256;
// The number of 16-byte accesses in flight in a thread.
constexpr std::uint32_t kPacksPerThread = 4;
constexpr std::uint32_t kPacksPerBlock = kThreads * kPacksPerThread;
// For elements that are accessed one by one.
constexpr std::uint32_t kElementsPerBlock = 4 * kPacksPerBlock;
constexpr int kPackBytes = 16;
constexpr int kLayoutDims = 7;
constexpr std::size_t kFewBytes = 3968;    // The bytes of `near` for 124 segments.
constexpr std::size_t kManyBytes = 32704;  // The bytes of `near` for 1,022 segments.

enum class Kind : std::uint8_t {
  kMove,     // to = from, bit by bit.
  kScale,    // to = round(from * factor).
  kAdd,      // to = round(to + from).
  kConvert,  // to = round(from * factor), in another dtype.
  kFold,     // to = round(...round(round(x0 * k) + round(x1 * k))...), over the shards of `from`.
};

constexpr bool takes_many(Kind kind) { return kind == Kind::kMove || kind == Kind::kScale; }

struct Operation {
  Kind kind = Kind::kMove;
  DType from = DType::kFloat32;
  DType to = DType::kFloat32;
};

enum class Form : std::uint8_t {
  // Both sides are dense in one order and aligned alike: 16 bytes at a time, after `head`.
  kPacked,
  kDense,    // Both sides are dense in one order.
  kStrided,  // The strides are in `layout`.
};

struct Segment {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint64_t elements = 0;
  std::uint32_t first_block = 0;  // Its blocks reach to the next segment's first block.
  std::uint16_t layout = 0;       // kStrided: the index of its layout.
  std::uint8_t head = 0;          // kPacked: the number of elements before the first aligned one.
  Form form = Form::kDense;
};
static_assert(sizeof(Segment) == 32);

// Sizes, and strides in elements; the innermost dimension of `to` comes first.
struct Layout {
  std::int64_t dims = 0;
  std::int64_t sizes[kLayoutDims] = {};
  std::int64_t from[kLayoutDims] = {};
  std::int64_t to[kLayoutDims] = {};
};

struct Table {
  std::uint32_t segments = 0;
  std::uint32_t shards = 1;       // Only for kFold.
  std::int64_t shard_stride = 0;  // kFold: the elements from one shard to the next.
  double factor = 1.0;
  // Null if the segments are in `near`, with the layouts behind them.
  const Segment* far_segments = nullptr;
  const Layout* far_layouts = nullptr;
  std::uint32_t near_bytes = 0;  // The bytes of `near` in use.
};

// Both sizes begin alike.
template <std::size_t kBytes>
struct Argument {
  Table table;
  alignas(16) std::byte near[kBytes] = {};
};
using FewSegments = Argument<kFewBytes>;
using ManySegments = Argument<kManyBytes>;
static_assert(offsetof(FewSegments, near) == offsetof(ManySegments, near));
static_assert(sizeof(FewSegments) <= 4096);  // Every toolkit and GPU accepts this size.
// Toolkit and driver 12.1 and newer accept this size.
static_assert(sizeof(ManySegments) <= 32764);

}  // namespace lockstep::kernels
