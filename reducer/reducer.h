// Reducer: averages the gradients of a data-parallel model while its backward pass is still
// running. This is the production code that the whole project is about; what it promises is
// reference/CONTRACT.md, clause by clause.
//
// The way of a gradient: a parameter's accumulator runs, its hook copies the gradient, scaled by
// 1/N, into its place in a bucket (gather); a bucket whose members have all come, and all buckets
// before which are launched, starts its all-reduce at once; when backward ends the reducer waits
// for each bucket and copies the sums back (scatter), or in view mode leaves them where they are.
//
// Users hold a DataParallel (data_parallel.h), which calls this class in the right order.
//
// Threads: hooks run on the engine's workers, concurrently for different devices; everything else
// belongs to the one thread that trains. Ownership: parameters, group and store are shared; outputs
// of a synced forward keep the pass alive, not the reducer. Order: buckets are launched in index
// order, each once per pass (P3); then, with unused detection, the usage map (T2). Failure: an
// error after a collective was launched poisons the reducer: it refuses work, with the first cause,
// until reset() (P12). Errors name rank, pass, bucket, parameter, and the peer suspected (F2).
// Memory: one buffer per bucket, made at construction; a steady pass allocates nothing but its
// graph's nodes. In view mode a parameter that this rank does not use, but has a gradient of, costs
// a copy of that gradient for the time of the pass.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reducer/autograd/engine.h"
#include "reducer/autograd/node_map.h"
#include "reducer/autograd/parameter.h"
#include "reducer/bucket/layout.h"
#include "reducer/comm/process_group.h"
#include "reducer/comm/store.h"
#include "reducer/diagnosis/diagnosis.h"
#include "reducer/failure_board.h"
#include "reducer/hooks/communication_hook.h"
#include "reducer/module_state.h"
#include "reducer/sparse_sum.h"
#include "reducer/statistics.h"
#include "reducer/trace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// When buckets are reduced (P14): each as soon as it is full, or all of them when backward has
// ended.
enum class Schedule : std::uint8_t { kOverlapped, kAfterBackward };

struct ReducerOptions {
  // Dynamic mode: parameters that a pass does not use are found and agreed on. Plain mode requires
  // every parameter in every pass.
  bool find_unused_parameters = false;
  // Static mode (P11): every synced pass fires the same hooks on this rank as the first one, which
  // is reduced when its first backward ends, whatever outputs are left: a second backward of it is
  // refused. A parameter may be used several times in a pass, or never.
  // Not together with find_unused_parameters.
  bool static_graph = false;
  // View mode (B7): after a pass the gradients are views of the buckets, so that there is no second
  // copy of them. A hook moves its gradient there; after a failed backward gradients may be scaled,
  // or summed over replicas.
  bool gradient_as_bucket_view = false;
  // How buckets are summed. kRankOrdered: the same bits whatever the bucket limits, the transport
  // and its version (G3), for the price of a copy of each bucket.
  Reduction reduction = Reduction::kNative;
  // F3: everything that is sent after construction has agreed carries checksums, and each receiver
  // compares them: corrupted, truncated, misplaced or old data is a kCorrupted failure that
  // suspects the sender. Needs kRankOrdered, as the sums are the group's own then, and a group that
  // can_verify(). For the price of two more copies of each bucket in memory, and two passes over
  // it.
  bool verify_payload = false;
  // Called for every bucket in place of its scale and sum (S4); of one reducer alone. All ranks
  // have hooks of the same name. Those that come with the reducer: hooks/builtin_hooks.h.
  std::shared_ptr<CommunicationHook> hook;
  // Bytes at which a bucket closes: the i-th of a group of one dtype and device takes limits[i],
  // the last entry serves all further ones.
  std::vector<std::uint64_t> bucket_limits = {1u << 20, 25u << 20};
  // Buckets follow the order in which gradients get ready: after its first pass rank 0 tells the
  // others the order that it saw, and all lay out their buckets anew (B2).
  bool rebuild_buckets = true;
  // B3: the layout of an earlier run, for the bits of that run: see save() and load_layout(). It
  // takes the place of limits and rebuild, and all ranks must have the same one.
  std::optional<Layout> pinned_layout;
  // kAfterBackward: hooks start nothing; buckets, of coalesced_bytes each and never rebuilt, are
  // reduced once when backward ends, on Membership::backward_group if there is one.
  Schedule schedule = Schedule::kOverlapped;
  std::uint64_t coalesced_bytes = 256u << 20;
  // Off is manual sync (P13): a forward of DataParallel is local, and its sync_gradients(outputs),
  // between the last forward and the backward, makes them one synced pass.
  bool auto_sync = true;
  // The model's buffers (S3): broadcast from rank 0 at construction and after a reset, together
  // with the values of parameters that have one; and, with broadcast_buffers, before the first
  // forward after that and after each synced pass, then, under a join, from the lowest rank that
  // trains (S2). They travel in chunks that close at this many
  // bytes.
  std::vector<Ref<Buffer>> buffers;
  bool broadcast_buffers = true;
  std::uint64_t broadcast_chunk_bytes = 250u << 20;
  // Names of parameters and buffers that the reducer leaves alone: not reduced, not broadcast.
  std::vector<std::string> ignored;
  // Further copies of the model in this process (P15).
  std::vector<Replica> replicas;
  // How long a rank that failed listens for its peers' accounts of the cause.
  platform::Duration failure_grace = std::chrono::seconds(2);
  std::size_t trace_capacity = 256;  // collectives kept for diagnosis; up to 2^24
};

