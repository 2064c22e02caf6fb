// The kernels' bodies: what one thread of one block does, as functions of the table and the two
// numbers. The same code runs on a GPU (kernels.cu) and on the host, in a loop over blocks and
// threads (test_emulation.h), so indices, alignment and rounding are tested where there is no GPU.
//
// Arithmetic (contract G2, G3, G9): every product and every sum is rounded once, by itself. On a
// GPU the operations are intrinsics that the compiler never contracts; on the host the build passes
// -ffp-contract=off (device/formats.h).
#pragma once

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include <cstring>
#include <type_traits>

#include "reducer/base/check.h"
#include "reducer/device/cuda/kernel_table.h"
#include "reducer/device/formats.h"

#ifdef __CUDA_ARCH__
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#define LOCKSTEP_UNROLL
#endif

namespace lockstep::kernels {

// N adjacent elements, which are read and written at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <class T, int N>
LOCKSTEP_HD Pack<T, N> load_pack(const T* from) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(from));
  return *reinterpret_cast<const Pack<T, N>*>(from);
#else
  LOCKSTEP_CHECK_EQ(reinterpret_cast<std::uintptr_t>(from) % alignof(Pack<T, N>), 0u);
  Pack<T, N> pack;
  std::memcpy(&pack, from, sizeof(pack));
  return pack;
#endif
}

template <class T, int N>
LOCKSTEP_HD void store_pack(T* to, const Pack<T, N>& pack) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(to));
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
#else
  LOCKSTEP_CHECK_EQ(reinterpret_cast<std::uintptr_t>(to) % alignof(Pack<T, N>), 0u);
  std::memcpy(to, &pack, sizeof(pack));
#endif
}

// The operations. Each has value<N>(), which reads memory and computes the new values of N adjacent
// elements of `to`, but does not write them. Operations that sum shards apply value<N>() to the
// first shard, and fold<N>() to each of the others. kTakesMany says that the operation has a kernel
// for ManySegments, too (takes_many).
template <class Bits>
struct Move {
  using From = Bits;
  using To = Bits;
  static constexpr bool kTakesMany = true;
  static constexpr bool kCanStride = true;
  static constexpr bool kFolds = false;
  template <int N>
  LOCKSTEP_HD static Pack<To, N> value(const Table&, const From* from, const To*) {
    return load_pack<From, N>(from);
  }
};

// Computes to = round(from * factor): kScale where both formats are the same, kConvert where they
// differ. A conversion is between buffers of one layout.
template <class FromFormat, class ToFormat>
struct Convert {
  using From = typename FromFormat::Memory;
  using To = typename ToFormat::Memory;
  static constexpr bool kTakesMany = false;
  static constexpr bool kCanStride = false;
  static constexpr bool kFolds = false;
  template <int N>
  LOCKSTEP_HD static Pack<To, N> value(const Table& table, const From* from, const To*) {
    const auto factor = static_cast<typename FromFormat::Compute>(table.factor);
    const Pack<From, N> in = load_pack<From, N>(from);
    Pack<To, N> out;
    LOCKSTEP_UNROLL
    for (int i = 0; i < N; ++i)
      out.at[i] = ToFormat::store(product(FromFormat::load(in.at[i]), factor));
    return out;
  }
};

template <class Format>
struct Scale : Convert<Format, Format> {
  static constexpr bool kCanStride = true;
  static constexpr bool kTakesMany = true;
};

template <class Format>
struct Add {
  using From = typename Format::Memory;
  using To = typename Format::Memory;
  static constexpr bool kTakesMany = false;
  static constexpr bool kCanStride = true;
  static constexpr bool kFolds = false;
  template <int N>
  LOCKSTEP_HD static Pack<To, N> value(const Table&, const From* from, const To* to) {
    const Pack<From, N> in = load_pack<From, N>(from);
    Pack<To, N> out = load_pack<To, N>(to);
    LOCKSTEP_UNROLL
    for (int i = 0; i < N; ++i)
      out.at[i] = Format::store(sum(Format::load(out.at[i]), Format::load(in.at[i])));
    return out;
  }
};

// Sums shards that lie one behind the other, in rank order (G3).
template <class Format>
struct Fold {
  using From = typename Format::Memory;
  using To = typename Format::Memory;
  using Compute = typename Format::Compute;
  static constexpr bool kTakesMany = false;
  static constexpr bool kCanStride = false;
  static constexpr bool kFolds = true;
  template <int N>
  LOCKSTEP_HD static Pack<To, N> value(const Table& table, const From* from, const To*) {
    Pack<To, N> out = load_pack<From, N>(from);
    scale(table, out);
    return out;
  }
  template <int N>
  LOCKSTEP_HD static void fold(const Table& table, Pack<To, N>& out, Pack<From, N>& in) {
    scale(table, in);
    LOCKSTEP_UNROLL
    for (int i = 0; i < N; ++i)
      out.at[i] = Format::store(sum(Format::load(out.at[i]), Format::load(in.at[i])));
  }
  template <int N>
  LOCKSTEP_HD static void scale(const Table& table, Pack<To, N>& pack) {
    if (table.factor == 1.0) return;
    const auto factor = static_cast<Compute>(table.factor);
    LOCKSTEP_UNROLL
    for (int i = 0; i < N; ++i)
      pack.at[i] = Format::store(product(Format::load(pack.at[i]), factor));
  }
};

