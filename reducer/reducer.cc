#include "reducer/reducer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "reducer/agreement.h"
#include "reducer/base/check.h"
#include "reducer/base/status.h"
#include "reducer/comm/checked_store.h"
#include "reducer/group_checks.h"
#include "reducer/pass.h"

// Construction, passes and the public calls. The path of a gradient is in reduction.cc, failures
// are in failure.cc.
namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::size_t kMaxTraceCapacity = std::size_t{1} << 24;

// A refused allocation is a failure like any other (F1).
template <class Call>
Status guarded(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

// For calls that peers take part in. If this rank runs out of memory in one, its peers would wait
// for it, so the group ends.
template <class Call>
Status meeting(ProcessGroup& group, const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    Status cause = out_of_memory();
    cause.failure().rank = cause.failure().reported_by = group.rank();
    guarded([&] {
      group.abort(cause);
      return Status();
    }).ignore();
    return cause;
  }
}

Status no_group() {
  return {Code::kInvalidArgument, "the process group is null: connect one first"};
}

Status check_options(const ReducerOptions& options) {
  const auto invalid = [](std::string text) {
    return Status(Code::kInvalidArgument, std::move(text));
  };
  if (options.reduction > Reduction::kRankOrdered)
    return invalid("reduction is neither kNative nor kRankOrdered");
  if (options.schedule > Schedule::kAfterBackward)
    return invalid("schedule is neither kOverlapped nor kAfterBackward");
  if (options.trace_capacity == 0 || options.trace_capacity > kMaxTraceCapacity)
    return invalid("trace_capacity is " + std::to_string(options.trace_capacity) +
                   ": keep at least one collective, and at most " +
                   std::to_string(kMaxTraceCapacity));
  if (options.static_graph && options.find_unused_parameters)
    return invalid(
        "static_graph finds unused parameters by itself: turn find_unused_parameters off");
  if (options.skip_unused_buckets && !options.find_unused_parameters)
    return invalid("skip_unused_buckets needs find_unused_parameters: turn that on, too");
  if (options.verify_payload && options.reduction == Reduction::kNative)
    return invalid(
        "verify_payload checks sums in rank order, not those of the transport: set reduction to "
        "kRankOrdered");
  return {};
}

core::Mode mode_of(const ReducerOptions& options) {
  if (options.static_graph) return core::Mode::kStatic;
  return options.find_unused_parameters ? core::Mode::kDynamic : core::Mode::kPlain;
}

core::LaunchTime launch_time_of(const ReducerOptions& options) {
  return options.schedule == Schedule::kAfterBackward ? core::LaunchTime::kAfterBackward
                                                      : core::LaunchTime::kWhenReady;
}

}  // namespace

// Members are declared so that the groups outlive the buckets, whose memory they work on.
Reducer::Reducer(ReducerOptions options, Membership membership)
    : shared_{core::PassCore(mode_of(options), launch_time_of(options)), nullptr},
      options_(std::move(options)),
      collectives_(std::move(membership), options_, *this),
      hooks_(options_.hook, *this),
      buckets_(replicas_, options_),
      usage_(mode_of(options_), replicas_) {}

core::PassCore& Reducer::idle_core() {
  LOCKSTEP_CHECK(shared_.running_task == nullptr);
  return shared_.core;
}

// If this rank cannot make a reducer, it sends the reason to its peers, who would otherwise wait
// for it.
Result<std::unique_ptr<Reducer>> Reducer::create(std::vector<Ref<Parameter>> parameters,
                                                 ReducerOptions options, Membership membership) {
  if (membership.group == nullptr) return failed(no_group());
  const std::shared_ptr<ProcessGroup> group = membership.group;
  std::unique_ptr<Reducer> reducer;
  Status status = guarded([&]() -> Status {
    if (membership.store == nullptr) return no_store();
    LOCKSTEP_RETURN_IF_ERROR(check_options(options));
    reducer.reset(new Reducer(std::move(options), std::move(membership)));
    return reducer->build(std::move(parameters));
  });
  status = meeting(*group, [&]() -> Status {
    if (!reducer) return agree_to_go_on(*group, std::move(status));
    return reducer->meet_peers(std::move(status));
  });
  if (!status.ok()) return failed(std::move(status));
  return reducer;
}