// S2: how ranks with uneven inputs train together; the same on all ranks.
struct JoinOptions {
  // The mean is over the ranks that still train, not over all of the group.
  bool divide_by_active = false;
  // As soon as one rank is out of inputs and another is not, all raise kUnevenInputs.
  bool throw_on_early_termination = false;
};

// What a rank's group is made of; a reset replaces all of it. The store is this group's own: give
// each generation its own prefix.
struct Membership {
  std::shared_ptr<ProcessGroup> group;
  std::shared_ptr<Store> store;
  // With Schedule::kAfterBackward: for all that a backward sends; of the same ranks. Null: `group`.
  std::shared_ptr<ProcessGroup> backward_group = nullptr;
};

class Pass;

class Reducer final : private GradientHook, private HookCollectives, private Broadcaster {
 public:
  // A collective operation: every rank of the group creates its reducer, with the same parameters
  // and options in the same order (B4). What one rank refuses all refuse, with its number and its
  // reason. A parameter listed several times counts once; one that another reducer on the same
  // group has is refused (F7). All parameters must live until the reducer is gone.
  static Result<std::unique_ptr<Reducer>> create(std::vector<Ref<Parameter>> parameters,
                                                 ReducerOptions options, Membership membership);
  ~Reducer() override;  // no backward may be running; aborts the group if a pass is half reduced
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Before every forward with gradients. kPoisoned after a failure; kIncomplete if the last pass
  // was left unfinished (P5).
  Status begin_forward();

  // Before a synced forward, after refresh_state(): once, when a first pass is complete, the
  // buckets are laid out anew. A collective operation.
  Status rebuild_buckets();

  // Before every forward with gradients, after begin_forward(): the first one of a sync window,
  // which lasts until a synced pass is complete, broadcasts the buffers (S3), and copies values and
  // buffers to the other replicas (P15).
  Status refresh_state();

  // Before a forward without gradients: copies values and buffers to the other replicas, unless
  // gradients accumulate (P15). Not a collective operation.
  Status copy_to_replicas();

  // After a synced forward: takes its outputs into the pass and replaces them by outputs that know
  // of it. kIncomplete as from begin_forward, for a backward that ran in between.
  Status arm(std::vector<Edge>& outputs, Engine& engine);

