// Reducer averages the gradients of a data-parallel model while the backward pass is still running.
// It is the production code that the whole project tests. reference/CONTRACT.md says, clause by
// clause, what it promises.
//
// A gradient takes this way. The parameter's accumulator runs, and the parameter's hook copies the
// gradient, scaled by 1/N, into the parameter's view of a bucket. As soon as all members of a
// bucket are ready, and all buckets before it have been launched, the all-reduce of the bucket
// starts. When backward ends, the reducer waits for each bucket and copies the sums back to the
// gradients; in view mode the gradients are views of the bucket, and the sums stay where they are.
//
// Users hold a DataParallel (data_parallel.h), which calls this class in the right order.
//
// Threads: hooks run on the engine's workers, concurrently for different devices. Every other
// function belongs to the one thread that trains.
// Ownership: parameters, group and store are shared with the caller. The outputs of a synced
// forward keep the pass alive, but not the reducer.
// Order: buckets are launched in index order, each once per pass (P3). With unused-parameter
// detection the usage map follows them (T2).
// Failure: an error that occurs after a collective was launched poisons the reducer. It then
// refuses all work with the first cause, until reset() (P12). Errors name the rank, the pass, the
// bucket, the parameter, and the peer that is suspected (F2).
// Memory: each bucket has one buffer, which is allocated at construction. A steady pass allocates
// nothing but the nodes of its graph. In view mode the reducer copies, for the time of the pass,
// the gradient of each parameter that has a gradient but is not used by this rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reducer/autograd/engine.h"
#include "reducer/autograd/parameter.h"
#include "reducer/base/check.h"
#include "reducer/bucket/layout.h"
#include "reducer/comm/process_group.h"
#include "reducer/comm/store.h"
#include "reducer/core/pass_core.h"
#include "reducer/diagnosis/diagnosis.h"
#include "reducer/failure_board.h"
#include "reducer/gradient_scale.h"
#include "reducer/gradient_search.h"
#include "reducer/hooks/communication_hook.h"
#include "reducer/module_state.h"
#include "reducer/pass_clock.h"
#include "reducer/sparse_sum.h"
#include "reducer/statistics.h"
#include "reducer/trace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Schedule says when buckets are reduced (P14): each as soon as all its members are ready, or all
// of them when backward has ended.
enum class Schedule : std::uint8_t { kOverlapped, kAfterBackward };

struct ReducerOptions {
  // Dynamic mode: the ranks find the parameters that a pass does not use, and agree on them. Plain
  // mode requires that every pass uses every parameter.
  bool find_unused_parameters = false;
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

class Pass;

class Reducer final : private GradientHook, private HookCollectives, private Broadcaster {
 public:
  // A collective operation: every rank of the group creates its reducer, with the same parameters
  // and options in the same order (B4). If one rank refuses, all ranks return an error with that
  // rank's number and reason. A parameter that is listed several times counts once. A parameter
  // that another reducer on the same group reduces is refused (F7). All parameters must outlive the
  // reducer.
  static Result<std::unique_ptr<Reducer>> create(std::vector<Ref<Parameter>> parameters,
                                                 ReducerOptions options, Membership membership);
  // No backward may be running. The destructor aborts the group if a pass is only partly reduced.
  ~Reducer() override;
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Call it before every forward with gradients. It returns kPoisoned after a failure, and
  // kIncomplete if the last pass was left unfinished (P5).
  Status begin_forward();

  // Call it before a synced forward, after refresh_state(). Once, when a first pass is complete, it
  // rebuilds the buckets. A collective operation.
  Status rebuild_buckets();

  // Call it before every forward with gradients, after begin_forward(). The first call of a sync
  // window, which lasts until a synced pass is complete, broadcasts the buffers (S3) and copies
  // values and buffers to the other replicas (P15).
  Status refresh_state();

  // Call it before a forward without gradients. It copies values and buffers to the other replicas,
  // unless gradients are being accumulated (P15). It is not a collective operation.
  Status copy_to_replicas();

  // Call it after a synced forward. It adds the forward's outputs to the pass and replaces each of
  // them by an output that refers to the pass. It returns kIncomplete under the conditions of
  // begin_forward(), for a backward that ran in between.
  Status arm(std::vector<Edge>& outputs, Engine& engine);