// At construction and after a reset. If the group ends meanwhile, all ranks name the first cause,
// as in a step. A refusal leaves the group as it is (B4).
Status Reducer::agree_and_broadcast(Status own) {
  LOCKSTEP_CHECK(!own.ok() || !passes_.current());
  LOCKSTEP_CHECK(!own.ok() || !failures_.is_poisoned());
  Status status = agree_with_peers(std::move(own));
  if (status.ok()) return broadcast_state();
  const bool has_ended = concerns_group(status.code()) || status.failure().sequence != kNone;
  if (!has_ended) return status;
  // No pass is next: on a group that has had other reducers, peers may be in a pass of theirs.
  TrainingPosition before_passes = position();
  before_passes.next_pass = kNone;
  annotate(before_passes, status.failure(), kNone);
  end_group(std::move(status.failure()), before_passes);
  return failures_.copy_of_poison();
}

Status Reducer::meet_peers(Status own) {
  LOCKSTEP_RETURN_IF_ERROR(agree_and_broadcast(std::move(own)));
  for (std::size_t i = 0; i < replicas_.gradient_count(); ++i)
    replicas_.gradient(i).parameter->add_hook(this, i);
  return {};
}

Status Reducer::build(std::vector<Ref<Parameter>> parameters) {
  Result<std::vector<Ref<Parameter>>> distinct = replicas_.build(parameters, options_);
  if (!distinct) return distinct.error();
  core::PassCore& core = idle_core();
  for (const ReducedParameter& reduced : replicas_) {
    core.add_parameter();
    for (std::uint32_t i = 0; i < reduced.further_replica_count; ++i) core.add_replica();
  }
  LOCKSTEP_CHECK_EQ(core.gradient_count(), replicas_.gradient_count());
  usage_.start();
  state_.module.emplace(*distinct, options_.buffers, options_.broadcast_chunk_bytes);
  LOCKSTEP_RETURN_IF_ERROR(state_.module->add_replicas(parameters, options_.replicas));
  clock_.reserve(replicas_.infos().size(), replicas_.size());
  if (!options_.pinned_layout) LOCKSTEP_RETURN_IF_ERROR(lay_out_first());
  return start_over();
}

// Makes the layout that a group begins with: the pinned one, or that of B1 and B2.
Status Reducer::lay_out_first() {
  LOCKSTEP_CHECK(!passes_.current());  // No collective of a pass uses the buckets' memory.
  if (options_.pinned_layout) {
    LOCKSTEP_RETURN_IF_ERROR(check_layout(*options_.pinned_layout, replicas_.infos()));
    return buckets_.lay_out(*options_.pinned_layout, hooks_, idle_core());
  }
  const std::vector<std::uint64_t> coalesced(1, options_.coalesced_bytes);
  Result<Layout> layout =
      assign_buckets(replicas_.infos(), after_backward() ? coalesced : options_.bucket_limits);
  if (!layout) return layout.error();
  return buckets_.lay_out(std::move(*layout), hooks_, idle_core());
}

// Either all ranks continue, or none does: `own` is the reason why this rank cannot, or ok.
Status Reducer::agree_with_peers(Status own) {
  LOCKSTEP_CHECK(!own.ok() || state_.module.has_value());
  LOCKSTEP_CHECK(!own.ok() || !replicas_.agreement().empty());  // Its first line: the options.
  if (own.ok()) own = check_group(collectives_, options_, replicas_, *state_.module, this);
  std::vector<std::string> lines = replicas_.agreement();
  const bool is_apart = &collectives_.backward_group() != &collectives_.group();
  if (own.ok())
    lines.insert(lines.begin() + 1,
                 is_apart ? "a backward group of its own" : "no backward group of its own");
  LOCKSTEP_RETURN_IF_ERROR(
      agree(collectives_.group(), lines, std::move(own), collectives_.reducer_id()));
  if (is_apart)
    LOCKSTEP_RETURN_IF_ERROR(agree_on_ranks(collectives_.group(), collectives_.backward_group()));
  if (options_.pinned_layout) LOCKSTEP_RETURN_IF_ERROR(lay_out_pinned());
  return {};
}