  // Uneven inputs (S2), from here to end_join() or a reset. Local, and called by every rank before
  // the same forward.
  Status begin_join(const JoinOptions& options);
  // This rank is out of inputs: takes part in all that the others reduce, with zeros, and in what
  // comes of it, until all have called it. Then values and buffers become those of the lowest rank
  // that trained in the last pass or broadcast. A collective operation.
  Status end_join();

  // kIncomplete if a pass has begun and is not complete (P5); it is given up.
  Status check_complete();

  // Gives up: peers get `cause` as the definite one, of this rank (but for kUnevenInputs, which
  // names one already), work in flight ends, the reducer is poisoned. Does nothing if it is
  // already. Where `cause` is another rank's, as it came up in another group, that one is
  // suspected: its number counts in this group, so translate it where the groups' ranks differ.
  void abort(const Status& cause);

  // After a failure, or for a change of members: a new group, perhaps with fewer ranks (F4).
  // Collective over it. Gradients are left alone.
  Status reset(Membership membership);

  const Status& poisoned() const { return poison_; }  // ok: it is not
  const Layout& layout() const { return layout_; }
  // The order that the buckets follow, as indices into parameter_infos(); empty before they do.
  std::vector<std::size_t> rebuilt_order() const;
  const std::vector<ParameterInfo>& parameter_infos() const { return infos_; }
  const Trace& trace() const { return trace_; }
  // Of the last pass that this rank trained in and completed (T3).
  const PassStatistics& last_pass() const { return last_pass_; }
  // What this rank tells of itself (T1): as of now, or of the last failure if no pass has begun
  // since. By the thread that trains, outside of backward. to_text() makes a file of it.
  FlightRecord flight_record() const;
  // The accounts of all ranks, joined, after a failure: each rank whose reducer is poisoned has
  // left its own in the group's store (T1), and this one's is of now. Waits at most `patience` for
  // those of others; ranks that leave none are silent in it. Not a collective operation.
  Result<Diagnosis> diagnose(platform::Duration patience) const;
  // Collectives launched in the pass that is open, or was the last one.
  std::int64_t launched_in_pass() const { return launched_; }
  ProcessGroup& group() { return *membership_.group; }

 private:
  friend class Pass;
  static constexpr std::uint32_t kNotReduced = ~std::uint32_t{0};

  // What hooks fire for: a parameter of the first replica, or its copy in another one.
  struct ReplicaGradient {
    Ref<Parameter> parameter;
    std::uint32_t hooks_started = 0;   // of gradients in the pass that is running
    std::uint32_t hooks_finished = 0;  // that fired after them
    std::uint32_t hooks_expected = 1;  // after how many of them it has come
    bool is_ready = false;             // in the pass that is running
  };
  struct FurtherReplica : ReplicaGradient {
    std::size_t reduced = 0;
  };
  // One parameter that takes part. What every pass needs of every slot lies in one cache line: the
  // graph has been run since they were last looked at, and with many small parameters fetching them
  // is most of what a pass costs.
  struct alignas(64) ReducedParameter : ReplicaGradient {
    bool all_replicas_ready = false;  // all its parts have come
    bool used = false;                // by this rank, as of when it became ready (G6)
    bool in_use = false;              // static mode: by some rank, in the pass that was counted
    std::uint32_t further_replica_count = 0;  // they are neighbours
    std::uint32_t first_further_replica = 0;
    std::uint32_t replicas_pending = 1;  // parts that have not come in the pass that is running
    std::uint32_t info = 0;              // its index in infos_
    std::uint64_t last_hook = 0;         // its number in that pass, from 1; 0: there was none
    std::size_t bucket = 0;
    bool is_grad_saved = false;  // `kept` is defined
    bool to_pack = false;        // with its bucket, as it is on a GPU
    bool to_alias = false;       // after that `place` is the gradient
    Tensor bucket_view;  // in the bucket, dense in the parameter's strides; undefined: it is sparse
    Tensor saved_grad;   // view mode: what `place` held, while it may have to come back (G5)
  };
  struct Bucket {
    Ref<Storage> storage;               // null if it is sparse
    std::unique_ptr<SparseSum> sparse;  // null if it is not
    std::vector<std::size_t> members;   // its members, in their order
    std::size_t pending = 0;            // members that are not ready
    std::int64_t trace_sequence = 0;
    Work work;
    std::unique_ptr<HookBucket> hooked;  // what the hook sees of it; null without one
  };