  // Begins training with uneven inputs (S2), which lasts until end_join() or a reset. This call is
  // local; every rank makes it before the same forward.
  Status begin_join(const JoinOptions& options);
  // Says that this rank is out of inputs. The rank then contributes zeros to everything that the
  // other ranks reduce, and applies the results, until all ranks have called end_join(). After
  // that, every rank takes the values and buffers of the lowest rank that trained in the last pass
  // or broadcast. A collective operation.
  Status end_join();

  // Returns kIncomplete, and gives up the pass, if a pass has begun and is not complete (P5).
  Status check_complete();

  // Gives up. Peers receive `cause` as a definite cause that arose on this rank (unless it is
  // kUnevenInputs, which names a rank already); work in flight ends, and the reducer is poisoned.
  // The call does nothing if the reducer is already poisoned. If `cause` came up in another group
  // and names another rank, that rank is suspected. Its number counts in this group, so translate
  // it where the ranks of the two groups differ.
  void abort(const Status& cause);

  // Call it after a failure, or when the members change. It takes a new group, which may have fewer
  // ranks (F4), and leaves gradients alone. A collective operation of the new group.
  Status reset(Membership membership);

  // The first cause; ok if the reducer is not poisoned.
  const Status& poisoned() const { return poison_; }
  const Layout& layout() const { return layout_; }
  // The ready order that the rebuilt buckets follow, as indices into parameter_infos(). It is empty
  // before the rebuild.
  std::vector<std::size_t> rebuilt_order() const;
  const std::vector<ParameterInfo>& parameter_infos() const { return infos_; }
  const Trace& trace() const { return trace_; }
  // The times of the last pass that this rank trained in and completed (T3).
  const PassStatistics& last_pass() const { return clock_.last(); }
  // The flight record of this rank (T1): the state of now, or that of the last failure if no pass
  // has begun since. The thread that trains calls it, outside of backward. to_text() turns it into
  // text for a file.
  FlightRecord flight_record() const;
  // Joins the flight records of all ranks after a failure. Each rank whose reducer is poisoned has
  // left its record in the group's store (T1); the record of this rank is taken now. The call waits
  // at most `patience` for the records of other ranks, and lists ranks without a record as silent.
  // It is not a collective operation.
  Result<Diagnosis> diagnose(platform::Duration patience) const;
  // The number of collectives launched in the pass that is open, or in the last pass if none is.
  std::int64_t launched_in_pass() const { return launched_; }
  ProcessGroup& group() { return *membership_.group; }

 private:
  friend class Pass;

  // The gradient that hooks report: that of a parameter of the first replica, or of the
  // corresponding parameter of another replica.
  struct ReplicaGradient {
    Ref<Parameter> parameter;
    std::uint32_t number = 0;  // The number that hooks report, and core_ counts by.
  };
  struct FurtherReplica : ReplicaGradient {
    std::size_t reduced = 0;
  };
  // One parameter that the reducer reduces. The fields that every pass needs of every parameter lie
  // in one cache line. The graph has run since the reducer last read them, and with many small
  // parameters the cache misses are most of the cost of a pass.
  struct alignas(64) ReducedParameter : ReplicaGradient {
    // Whether this rank used the parameter, as of the moment when it became ready (G6).
    bool used = false;
    bool in_use = false;  // Static mode: whether some rank used the parameter in the first pass.
    // The parameter's further replicas are neighbours in further_replicas_, from
    // first_further_replica on.
    std::uint32_t further_replica_count = 0;
    std::uint32_t first_further_replica = 0;
    std::uint32_t info = 0;  // The parameter's index in infos_.
    std::size_t bucket = 0;
    bool is_grad_saved = false;  // True if `saved_grad` is defined.
    // True if pack_bucket() has to copy the gradient, because it is on a GPU.
    bool to_pack = false;
    bool to_alias = false;  // True if the gradient becomes `bucket_view` after that.
    // The parameter's memory in the bucket, dense, with the parameter's strides; undefined if the
    // parameter is sparse.
    Tensor bucket_view;
    // View mode: the gradient that `bucket_view` held, for as long as it may have to be restored
    // (G5).
    Tensor saved_grad;
  };
  struct Bucket {
    Ref<Storage> storage;               // Null if the bucket is sparse.
    std::unique_ptr<SparseSum> sparse;  // Null if the bucket is dense.
    std::vector<std::size_t> members;   // The indices of its members, in the order of the layout.
    std::int64_t trace_sequence = 0;
    Work work;
    // The bucket as the communication hook sees it; null without a hook.
    std::unique_ptr<HookBucket> hooked;
  };