// Lays out the pinned buckets after all ranks know that they have the same layout: then all refuse
// it, or none does, unless a rank has no memory for it. A rank that resets, and has the buckets
// already, takes part too, because another rank may be constructing its reducer meanwhile.
Status Reducer::lay_out_pinned() {
  Status own;
  if (buckets_.empty()) own = guarded([this] { return lay_out_first(); });
  return agree_to_go_on(collectives_.group(), std::move(own));
}

// Restores the state of a reducer that has seen no pass in its group.
Status Reducer::start_over() {
  close_pass(false);
  passes_.start_over();
  // These come first, as the layout may be refused memory, and nothing of the old group may be told
  // of the new one.
  collectives_.forget_passes();
  failures_.start_over();
  if (order_.is_rebuilt() || buckets_.lacks_memory()) LOCKSTEP_RETURN_IF_ERROR(lay_out_first());
  order_.start_over(replicas_.size());
  state_.start_over();
  idle_core().forget_passes();
  join_.end();
  hooks_.start_over();
  clock_.forget_last();
  LOCKSTEP_CHECK(!order_.is_rebuilt());
  LOCKSTEP_CHECK(!failures_.is_poisoned());
  return {};
}

Reducer::~Reducer() {
  {
    platform::MutexLock lock(mutex_);
    LOCKSTEP_CHECK(shared_.running_task == nullptr &&
                   "a reducer is destroyed while a backward uses it");
  }
  for (std::size_t i = 0; i < replicas_.gradient_count(); ++i)
    replicas_.gradient(i).parameter->remove_hook(this);
  if (passes_.is_running() && collectives_.launched() > 0)
    stop_group(failures_.reserved(Code::kAborted, "destroyed mid-pass"));
  close_pass(false);
}

Status Reducer::begin_forward() try {
  if (failures_.is_poisoned()) return failures_.refusal();
  return check_complete();
} catch (const std::bad_alloc&) {
  return memory_refused();
}

Status Reducer::check_complete() try {
  {
    platform::MutexLock lock(mutex_);
    if (!passes_.is_running()) return {};
    if (shared_.running_task != nullptr) {
      Failure failure =
          describe(position(), Code::kInvalidArgument,
                   "a forward with gradients was called inside of a backward of the pass: "
                   "recompute what a checkpoint needs by the module itself");
      failure.definite = true;  // A node may return it as the error of the backward (P12).
      return failure;
    }
  }
  return give_up(incomplete());
} catch (const std::bad_alloc&) {
  return memory_refused();
}

Status Reducer::rebuild_buckets() try {
  const bool rebuilds = options_.rebuild_buckets && !options_.pinned_layout && !after_backward();
  if (!rebuilds || !order_.is_rebuild_due() || replicas_.empty()) return {};
  if (passes_.current()) return {};  // Further forwards of a pass use the same buckets.
  if (join_.is_joining())
    if (Result<UnevenInputs::Event> event = exchange_join_state(UnevenInputs::Event::kRebuild);
        !event)
      return event.error();
  return lay_out_in_ready_order();
} catch (const std::bad_alloc&) {
  return fail(std::move(out_of_memory().failure()));  // Peers may have rebuilt their buckets.
}

