// Reducer averages the gradients of a data-parallel model while the backward pass is still running.
// reference/CONTRACT.md says, clause by clause, what it promises.
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
// The destructor ends the process by a check if a backward of a pass still runs (F5): end it first,
// for instance by abort() of the group, which any thread may call at any time.
// Ownership: parameters, group and store are shared with the caller. The outputs of a synced
// forward keep the pass alive, but not the reducer.
// Order: buckets are launched in index order, each once per pass (P3), and then any usage map (T2).
// Failure: an error after a collective was launched poisons the reducer: it refuses all work with
// the first cause, until reset() (P12). Errors name the rank, pass, bucket, parameter and suspect.
// Memory: buckets are allocated at construction. A steady pass allocates only nodes of its graph.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reducer/autograd/engine.h"
#include "reducer/bucket_store.h"
#include "reducer/collective_launcher.h"
#include "reducer/comm_hook_driver.h"
#include "reducer/core/pass_core.h"
#include "reducer/diagnosis/diagnosis.h"
#include "reducer/failure_reporter.h"
#include "reducer/module_state.h"
#include "reducer/options.h"
#include "reducer/pass_clock.h"
#include "reducer/pass_sequence.h"
#include "reducer/ready_order.h"
#include "reducer/replica_set.h"
#include "reducer/uneven_inputs.h"
#include "reducer/usage_tracker.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Reducer final : private GradientHook,
                      private HookCollectives,
                      private Broadcaster,
                      private Positioned {
 public:
  // A collective operation: every rank of the group creates its reducer, with the same parameters
  // and options in the same order (B4). If one rank refuses, all ranks return an error with that
  // rank's number and reason. A parameter that is listed several times counts once. A parameter
  // that another reducer on the same group reduces is refused (F7). All parameters must outlive it.
  static Result<std::unique_ptr<Reducer>> create(std::vector<Ref<Parameter>> parameters,
                                                 ReducerOptions options, Membership membership);
  ~Reducer() override;  // Aborts the group if a pass is only partly reduced.
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
  // values and buffers to the other replicas (P15). With kEachForward, which all ranks give alike,
  // a later call of the window broadcasts the buffers again.
  enum class Refresh : std::uint8_t { kOncePerWindow, kEachForward };
  Status refresh_state(Refresh refresh = Refresh::kOncePerWindow);
  // Call it before a forward without gradients. It copies values and buffers to the other replicas,
  // unless gradients are being accumulated (P15). No collective operation.
  Status copy_to_replicas();
  // Call it after a synced forward. It adds the forward's outputs to the pass and replaces each of
  // them by an output that refers to the pass, with the next of `numbers`. It returns kIncomplete
  // under the conditions of begin_forward(), for a backward that ran in between.
  Status arm(std::vector<Edge>& outputs, NodeNumbers& numbers);

  // Begins training with uneven inputs (S2), which lasts until end_join() or a reset. This call is
  // local; every rank makes it before the same forward.
  Status begin_join(const JoinOptions& options);
  // Says that this rank is out of inputs. Until all ranks have called it, the rank contributes
  // zeros to all that the others reduce, and applies the results. Then every rank takes the values
  // and buffers of the lowest rank that trained in the last pass or broadcast. A collective
  // operation.
  Status end_join();
  // For callers who count forwards, as PyTorch's Join does: a rank out of inputs shadows what one
  // forward of the others starts, and its pass if it is synced. A collective operation.
  Status shadow_forward(bool is_synced, bool with_buffers);
  bool sends_buffers(Refresh refresh) const;  // Whether refresh_state() would, now.
  // After a join: the rank whose values and buffers all have taken.
  int last_that_trained() const { return join_.lowest_that_trains(); }

  // Returns kIncomplete, and gives up the pass, if a pass has begun and is not complete (P5).
  Status check_complete();
  // Call it when a forward raises. Peers that then wait for this rank in vain attach the reason.
  void leave_note(std::string_view reason) const;

  // Gives up: work in flight ends, and the reducer is poisoned, if it was not. Peers receive
  // `cause` as a definite one of this rank (kUnevenInputs names a rank already). If it came up in
  // another group and names another rank of this one, that is suspected, unless it only had lost a
  // peer.
  void abort(const Status& cause);

  // Call it after a failure, or when the members change. It takes a new group, which may have fewer
  // ranks (F4), and leaves gradients alone. A collective operation of the new group.
  Status reset(Membership membership);
  // The first cause; ok if the reducer is not poisoned.
  const Status& poisoned() const { return failures_.poison(); }
  // The error of a request for memory that was refused on this rank, now. It changes nothing.
  Status memory_refused() const;
  const Layout& layout() const { return buckets_.layout(); }
  // The ready order of the rebuilt buckets, as indices into parameter_infos(); empty before.
  std::vector<std::size_t> rebuilt_order() const;
  const std::vector<ParameterInfo>& parameter_infos() const { return replicas_.infos(); }
  const Trace& trace() const { return collectives_.trace(); }
  // The times of the last pass that this rank trained in and completed (T3).
  const PassStatistics& last_pass() const { return clock_.last(); }
  // How many ranks used each trained parameter in the last pass that had a usage map.
  std::span<const std::int32_t> usage_counts() const { return usage_.counts(); }
  // The flight record of this rank (T1), of now, or of the last failure if no pass has begun since.
  // The thread that trains calls it, outside of backward. See to_text().
  FlightRecord flight_record() const;
  // Joins the flight records of all ranks after a failure: those that poisoned reducers have left
  // in the group's store (T1), and this rank's of now. It waits at most `patience` for the others,
  // and lists ranks without a record as silent. It is not a collective operation.
  Result<Diagnosis> diagnose(platform::Duration patience) const;
  // The number of collectives launched in the pass that is open, or in the last pass if none is.
  std::int64_t launched_in_pass() const { return collectives_.launched(); }
  ProcessGroup& group() { return collectives_.group(); }

 private:
  friend class Pass;
  using Bucket = BucketStore::Bucket;

  // Construction, reset, and the agreement of all ranks (reducer.cc).
  Reducer(ReducerOptions options, Membership membership);
  Status build(std::vector<Ref<Parameter>> parameters);
  Status meet_peers(Status own);
  Status agree_and_broadcast(Status own);
  Status agree_with_peers(Status own);
  Status start_over();
  Status lay_out_first();
  Status lay_out_pinned();
  Status lay_out_in_ready_order();
  Status broadcast(Device& device, std::byte* data, std::uint64_t bytes, int root) override;
  Status broadcast_state();
  Status send_buffers();

  // Passes (reducer.cc), and those that a rank without inputs shadows (join.cc).
  Status begin_pass(Pass& pass, GraphTask& task);
  void start_pass() LOCKSTEP_REQUIRES(mutex_);
  void end_pass();
  void close_pass(bool complete) LOCKSTEP_EXCLUDES(mutex_);
  void leave_backward() LOCKSTEP_EXCLUDES(mutex_);
  Result<UnevenInputs::Event> exchange_join_state(UnevenInputs::Event event);
  void leave_join();
  Status shadow(UnevenInputs::Event event);
  Status shadow_pass(bool must_agree_on_usage);

  // The path of a gradient (reduction.cc).
  Status backward_reached(GraphTask& task) override;
  Status gradient_arriving(Parameter& parameter, std::size_t index, GraphTask& task) override;
  Status gradient_ready(Parameter& parameter, std::size_t index, GraphTask& task) override;
  bool sends_by(const ProcessGroup& group) const override { return collectives_.sends_by(group); }
  Status arriving_locally(std::size_t index) LOCKSTEP_REQUIRES(mutex_);
  Status mark_ready(ReducedParameter& reduced) LOCKSTEP_REQUIRES(mutex_);
  Status copy_unused_grads() LOCKSTEP_REQUIRES(mutex_);
  void note_ready(const ReducedParameter& reduced);
  void note_copied_to_bucket(const ReducedParameter& reduced) LOCKSTEP_REQUIRES(mutex_);
  Status copy_grad_to_bucket(ReducedParameter& reduced);
  Status launch_ready_buckets() LOCKSTEP_REQUIRES(mutex_);
  Status launch_bucket(std::size_t b);
  Status launch_usage_map();
  Status end_backward();
  bool can_complete_later();
  void suspend_pass();
  Status mark_remaining_ready(bool must_agree_on_usage, bool& all_ready);
  Status agree_on_use();
  Status finalize();
  Status finish_bucket(std::size_t b);
  Status launch_rows(std::size_t b);
  Status finish_sparse(std::size_t b);
  Status copy_bucket_to_grads(const Bucket& bucket);
  Status await_usage_map();

  // Control collectives outside of passes, and the collectives of communication hooks.
  Status run_control(Collective& collective, TraceEntry::What what);
  Status start(Collective& collective, Work& work, std::int64_t& trace_sequence) override;
  Status await(Work& work, std::int64_t trace_sequence) override;
  Status start_hook(std::size_t b) LOCKSTEP_REQUIRES(mutex_);

  // Failures (failure.cc).
  TrainingPosition position() const override;
  ProgressSnapshot progress() const LOCKSTEP_EXCLUDES(mutex_);
  Failure ready_twice(std::size_t index) LOCKSTEP_REQUIRES(mutex_);
  Failure requires_grad(const ReplicaGradient& replica, std::size_t bucket) const;
  Status usage_changed() const LOCKSTEP_REQUIRES(mutex_);
  Status incomplete();
  Status with_bucket(Status status, std::size_t b) const;
  void note_failure(const Failure& failure);
  Status give_up(Status status);
  void put_first_cause_first(Failure& failure);
  Status fail(Failure failure);
  void end_group(Failure failure, const TrainingPosition& at);
  void stop_group(const Status& cause);

  bool after_backward() const { return options_.schedule == Schedule::kAfterBackward; }
  // The factor that makes a mean of the sum; and the one that scales gradients when they are copied
  // to a bucket, which is 1 where a communication hook (G4) or the group's sum scales them instead.
  double factor_of(DType dtype) const { return join_.scale().of(dtype); }
  double bucket_factor(DType dtype) const;
  bool group_scales(DType dtype) const;
  // The core, where no hook can use it, as no backward runs.
  core::PassCore& idle_core() LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS;

  // What all hooks share while a backward runs.
  struct Shared {
    core::PassCore core;                // Decides what is ready, and what is launched next.
    GraphTask* running_task = nullptr;  // The outermost backward of the running pass.
  };

  // A thread takes this mutex before the lock of the process group. Hooks hold it while a backward
  // runs. Members that do not name it belong to the thread that trains; hooks use some of them, one
  // at a time, while that thread is inside the backward.
  mutable platform::Mutex mutex_{"reducer"};
  Shared shared_ LOCKSTEP_GUARDED_BY(mutex_);
  // True if the unused parameters of the running pass have been marked, or if no pass runs.
  platform::Atomic<bool> unused_marked_{true};

  ReducerOptions options_;  // These do not change after construction.
  CollectiveLauncher collectives_;
  SyncedState state_;
  ReplicaSet replicas_;
  CommHookDriver hooks_;
  BucketStore buckets_;
  UsageTracker usage_;
  UnevenInputs join_;
  PassSequence passes_;
  ReadyOrder order_;
  PassClock clock_;
  FailureReporter failures_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
