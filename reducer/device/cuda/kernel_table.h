// What a kernel is told: an Operation, and a Table of segments of elements to run it over.
//
// A launch has kThreads threads a block. Every block works on one segment, which it finds in the
// table by its number: a launch takes as many segments as there are, of any sizes. They travel in
// the kernel's argument, behind the Table (`near`); of a thousand and more it has the address
// (`far_*`), in memory of the GPU. A launch copies all of an argument, used or not: so there are
// two sizes of it. Operations over a model's gradients (takes_many) have a kernel for each, the
// others for the small one. Plain data, the same on both sides; made by launch_plan.h, read by
// kernel_bodies.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reducer/base/dtype.h"

namespace lockstep::kernels {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kPacksPerThread = 4;  // 16-byte accesses in flight in a thread
constexpr std::uint32_t kPacksPerBlock = kThreads * kPacksPerThread;
constexpr std::uint32_t kElementsPerBlock = 4 * kPacksPerBlock;  // one by one
constexpr int kPackBytes = 16;
constexpr int kLayoutDims = 7;
constexpr std::size_t kFewBytes = 3968;    // of `near`: 124 segments
constexpr std::size_t kManyBytes = 32704;  // 1,022 segments

enum class Kind : std::uint8_t {
  kMove,     // to = from, bit by bit
  kScale,    // to = round(from * factor)
  kAdd,      // to = round(to + from)
  kConvert,  // to = round(from * factor), in another dtype
  kFold,     // to = round(...round(round(x0 * k) + round(x1 * k))...), over the shards of `from`
};

constexpr bool takes_many(Kind kind) { return kind == Kind::kMove || kind == Kind::kScale; }

struct Operation {
  Kind kind = Kind::kMove;
  DType from = DType::kFloat32;
  DType to = DType::kFloat32;
};

enum class Form : std::uint8_t {
  kPacked,   // both sides dense in one order, and aligned alike: 16 bytes at a time, after `head`
  kDense,    // both sides dense in one order
  kStrided,  // by `layout`
};

struct Segment {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint64_t elements = 0;
  std::uint32_t first_block = 0;  // its blocks reach to the next segment's first
  std::uint16_t layout = 0;       // kStrided: which
  std::uint8_t head = 0;          // kPacked: elements before the first aligned one
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
  std::uint32_t shards = 1;       // kFold
  std::int64_t shard_stride = 0;  // kFold: elements from one shard to the next
  double factor = 1.0;
  const Segment* far_segments = nullptr;  // null: they lie in `near`, the layouts behind them
  const Layout* far_layouts = nullptr;
  std::uint32_t near_bytes = 0;  // of `near` in use
};

// One begins as the other does.
template <std::size_t kBytes>
struct Argument {
  Table table;
  alignas(16) std::byte near[kBytes] = {};
};
using FewSegments = Argument<kFewBytes>;
using ManySegments = Argument<kManyBytes>;
static_assert(offsetof(FewSegments, near) == offsetof(ManySegments, near));
static_assert(sizeof(FewSegments) <= 4096);    // what every toolkit and GPU takes
static_assert(sizeof(ManySegments) <= 32764);  // from toolkit and driver 12.1 on

}  // namespace lockstep::kernels