// The number of elements in a pack of an operation.
template <class Op>
constexpr int kLanes = kPackBytes /
                       static_cast<int>(sizeof(typename Op::From) > sizeof(typename Op::To)
                                            ? sizeof(typename Op::From)
                                            : sizeof(typename Op::To));

// Runs over `packs` packs of N elements. This call takes the Count packs of its thread, from
// `first` on. It reads all of them, and those of a shard, before it writes one, so that the reads
// are in flight together.
template <class Op, int N, std::uint32_t Count = kPacksPerThread>
LOCKSTEP_HD void run_packs(const Table& table, const typename Op::From* from, typename Op::To* to,
                           std::uint64_t packs, std::uint64_t first) {
  static_assert(N > 0 && (N & (N - 1)) == 0);  // Packs are aligned to their size.
  Pack<typename Op::To, N> out[Count];
  LOCKSTEP_UNROLL
  for (std::uint32_t i = 0; i < Count; ++i) {
    const std::uint64_t at = first + i * kThreads;
    if (at < packs) out[i] = Op::template value<N>(table, from + at * N, to + at * N);
  }
  if constexpr (Op::kFolds) {
    for (std::uint32_t shard = 1; shard < table.shards; ++shard) {
      from += table.shard_stride;
      Pack<typename Op::From, N> in[Count];
      LOCKSTEP_UNROLL
      for (std::uint32_t i = 0; i < Count; ++i) {
        const std::uint64_t at = first + i * kThreads;
        if (at < packs) in[i] = load_pack<typename Op::From, N>(from + at * N);
      }
      LOCKSTEP_UNROLL
      for (std::uint32_t i = 0; i < Count; ++i)
        if (first + i * kThreads < packs) Op::fold(table, out[i], in[i]);
    }
  }
  LOCKSTEP_UNROLL
  for (std::uint32_t i = 0; i < Count; ++i) {
    const std::uint64_t at = first + i * kThreads;
    if (at < packs) store_pack<typename Op::To, N>(to + at * N, out[i]);
  }
}

template <class Op>
LOCKSTEP_HD void run_one(const Table& table, const typename Op::From* from, typename Op::To* to) {
  run_packs<Op, 1, 1>(table, from, to, 1, 0);
}

// The first block takes the elements before the first pack, and the last block those behind the
// last one.
template <class Op>
LOCKSTEP_HD void run_packed(const Table& table, const Segment& segment, std::uint32_t block,
                            std::uint32_t thread) {
  constexpr int kN = kLanes<Op>;
  static_assert(kN * sizeof(typename Op::From) <= kPackBytes);
  static_assert(kN * sizeof(typename Op::To) <= kPackBytes);
  const auto* from = reinterpret_cast<const typename Op::From*>(segment.from);
  auto* to = reinterpret_cast<typename Op::To*>(segment.to);
  const std::uint64_t packs = (segment.elements - segment.head) / kN;
  const std::uint64_t first = std::uint64_t{block} * kPacksPerBlock;
  run_packs<Op, kN>(table, from + segment.head, to + segment.head, packs, first + thread);
  if (block == 0 && thread < segment.head) run_one<Op>(table, from + thread, to + thread);
  const std::uint64_t tail = segment.head + packs * kN + thread;
  if (first + kPacksPerBlock >= packs && tail < segment.elements)
    run_one<Op>(table, from + tail, to + tail);
}

template <class Op>
LOCKSTEP_HD void run_dense(const Table& table, const Segment& segment, std::uint32_t block,
                           std::uint32_t thread) {
  const auto* from = reinterpret_cast<const typename Op::From*>(segment.from);
  auto* to = reinterpret_cast<typename Op::To*>(segment.to);
  const std::uint64_t begin = std::uint64_t{block} * kElementsPerBlock;
  static_assert(kElementsPerBlock % kPacksPerBlock == 0);
  for (std::uint32_t done = 0; done < kElementsPerBlock; done += kPacksPerBlock)
    run_packs<Op, 1>(table, from, to, segment.elements, begin + done + thread);
}