Status Reducer::lay_out_in_ready_order() {
  LOCKSTEP_CHECK(!passes_.current());  // No collective of a pass uses the buckets' memory.
  // All ranks take rank 0's order.
  Collective collective;
  collective.op = Op::kBroadcast;
  collective.dtype = DType::kInt32;
  collective.count = order_.span().size();
  collective.data = reinterpret_cast<std::byte*>(order_.span().data());
  collective.pass = passes_.next();
  if (Status status = run_control(collective, TraceEntry::What::kOrder); !status.ok())
    return fail(std::move(status.failure()));
  std::vector<std::size_t> order;
  for (const std::int32_t reduced : order_.span()) {
    const auto index = static_cast<std::size_t>(reduced);
    order.push_back(index < replicas_.size() ? replicas_[index].info : replicas_.infos().size());
  }
  Result<Layout> layout = assign_buckets_in_order(replicas_.infos(), options_.bucket_limits, order);
  if (!layout) return fail(std::move(layout.error().failure()));
  buckets_.free_unused_memory();
  if (Status status = buckets_.lay_out(std::move(*layout), hooks_, idle_core()); !status.ok())
    return fail(std::move(status.failure()));
  order_.mark_rebuilt();
  return {};
}

Status Reducer::broadcast(Device& device, std::byte* data, std::uint64_t bytes, int root) {
  LOCKSTEP_CHECK_GE(root, 0);
  LOCKSTEP_CHECK_LT(root, collectives_.size());
  Collective collective;
  collective.device = &device;
  collective.ready = device.record(device.current_stream());
  collective.op = Op::kBroadcast;
  collective.dtype = DType::kByte;
  collective.count = bytes;
  collective.root = root;
  collective.data = data;
  collective.pass = passes_.next();
  return run_control(collective, TraceEntry::What::kState);
}

// At construction and after a reset, all ranks take the state of rank 0. A failure ends the use of
// the memory that was being sent.
Status Reducer::broadcast_state() {
  Status status = state_.module->broadcast_all(*this, collectives_.rank(), 0);
  return status.ok() ? status : fail(std::move(status.failure()));
}

Status Reducer::refresh_state(Refresh refresh) try {
  if (state_.is_window_open && refresh == Refresh::kOncePerWindow) return {};
  if (sends_buffers(refresh)) {
    if (join_.is_joining())
      if (Result<UnevenInputs::Event> event = exchange_join_state(UnevenInputs::Event::kBuffers);
          !event)
        return event.error();
    LOCKSTEP_RETURN_IF_ERROR(send_buffers());
  }
  Status status = copy_to_replicas();
  state_.is_window_open = true;
  return status.ok() ? status : fail(std::move(status.failure()));  // Peers continue.
} catch (const std::bad_alloc&) {
  return fail(std::move(out_of_memory().failure()));  // Peers wait for this rank.
}

bool Reducer::sends_buffers(Refresh refresh) const {
  if (state_.is_window_open && refresh == Refresh::kOncePerWindow) return false;
  return options_.broadcast_buffers && state_.module->has_buffers();
}

Status Reducer::copy_to_replicas() try {
  if (state_.is_window_open) return {};
  const bool with_buffers = !state_.is_copied || options_.broadcast_buffers;
  LOCKSTEP_RETURN_IF_ERROR(state_.module->copy_to_replicas(with_buffers));
  state_.is_copied = true;
  return {};
} catch (const std::bad_alloc&) {
  return memory_refused();
}

// The root is the lowest rank that trains: under a join rank 0 may be out of inputs, and its
// buffers are then as old as its last forward (S2).
Status Reducer::send_buffers() {
  const int root = join_.is_joining() ? join_.lowest_that_trains() : 0;
  Status status = state_.module->broadcast_buffers(*this, collectives_.rank(), root);
  return status.ok() ? status : fail(std::move(status.failure()));
}

std::vector<std::size_t> Reducer::rebuilt_order() const {
  std::vector<std::size_t> order;
  if (!order_.is_rebuilt()) return order;
  for (const std::int32_t reduced : order_.span())
    order.push_back(replicas_[static_cast<std::size_t>(reduced)].info);
  return order;
}