  // How far this rank has got, as far as that cannot be reconstructed later (T1).
  struct ProgressSnapshot {
    FlightRecord::Doing doing = FlightRecord::Doing::kIdle;
    std::int64_t pass = 0;
    std::size_t next_bucket = 0;
    std::optional<Failure> failure;  // This rank's own failure; the first cause is in poison_.
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
  // Calls `call` with the gradient of each replica of the parameter, in the order of the replicas.
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
  void leave_join();
  Status shadow(JoinEvent event);
  Status shadow_pass(bool agrees);
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
  void start_pass(Pass& pass) LOCKSTEP_REQUIRES(mutex_);
  void end_pass();
  Status end_backward();
  Status backward_failed(Status status);
  Status finalize();

  void find_unused(Pass& pass) LOCKSTEP_REQUIRES(mutex_);
  bool after_backward() const { return options_.schedule == Schedule::kAfterBackward; }
  bool rebuilds() const {
    return options_.rebuild_buckets && !options_.pinned_layout && !after_backward();
  }
  ProcessGroup& backward_group() const {
    const bool apart = after_backward() && membership_.backward_group != nullptr;
    return apart ? *membership_.backward_group : *membership_.group;
  }
  // The core, where no hook can use it: before the reducer has hooks, between two backwards, and
  // when the running one has ended.
  core::PassCore& idle_core() LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
    LOCKSTEP_CHECK(running_task_ == nullptr);
    return core_;
  }
  bool can_complete_later();
  bool tracks_use() const { return options_.find_unused_parameters || options_.static_graph; }
  void note_ready(const ReducedParameter& reduced);
  void note_copied_to_bucket(const ReducedParameter& reduced) LOCKSTEP_REQUIRES(mutex_);
  bool grad_is_bucket_view(const ReducedParameter& reduced) const;
  Failure ready_twice(std::size_t index) LOCKSTEP_REQUIRES(mutex_);
  Status arriving_locally(std::size_t index) LOCKSTEP_REQUIRES(mutex_);
  void suspend_pass();
  Status mark_ready(ReducedParameter& reduced) LOCKSTEP_REQUIRES(mutex_);
  Status copy_unused_grads() LOCKSTEP_REQUIRES(mutex_);
  Status mark_unused_ready(ReducedParameter& reduced) LOCKSTEP_REQUIRES(mutex_);
  Status copy_grad_to_bucket(ReducedParameter& reduced);
  Status copy_dense_grad_to_bucket(ReducedParameter& reduced, double factor);
  void alias_grad_to_bucket(ReducedParameter& reduced);
  void pack_bucket(const Bucket& bucket);
  Status detach_misplaced_views() LOCKSTEP_REQUIRES(mutex_);
  Status detach_from_bucket(Parameter& parameter) const;
  void sum_replicas(ReducedParameter& reduced, double factor);
  static void wait_for(const ReplicaGradient& replica, Device& device);
  Result<Tensor> all_entries(const ReducedParameter& reduced) const;
  Failure requires_grad(const ReplicaGradient& replica, std::size_t bucket) const;
  Status save_stale_grad(ReducedParameter& reduced);
  Status mark_remaining_ready(bool agrees, bool& all_ready);
  void stop_listening() LOCKSTEP_EXCLUDES(mutex_);
  Status agree_on_use();
  Status usage_changed() const LOCKSTEP_REQUIRES(mutex_);
  Status launch_ready_buckets() LOCKSTEP_REQUIRES(mutex_);
  Status launch_bucket(std::size_t b);
  Status finish_bucket(std::size_t b);
  Status copy_bucket_to_grads(const Bucket& bucket, bool& usage_pending);
  Status finish_sparse(std::size_t b);
  Status launch_usage_map();
  Status launch(Collective& collective, Work& work, TraceEntry::What what, std::int64_t& sequence);
  Status await(Work& work, std::int64_t trace_sequence, int bucket);
  void close_trace(std::int64_t sequence, const Status& status);
  double factor_of(DType dtype) const { return scale_.of(dtype); }
  // The factor that scales gradients when they are copied to a bucket. It is 1 where a
  // communication hook (G4) or the group's sum scales them instead.
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
  Status start_hook(std::size_t b) LOCKSTEP_REQUIRES(mutex_);
  Status finish_hook(std::size_t b);
  Status hook_failed(Status status, std::size_t b) const;
  Status hook_never_ended(std::size_t b) const;
  Status copy_bucket_to_grad(ReducedParameter& reduced);
  void restore_stale_grad(ReducedParameter& reduced);
  void drop_stale_grad(ReducedParameter& reduced);
  void open_pass();
  void close_pass(bool complete);