  // Where a rank stands, as far as it cannot be seen later (T1).
  struct ProgressSnapshot {
    FlightRecord::Doing doing = FlightRecord::Doing::kIdle;
    std::int64_t pass = 0;
    std::size_t next_bucket = 0;
    std::optional<Failure> failure;  // its own; the first cause is in poison_
  };

  Reducer(ReducerOptions options, Membership membership);
  Status build(std::vector<Ref<Parameter>> parameters);
  Status lay_out_first();
  Status lay_out(Layout layout);
  Status check_members(const std::vector<Ref<Parameter>>& parameters) const;
  Status leave_out_ignored(std::vector<Ref<Parameter>>& parameters);
  Status add_parameter(const Ref<Parameter>& parameter);
  Status add_further_replicas(std::size_t listed, const Parameter& parameter, NodeMap& members);
  Status check_repeated(const std::vector<Ref<Parameter>>& parameters, std::size_t listed,
                        std::size_t first) const;
  std::size_t replica_gradient_count() const {
    return reduced_parameters_.size() + further_replicas_.size();
  }
  ReplicaGradient& replica_gradient(std::size_t index) {
    if (index < reduced_parameters_.size()) return reduced_parameters_[index];
    return further_replicas_[index - reduced_parameters_.size()];
  }
  ReducedParameter& reduced_parameter_of(std::size_t replica) {
    return reduced_parameters_[replica < reduced_parameters_.size()
                                   ? replica
                                   : further_replicas_[replica - reduced_parameters_.size()]
                                         .reduced];
  }
  // Calls `call` with each part of the slot, in the order of the replicas.
  template <class Call>
  void each_replica(const ReducedParameter& reduced, const Call& call) const {
    call(static_cast<const ReplicaGradient&>(reduced));
    for (std::uint32_t i = 0; i < reduced.further_replica_count; ++i)
      call(further_replicas_[reduced.first_further_replica + i]);
  }
  Status broadcast(Device& device, std::byte* data, std::uint64_t bytes, int root) override;
  Failure state_failure(Status status) const;
  Status broadcast_state();
  enum class JoinEvent : std::uint8_t { kBuffers, kRebuild, kPass, kNone };
  Result<JoinEvent> exchange_join_state(JoinEvent event);
  Result<JoinEvent> apply_join_state(std::span<const std::int32_t> flags);
  bool all_train() const;
  int lowest_that_trains() const;
  void divide_by(int ranks);
  void leave_join();
  Status shadow(JoinEvent event);
  Status shadow_pass();
  Status send_buffers();
  Status lay_out_in_ready_order();
  Status agree_on_order();
  Status meet_peers(Status own);
  Status agree_with_peers(Status own);
  Status lay_out_pinned();
  Status check_group() const;
  Status check_other_reducers() const;
  Status check_dtype(const Parameter& parameter) const;
  Status check_devices() const;
  Status check_reach() const;
  Status start_over();

  Status backward_reached(GraphTask& task) override;
  Status gradient_arriving(Parameter& parameter, std::size_t index, GraphTask& task) override;
  Status gradient_ready(Parameter& parameter, std::size_t index, GraphTask& task) override;
  bool sends_by(const ProcessGroup& group) const override {
    return &group == membership_.group.get() || &group == &backward_group();
  }
  Status begin_pass(Pass& pass, GraphTask& task);
  void start_pass(Pass& pass);
  void end_pass();
  Status end_backward();
  Status backward_failed(Status status);
  Status finalize();