Status Reducer::arm(std::vector<Edge>& outputs, NodeNumbers& numbers) try {
  LOCKSTEP_RETURN_IF_ERROR(check_complete());  // A backward may have run inside the forward.
  if (outputs.empty()) return {};
  if (!passes_.current()) passes_.open(this, collectives_.rank());
  LOCKSTEP_CHECK(passes_.current()->state == Pass::State::kOpen);
  clock_.arm();
  if (options_.find_unused_parameters) {
    std::vector<Edge> inputs(std::make_move_iterator(outputs.begin()),
                             std::make_move_iterator(outputs.end()));
    const Ref<Node> shared(new PassOutput(passes_.current(), std::move(inputs), numbers.next()));
    for (std::uint32_t reduced = 0; reduced < outputs.size(); ++reduced)
      outputs[reduced] = {shared, reduced};
    return {};
  }
  for (Edge& output : outputs) {
    std::vector<Edge> input;
    input.push_back(std::move(output));
    output = {Ref<Node>(new PassOutput(passes_.current(), std::move(input), numbers.next())), 0};
  }
  return {};
} catch (const std::bad_alloc&) {
  outputs.clear();  // Some outputs may refer to the pass, and others not.
  return memory_refused();
}

Status Reducer::reset(Membership membership) try {
  if (membership.group == nullptr) return no_group();
  if (membership.store == nullptr) {
    ProcessGroup& group = *membership.group;
    Status status = meeting(group, [&group] { return agree_to_go_on(group, no_store()); });
    failures_.set_poison(status);
    return status;
  }
  if (passes_.is_running() && collectives_.launched() > 0)
    stop_group(CollectiveLauncher::moved_on());
  else
    collectives_.leave_for(membership);
  collectives_.move_to(std::move(membership));
  Status own = guarded([this] { return start_over(); });
  Status status = meeting(collectives_.group(),
                          [&]() -> Status { return agree_and_broadcast(std::move(own)); });
  if (status.code() == Code::kOutOfMemory) complete(position(), status.failure());
  if (!status.ok()) failures_.set_poison(status);
  return status;
} catch (const std::bad_alloc&) {
  failures_.set_poison(memory_refused());
  return failures_.copy_of_poison();
}

// The engine calls this, through the pass, before any node of the backward runs.
Status Reducer::begin_pass(Pass& pass, GraphTask& task) {
  platform::MutexLock lock(mutex_);
  if (failures_.is_poisoned()) return failures_.poison();
  if (shared_.running_task == &task.outermost()) return {};
  LOCKSTEP_CHECK(&pass == passes_.current().get());
  const bool opens = pass.state == Pass::State::kOpen;
  // This comes first, so that the pass is notified of whatever fails from here on.
  task.outermost().at_end(&pass);
  if (opens && join_.is_joining()) {
    const platform::MutexUnlock unlocked(mutex_);  // No other backward of this pass runs yet.
    if (Result<UnevenInputs::Event> event = exchange_join_state(UnevenInputs::Event::kPass); !event)
      return event.error();
  }
  if (opens) {
    start_pass();
    if (options_.find_unused_parameters)  // The outputs that are alive now count.
      shared_.core.set_reachable(usage_.search().reachable_from(pass));
  }
  LOCKSTEP_RETURN_IF_ERROR(buckets_.detach_misplaced_views(shared_.core));
  shared_.running_task = &task.outermost();
  shared_.core.on_backward_begin();
  return {};
}

void Reducer::start_pass() {
  LOCKSTEP_CHECK(!failures_.is_poisoned());
  LOCKSTEP_CHECK(shared_.running_task == nullptr);
  passes_.start();
  if (!join_.is_joining()) join_.divide_by(collectives_.size());
  failures_.forget_progress();
  collectives_.begin_pass(join_.is_joining() ? 1 : 0);  // Counts the exchange of the join state.
  shared_.core.begin_pass();
  unused_marked_ = false;
  for (ReducedParameter& reduced : replicas_) reduced.to_pack = false;
  for (Bucket& bucket : buckets_) bucket.is_skipped = false;
  order_.begin_pass();
  clock_.begin_pass(replicas_.infos().size(), buckets_.size());
}

void Reducer::close_pass(bool complete) {
  if (!complete) leave_backward();
  buckets_.restore_stale_grads();
  passes_.close(complete);
}

// A pass that failed may do so inside of a backward. Hooks that run from here on are those of a
// local one.
void Reducer::leave_backward() {
  platform::MutexLock lock(mutex_);
  shared_.running_task = nullptr;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