  ProgressSnapshot progress() const LOCKSTEP_EXCLUDES(mutex_);
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

  ReducerOptions options_;  // These do not change after construction.
  Membership membership_;
  // Identifies this reducer's collectives. It is the sequence number, in the group, of the
  // collective with which the ranks agreed at construction, so that two reducers on one group
  // cannot mistake each other's sums for their own (F3).
  std::int64_t reducer_id_ = kNone;
  GradientScale scale_;

  std::optional<ModuleState> state_;
  bool window_open_ = false;  // True once the first forward of the sync window has run (S3).
  // True once the other replicas have received buffers in this group (P15).
  bool is_copied_ = false;
  std::vector<ParameterInfo> infos_;    // Every distinct parameter, frozen ones included.
  std::vector<std::string> agreement_;  // The lines that ranks compare at construction.
  Layout layout_;
  std::vector<ReducedParameter> reduced_parameters_;
  std::vector<FurtherReplica> further_replicas_;  // The gradients of the replicas beyond the first.
  std::vector<Bucket> buckets_;
  // The transfers of the bucket that is being packed or unpacked; its capacity suffices for any
  // bucket.
  std::vector<Transfer> transfers_;

  // A thread takes this mutex before the lock of the process group. Hooks hold it while a backward
  // runs. Members that do not name it belong to the thread that trains; hooks use some of them, one
  // at a time, while that thread is inside the backward.
  mutable platform::Mutex mutex_{"reducer"};
  Ref<Pass> pass_;         // The pass that is open or running; null if there is none.
  Ref<Pass> closed_pass_;  // The previous pass, whose memory is used again.
  // The outermost backward of the running pass that runs now.
  GraphTask* running_task_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
  std::int64_t next_pass_ = 0;
  // Decides what is ready, and what is launched next.
  core::PassCore core_ LOCKSTEP_GUARDED_BY(mutex_);
  std::int64_t launched_ = 0;
  // True if the unused parameters of the running pass have been marked, or if no pass runs.
  platform::Atomic<bool> unused_marked_{true};
  // The parameters in the order in which they became ready in the first pass.
  std::vector<std::int32_t> ready_order_;
  bool recorded_ = false;               // True once that pass is complete.
  bool rebuilt_ = false;                // True once the buckets follow that order.
  std::optional<JoinOptions> joining_;  // Set between begin_join() and end_join().
  // One entry for each rank: 1 if the rank trained in the last event.
  std::vector<std::int32_t> active_;
  std::vector<std::int32_t> join_state_;
  bool shadowing_ = false;  // True while this rank shadows a pass of other ranks.
  std::vector<std::int32_t> usage_map_;
  Work usage_work_;
  std::int64_t usage_sequence_ = 0;
  Trace trace_;
  PassClock clock_;
  Status poison_;
  Status
      // Memory for one failure, so that a reducer can always be poisoned, even when memory has run
      // out.
      reserve_;
  // The progress at the last failure, until a pass begins.
  std::optional<ProgressSnapshot> failed_at_;
  GradientSearch search_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