  void find_unused(Pass& pass);
  bool after_backward() const { return options_.schedule == Schedule::kAfterBackward; }
  bool rebuilds() const {
    return options_.rebuild_buckets && !options_.pinned_layout && !after_backward();
  }
  ProcessGroup& backward_group() const {
    const bool apart = after_backward() && membership_.backward_group != nullptr;
    return apart ? *membership_.backward_group : *membership_.group;
  }
  bool can_complete_later();
  bool in_first_static_pass() const { return options_.static_graph && !first_static_pass_done_; }
  bool tracks_use() const { return options_.find_unused_parameters || options_.static_graph; }
  void note_ready(const ReducedParameter& reduced);
  void note_copied_to_bucket(const ReducedParameter& reduced);
  void keep_statistics();
  bool grad_is_bucket_view(const ReducedParameter& reduced) const;
  Failure ready_twice(const ReplicaGradient& replica, std::size_t bucket) const;
  Status arriving_locally(std::size_t index);
  void suspend_pass();
  Status mark_ready(ReducedParameter& reduced, platform::MutexLock& lock);
  Status mark_all_unused_ready();
  Status mark_unused_ready(ReducedParameter& reduced);
  Status copy_grad_to_bucket(ReducedParameter& reduced);
  Status copy_dense_grad_to_bucket(ReducedParameter& reduced, double factor);
  void alias_grad_to_bucket(ReducedParameter& reduced);
  void pack_bucket(const Bucket& bucket);
  Status detach_misplaced_views();
  Status detach_from_bucket(Parameter& parameter) const;
  void sum_replicas(ReducedParameter& reduced, double factor);
  static void wait_for(const ReplicaGradient& replica, Device& device);
  Result<Tensor> all_entries(const ReducedParameter& reduced) const;
  Failure requires_grad(const ReplicaGradient& replica, std::size_t bucket) const;
  Status save_stale_grad(ReducedParameter& reduced);
  Status mark_remaining_ready();
  std::vector<std::size_t> by_last_hook() const;
  Status agree_on_use();
  Status usage_changed() const;
  Status launch_ready_buckets(platform::MutexLock& lock);
  Status launch_bucket(std::size_t b);
  Status finish_bucket(std::size_t b);
  Status copy_bucket_to_grads(const Bucket& bucket, bool& usage_pending);
  Status finish_sparse(std::size_t b);
  Status launch_usage_map();
  Status launch(Collective& collective, Work& work, TraceEntry::What what, std::int64_t& sequence);
  Status await(Work& work, std::int64_t trace_sequence, int bucket);
  void close_trace(std::int64_t sequence, const Status& status);
  double factor_of(DType dtype) const { return dtype == DType::kFloat64 ? factor_ : float_factor_; }
  // Of what comes into a bucket: a hook (G4) or the sum may scale it instead.
  double bucket_factor(DType dtype) const {
    return options_.hook || group_scales(dtype) ? 1.0 : factor_of(dtype);
  }
  bool group_scales(DType dtype) const {
    return !options_.hook && backward_group().can_scale(real_of(dtype));
  }

  std::unique_ptr<HookBucket> hooked(const Layout& layout, std::size_t b, const Bucket& bucket,
                                     const std::vector<Tensor>& bucket_views);
  Status start(Collective& collective, Work& work, std::int64_t& trace_sequence) override;
  Status await(Work& work, std::int64_t trace_sequence) override;
  Status start_hook(std::size_t b, platform::MutexLock& lock);
  Status finish_hook(std::size_t b);
  Status hook_failed(Status status, std::size_t b) const;
  Status hook_never_ended(std::size_t b) const;
  Status copy_bucket_to_grad(ReducedParameter& reduced);
  void restore_stale_grad(ReducedParameter& reduced);
  void drop_stale_grad(ReducedParameter& reduced);
  void open_pass();
  void close_pass(bool complete);

