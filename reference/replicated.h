// Replicated: the options of reducers of which every rank holds all parameters, as
// DistributedDataParallel does. Plain data and pure functions of it; nothing here fails, and any
// thread may call it. The first value of each field is the simplest one.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/job.h"

namespace lockstep::reference {

enum class Mode : std::uint8_t { kPlain, kDynamic, kStatic };
// In which order a sum adds the ranks' contributions (G3): that of the transport's ring, Gloo's or
// NCCL's; that of Gloo's bcube; or the order of the ranks.
enum class Order : std::uint8_t { kRing, kBcube, kRankOrder };
// Which communication hook reduces the buckets (S4): none; a built-in one; or kElsewhere, a hook of
// the user's own. Unless the options below say otherwise, that hook does what kAllReduce does, but
// returns the result in other storage than the bucket's. It fails if it is not called as S4 says.
// PowerSGD has the rank of the options and the seed of power_sgd.h.
enum class Hook : std::uint8_t { kNone, kAllReduce, kFloat16, kBFloat16, kElsewhere, kPowerSgd };
// The next three enums say what a hook of the user's own (kElsewhere) does. With every other hook
// they have their first value.

// What the hook returns:
//   kMean   the average
//   kSum    the sum
//   kLocal  what the rank itself has in the bucket; it starts no collective
//   kZeros  zeros, although it starts the sum
enum class HookResult : std::uint8_t { kMean, kSum, kLocal, kZeros };
// When the result is there: as soon as the collective is complete (kImmediate), or when a thread of
// the hook has completed a future, in the order of the buckets (kLate) or in reversed order
// (kReversed).
enum class HookCompletion : std::uint8_t { kImmediate, kLate, kReversed };
// Which local backward the hook runs while it is started for a bucket:
//   kNone   none
//   kOwn    one of a graph of its own, to a parameter that the reducer does not know
//   kTaken  one to a parameter of the bucket. It is refused, because the pass has taken that
//           gradient (P1)
//   kAll    one to each parameter of the reducer, with an undefined gradient. Each of them changes
//           nothing or is refused. With a rebuild, normalize() makes it kNone, because the hooks of
//           these backwards would hide the ready order from the observer
enum class HookBackward : std::uint8_t { kNone, kOwn, kTaken, kAll };
// Where parameters lie, and what moves their gradients: on the host, over its network; on a GPU,
// over the host's network by way of copies; on a GPU, by NCCL. A GPU is one device: all numbers
// of devices are 0 there, and there is no PowerSGD; NCCL has no bcube.
enum class Transport : std::uint8_t { kHost, kStaged, kNccl };
// When buckets are reduced (P14).
enum class Launch : std::uint8_t { kOverlapped, kAfterBackward };
// Uneven inputs (S2). kNone: all ranks have all inputs. Otherwise Job::steps_per_rank says how
// many each rank has, and N is the number of all ranks (kByAll) or of those that still train
// (kByActive).
enum class Join : std::uint8_t { kNone, kByAll, kByActive };

struct Replicated {
  Mode mode = Mode::kPlain;
  Order order = Order::kRing;
  bool verify = false;   // payloads are verified on arrival (F3); with kRankOrder alone
  bool rebuild = false;  // buckets follow the ready order of rank 0 from the second pass on (B2)
  bool views = false;    // gradients become views of their buckets when they are reduced (B7)
  Hook hook = Hook::kNone;
  HookResult hook_result = HookResult::kMean;
  HookCompletion hook_completion = HookCompletion::kImmediate;
  HookBackward hook_backward = HookBackward::kNone;
  std::uint32_t power_sgd_rank = 1;  // of the matrices that PowerSGD sends: 1 or 2
  bool manual_sync = false;          // no forward is synced by itself (P13)
  bool repeated_hooks = false;       // in plain mode all hooks of a parameter count (P6)
  // If not 0, the layout is pinned (B3). It has the order that construction_order() draws from this
  // number, and the limits below.
  std::uint32_t pinned = 0;
  // With kAfterBackward there is no rebuild, and the limit of every bucket is bucket_bytes.
  Launch launch = Launch::kOverlapped;
  bool own_group = false;  // with kAfterBackward: on a second group of the same ranks
  // With several reducers (F7): each has process groups of its own; otherwise they share theirs.
  bool group_each = false;
  // Ranks with even numbers and ranks with odd numbers train separately, at the same time, in two
  // groups.
  bool two_groups = false;
  bool with_values = false;  // parameters have values, which the reducer keeps equal (S3)
  // Buffers are broadcast only at construction and after a recovery (S3).
  bool keep_buffers = false;
  // A chunk of a broadcast closes when it has this many bytes.
  std::uint64_t chunk_bytes = std::uint64_t{250} * 1024 * 1024;
  Join join = Join::kNone;
  bool early_termination = false;  // with a join: as soon as some ranks have no inputs, all raise
  Transport transport = Transport::kHost;
  std::uint64_t first_bucket_bytes = std::uint64_t{1024} * 1024;
  std::uint64_t bucket_bytes = std::uint64_t{25} * 1024 * 1024;
  // If not 0, the limit of the third bucket and of those behind it; not with kAfterBackward.
  std::uint64_t last_bucket_bytes = 0;
};

constexpr std::uint32_t kMaxPowerSgdRank = 2;

// The limits of the buckets of one dtype and device, in order, in bytes; the last limit is that of
// all further buckets.
std::vector<std::uint64_t> bucket_limits(const Replicated& options);

// Returns whether each reducer has a second process group, for the collectives of its backwards.
inline bool has_backward_group(const Replicated& options) {
  return options.launch == Launch::kAfterBackward && options.own_group;
}
// Returns whether a rank may have more than one process group.
inline bool has_several_groups(const Replicated& options) {
  return has_backward_group(options) || options.group_each;
}

// The dtype in which a bucket of `dtype` is summed with this hook (S4). The compressing hooks leave
// 16-bit types alone.
DType wire_dtype(Hook hook, DType dtype);

}  // namespace lockstep::reference
