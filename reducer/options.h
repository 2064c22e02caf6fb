// ReducerOptions says what a reducer does, JoinOptions how ranks with uneven inputs train together,
// and Membership with whom. All ranks must pass the same options, in the same order (B4).
// Threads: these are values. The groups and the store that a Membership shares have rules of their
// own, in comm/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reducer/bucket/layout.h"
#include "reducer/comm/process_group.h"
#include "reducer/comm/store.h"
#include "reducer/hooks/communication_hook.h"
#include "reducer/module_state.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Schedule says when buckets are reduced (P14): each as soon as all its members are ready, or all
// of them when backward has ended.
enum class Schedule : std::uint8_t { kOverlapped, kAfterBackward };

struct ReducerOptions {
  // Dynamic mode: the ranks find the parameters that a pass does not use, and agree on them. Plain
  // mode requires that every pass uses every parameter.
  bool find_unused_parameters = false;
  // In dynamic mode: a rank sends no bucket of which it uses no parameter, and these gradients stay
  // as they are. All ranks must then use parameters of the same buckets in each pass: otherwise the
  // pass fails (kMismatch, F6). Uneven inputs (S2) are refused.
  bool skip_unused_buckets = false;
  // Static mode (P11): every synced pass runs the same hooks on this rank as the first one did. The
  // first pass is reduced when its first backward ends, even if outputs of it remain; the reducer
  // refuses a second backward of that pass. A pass may use a parameter several times, or never.
  // This mode excludes find_unused_parameters.
  bool static_graph = false;
  // View mode (B7): after a pass the gradients are views of the buckets, which saves a second copy
  // of them. A hook moves the gradient into its bucket. After a failed backward, gradients may
  // already be scaled, or summed over the replicas.
  bool gradient_as_bucket_view = false;
  // The order in which buckets are summed. kRankOrdered gives the same bits whatever the bucket
  // limits, the transport and its version are (G3); it costs a copy of each bucket.
  Reduction reduction = Reduction::kNative;
  // With payload verification (F3), everything that ranks send after they have agreed at
  // construction carries checksums, and each receiver compares them. Corrupted, truncated,
  // misplaced or old data raises a kCorrupted failure that suspects the sender. This option needs
  // kRankOrdered, because the group computes the sums itself, and a group that can_verify(). It
  // costs two more copies of each bucket in memory, and two passes over the bucket.
  bool verify_payload = false;
  // The communication hook, which the reducer calls for every bucket in place of its own scale and
  // sum (S4). A hook object serves one reducer. The hooks of all ranks must have the same name.
  // hooks/builtin_hooks.h has the hooks that come with the reducer.
  std::shared_ptr<CommunicationHook> hook;
  // The size in bytes at which a bucket closes. The i-th bucket of each (dtype, device) group takes
  // limits[i]; the last entry serves all further buckets.
  std::vector<std::uint64_t> bucket_limits = {1u << 20, 25u << 20};
  // If set, buckets are rebuilt in the order in which gradients become ready: after its first pass
  // rank 0 broadcasts the order that it recorded, and all ranks assign their buckets anew (B2).
  bool rebuild_buckets = true;
  // The layout of an earlier run, which reproduces the bits of that run (B3); see save() and
  // load_layout(). It replaces the limits and the rebuild. All ranks must have the same one.
  std::optional<Layout> pinned_layout;
  // With kAfterBackward hooks launch nothing. Buckets of coalesced_bytes each, which are never
  // rebuilt, are reduced once when backward ends, on Membership::backward_group if there is one.
  Schedule schedule = Schedule::kOverlapped;
  std::uint64_t coalesced_bytes = 256u << 20;
  // False selects manual sync (P13): a forward of DataParallel is then local, and
  // sync_gradients(outputs), called between the last forward and the backward, makes the forwards
  // one synced pass.
  bool auto_sync = true;
  // The model's buffers (S3). Rank 0 broadcasts them at construction and after a reset, together
  // with the values of those parameters that have one. With broadcast_buffers set, it also
  // broadcasts them before the first forward after that, and before the first forward after each
  // synced pass; under a join the lowest rank that still trains does so (S2). Tensors are sent in
  // chunks that close at broadcast_chunk_bytes.
  std::vector<Ref<Buffer>> buffers;
  bool broadcast_buffers = true;
  std::uint64_t broadcast_chunk_bytes = 250u << 20;
  // The names of parameters and buffers that the reducer ignores: it neither reduces nor broadcasts
  // them.
  std::vector<std::string> ignored;
  // The further replicas of the model in this process (P15).
  std::vector<Replica> replicas;
  // How long a rank that failed waits for its peers' reports of the cause.
  platform::Duration failure_grace = std::chrono::seconds(2);
  // The number of collectives that the trace holds for diagnosis; at most 2^24.
  std::size_t trace_capacity = 256;
};

// JoinOptions says how ranks with uneven inputs train together (S2). All ranks must pass the same
// options.
struct JoinOptions {
  // If set, the mean is taken over the ranks that still train, and not over the whole group.
  bool divide_by_active = false;
  // If set, all ranks raise kUnevenInputs as soon as one rank is out of inputs and another is not.
  bool throw_on_early_termination = false;
};

// The process groups and the store that a rank works with. A reset replaces all of them. The store
// belongs to this group alone: give each generation a prefix of its own.
struct Membership {
  std::shared_ptr<ProcessGroup> group;
  std::shared_ptr<Store> store;
  // With Schedule::kAfterBackward, the group that carries everything that a backward sends. It has
  // the same ranks as `group`. Null means `group`.
  std::shared_ptr<ProcessGroup> backward_group = nullptr;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