  ProgressSnapshot progress() const;
  void note_failure(const Failure& failure);
  Failure describe(Code code, std::string detail) const;
  void annotate(Failure& failure, int bucket) const;
  void keep_to_group(Failure& failure) const;
  Status with_bucket(Status status, std::size_t b) const;
  Status incomplete();
  Status give_up(Status status);
  Status fail(Failure failure);
  Status copy_of_poison() const;
  Status reserved(Code code, const char* detail);
  void stop_group(const Status& cause);
  Status wait_for(Work& work) const;

  ReducerOptions options_;  // not changed after construction
  Membership membership_;
  int divisor_ = 1;  // N
  // Of its collectives: the number, in the group, of the one with which ranks agreed. So two
  // reducers on one group cannot take each other's sums for their own (F3).
  std::int64_t reducer_id_ = kNone;
  double factor_ = 1.0;        // of float64 gradients
  double float_factor_ = 1.0;  // of all others: rounded to float (G2)

  std::optional<ModuleState> state_;
  bool window_open_ = false;            // its first forward has been (S3)
  bool is_copied_ = false;              // the other replicas have had buffers in this group (P15)
  std::vector<ParameterInfo> infos_;    // every distinct parameter, frozen ones included
  std::vector<std::string> agreement_;  // what ranks compare
  Layout layout_;
  std::vector<ReducedParameter> reduced_parameters_;
  std::vector<FurtherReplica> further_replicas_;  // of other replicas
  std::vector<Bucket> buckets_;
  std::vector<Transfer> transfers_;  // of the bucket that is gathered or scattered; room for any

  // Guards what follows, while a backward runs. Taken before the process group's own lock.
  platform::Mutex mutex_{"reducer"};
  Ref<Pass> pass_;                     // the pass that is open or running; null when none is
  Ref<Pass> closed_pass_;              // the one before, for its memory
  GraphTask* running_task_ = nullptr;  // outermost backward of the pass that runs now
  std::int64_t next_pass_ = 0;
  std::size_t unready_parameters_ = 0;  // slots of the running pass
  std::size_t next_bucket_ = 0;         // to be launched
  bool launching_ = false;              // a hook starts it, or failed to
  std::int64_t launched_ = 0;
  platform::Atomic<bool> unused_marked_{true};  // in the pass that runs, or none does
  std::vector<std::size_t> unused_;             // parts that will have no hook in the running pass
  std::uint64_t hooks_ = 0;                     // that fired in the running pass
  std::vector<std::int32_t> ready_order_;       // slots, as they got ready in the first pass
  bool recorded_ = false;                       // that pass is complete
  bool rebuilt_ = false;                        // and the buckets follow it
  bool first_static_pass_done_ = false;         // static mode: this rank's first pass is complete
  bool used_parameters_agreed_ = false;         // and its group's: what is in use is known
  std::optional<JoinOptions> joining_;          // between begin_join and end_join
  std::vector<std::int32_t> active_;            // by rank: 1, it trained in the last event
  std::vector<std::int32_t> join_state_;
  bool shadowing_ = false;  // a pass of others
  std::vector<std::int32_t> usage_map_;
  Work usage_work_;
  std::int64_t usage_sequence_ = 0;
  Trace trace_;
  platform::Duration armed_{};  // the pass that is open, on the platform's clock, as in `times_`
  PassStatistics times_;        // of the running pass
  PassStatistics last_pass_;
  Status poison_;
  Status
      reserve_;  // memory for one failure, so that nothing can keep a reducer from being poisoned
  std::optional<ProgressSnapshot> failed_at_;  // the last failure, until a pass begins
  ParameterSearch search_;
  std::vector<Node*> search_roots_;
  NodeMap replica_gradient_numbers_;  // by parameter
  std::vector<bool> reachable_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