// Index is wide enough for the number of elements, because 64-bit divisions are slow on a GPU. A
// thread takes some elements at a time, so that it reads the layout once for all of them, and reads
// them before it writes one. (It computes values for elements behind the last one, too, but does
// not use them.)
template <class Op, class Index>
LOCKSTEP_HD void run_strided(const Table& table, const Segment& segment, const Layout& layout,
                             std::uint32_t block, std::uint32_t thread) {
  const auto* from = reinterpret_cast<const typename Op::From*>(segment.from);
  auto* to = reinterpret_cast<typename Op::To*>(segment.to);
  const std::uint64_t begin = std::uint64_t{block} * kElementsPerBlock;
  constexpr std::uint32_t kTogether =
      sizeof(Index) == 4 ? 2 : 1;  // More would take registers from run_packed.
  static_assert(kElementsPerBlock % (kTogether * kThreads) == 0);
  const int last = static_cast<int>(layout.dims) - 1;
  for (std::uint32_t done = thread; done < kElementsPerBlock; done += kTogether * kThreads) {
    const std::uint64_t first = begin + done;
    if (first >= segment.elements) return;
    Index rest[kTogether];
    std::int64_t in_from[kTogether] = {};
    std::int64_t in_to[kTogether] = {};
    LOCKSTEP_UNROLL
    for (std::uint32_t i = 0; i < kTogether; ++i)
      rest[i] = static_cast<Index>(first + i * kThreads);
    for (int d = 0; d <= last; ++d) {
      const auto size = static_cast<Index>(layout.sizes[d]);
      const std::int64_t from_stride = layout.from[d];
      const std::int64_t to_stride = layout.to[d];
      LOCKSTEP_UNROLL
      for (std::uint32_t i = 0; i < kTogether; ++i) {
        const Index quotient = d == last ? 0 : rest[i] / size;
        const auto index = static_cast<std::int64_t>(rest[i] - quotient * size);
        in_from[i] += index * from_stride;
        in_to[i] += index * to_stride;
        rest[i] = quotient;
      }
    }
    Pack<typename Op::To, 1> out[kTogether] = {};
    LOCKSTEP_UNROLL
    for (std::uint32_t i = 0; i < kTogether; ++i)
      if (first + i * kThreads < segment.elements)
        out[i] = Op::template value<1>(table, from + in_from[i], to + in_to[i]);
    LOCKSTEP_UNROLL
    for (std::uint32_t i = 0; i < kTogether; ++i)
      if (first + i * kThreads < segment.elements)
        store_pack<typename Op::To, 1>(to + in_to[i], out[i]);
  }
}

// Returns the last segment whose first block is not behind `block`.
LOCKSTEP_HD std::uint32_t segment_of(const Segment* segments, std::uint32_t count,
                                     std::uint32_t block) {
  std::uint32_t low = 0;
  std::uint32_t high = count;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    (segments[middle].first_block <= block ? low : high) = middle;
  }
  return low;
}

// Runs everything that one thread of a block does.
template <class Op, std::size_t kBytes>
LOCKSTEP_HD void run(const Argument<kBytes>& argument, std::uint32_t block, std::uint32_t thread) {
  const Table& table = argument.table;
  const bool is_far = table.far_segments != nullptr;
  static_assert(alignof(Segment) <= 16 && offsetof(Argument<kBytes>, near) % 16 == 0);
  static_assert(sizeof(Segment) % alignof(Layout) == 0);  // Layouts follow the segments.
  const auto* segments =
      is_far ? table.far_segments : reinterpret_cast<const Segment*>(argument.near);
  const Segment segment = segments[segment_of(segments, table.segments, block)];
  block -= segment.first_block;
  if (segment.form == Form::kPacked) return run_packed<Op>(table, segment, block, thread);
  if (segment.form == Form::kDense) return run_dense<Op>(table, segment, block, thread);
  if constexpr (Op::kCanStride) {
    const auto* layouts =
        is_far ? table.far_layouts : reinterpret_cast<const Layout*>(segments + table.segments);
    const Layout& layout = layouts[segment.layout];
    if (segment.elements <= 0xffffffffu)
      run_strided<Op, std::uint32_t>(table, segment, layout, block, thread);
    else
      run_strided<Op, std::uint64_t>(table, segment, layout, block, thread);
  }
}

template <class F>
void with_move(DType dtype, F f) {
  switch (size_of(dtype)) {
    case 1:
      return f(Move<std::uint8_t>{});
    case 2:
      return f(Move<std::uint16_t>{});
    case 4:
      return f(Move<std::uint32_t>{});
    default:
      LOCKSTEP_CHECK_EQ(size_of(dtype), std::size_t{8});
      return f(Move<std::uint64_t>{});
  }
}

// Calls f with an object of the operation's type, one of those above.
template <class F>
void with_operation(const Operation& operation, F f) {
  switch (operation.kind) {
    case Kind::kMove:
      return with_move(operation.from, f);
    case Kind::kScale:
      return with_format(operation.from, [&]<class Format>(Format) { f(Scale<Format>{}); });
    case Kind::kAdd:
      return with_format(operation.from, [&]<class Format>(Format) { f(Add<Format>{}); });
    case Kind::kFold:
      return with_format(operation.from, [&]<class Format>(Format) { f(Fold<Format>{}); });
    case Kind::kConvert:
      return with_format(operation.from, [&]<class From>(From) {
        with_format(operation.to, [&]<class To>(To) {
          if constexpr (std::is_same_v<From, To>)
            f(Scale<From>{});
          else
            f(Convert<From, To>{});
        });
      });
  }
}

}  // namespace lockstep::kernels
