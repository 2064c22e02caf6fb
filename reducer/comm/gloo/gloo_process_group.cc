#include "reducer/comm/gloo/gloo_process_group.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "reducer/base/check.h"
#include "reducer/base/float_environment.h"
#include "reducer/comm/gloo/agreement.h"
#include "reducer/comm/gloo/collectives.h"
#include "reducer/comm/gloo/gloo_errors.h"
#include "reducer/comm/gloo/gloo_frames.h"
#include "reducer/comm/gloo/mesh.h"
#include "reducer/comm/gloo/sigpipe.h"
#include "reducer/comm/operation_ring.h"
#include "reducer/comm/reduce_functions.h"
#include "reducer/comm/shared_collectives.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr int kMaxWorkers = static_cast<int>(Agreement::kWindow);
constexpr int kLooks = 10;  // of the watchdog, within a timeout
constexpr platform::Duration kShortestRollCall = std::chrono::milliseconds(100);
constexpr platform::Duration kLongestRollCall = std::chrono::seconds(1);

}  // namespace

// The life of an operation: start() puts it at tail_, a worker takes it at next_, and when it and
// all before it have ended, head_ moves past it. The three are counts that only grow.
class GlooProcessGroup::Impl {
 public:
  Impl(std::shared_ptr<GlooContext> context, const GlooOptions& options);
  ~Impl();

  Status start(const Collective& collective, Work& work);
  void abort(const Status& cause) { mesh().abort(cause); }
  // A group of one rank has no sum in which to scale, and a bcube adds in more than one step.
  bool can_scale(DType dtype) const {
    return mesh().size() > 1 && options_.algorithm == GlooOptions::Algorithm::kRing &&
           scaled_sum_function(dtype) != nullptr;
  }

  Mesh& mesh() const { return context_->mesh(); }
  const GlooOptions& options() const { return options_; }
  std::uint64_t progress() const { return progress_.steps(); }
  const std::shared_ptr<GlooContext>& context() const { return context_; }

 private:
  struct Operation {
    Collective collective;
    Work* work = nullptr;
    std::int64_t sequence = 0;
    Mesh::Tags tags;
    int worker = kNone;
    bool has_ended = false;
  };
  struct Worker {
    Waiter waiter;
    std::shared_ptr<::gloo::Context> context;
    std::vector<std::byte> scratch;
    FrameMemory frames;
    platform::Thread thread;
  };

  void begin_threads();
  void end_threads();
  Status check(const Collective& collective) const;
  bool can_scale(const Collective& collective) const {
    return collective.op == Op::kAllReduceSum && can_scale(collective.dtype);
  }
  bool asks_others(const Collective& collective) const;
  void work(int index);
  Status execute(const Operation& operation, Worker& worker);
  Status run_shared(const Operation& operation, Worker& worker);
  Status agree(const Operation& operation, Worker& worker);
  Status mismatch(const Operation& operation, int different, const Header& theirs);
  Status run_checked(const Operation& operation, Worker& worker);
  Header header_of(const Operation& operation) const;
  void watch();
  bool is_overdue() LOCKSTEP_REQUIRES(mutex_);
  Failure overdue(const Operation& operation);
  std::string held_up(const Operation& operation, int& suspect, bool has_begun);
  Standing standing();
  Failure about(const Operation& operation, Failure failure) const;
  Status ended_by_mesh(const Operation& operation) const;
  Operation& at(std::uint64_t index) LOCKSTEP_REQUIRES(mutex_) { return operations_.at(index); }

  const std::shared_ptr<GlooContext> context_;
  const GlooOptions options_;
  Progress progress_;
  std::vector<Worker> workers_;
  platform::Thread watchdog_;

  platform::Mutex mutex_{"gloo.group"};
  platform::CondVar ready_{"gloo.group.ready"};
  platform::CondVar armed_{"gloo.group.armed"};
  OperationRing<Operation> operations_ LOCKSTEP_GUARDED_BY(mutex_);
  std::uint64_t head_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t tail_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_moved_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_watchdog_idle_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

GlooProcessGroup::Impl::Impl(std::shared_ptr<GlooContext> context, const GlooOptions& options)
    : context_(std::move(context)),
      options_(options),
      // The rounds of the shared memory are for one collective after the other.
      workers_(mesh().rounds() != nullptr ? 1 : static_cast<std::size_t>(options.workers)) {
  try {
    begin_threads();
  } catch (const std::exception&) {  // The system may refuse a thread.
    end_threads();
    throw;
  }
}

void GlooProcessGroup::Impl::begin_threads() {
  LOCKSTEP_CHECK(!workers_.empty());
  LOCKSTEP_CHECK_LE(workers_.size(), std::size_t{kMaxWorkers});
  LOCKSTEP_CHECK(!watchdog_.joinable());
  const WithoutSigpipe guard;  // The threads inherit it; they write to peers that may be gone.
  mesh().set_standing([this] { return standing(); });
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.waiter.progress = &progress_;
    if (mesh().size() > 1)
      worker.context = make_worker_context(mesh().transport(), mesh().device(), mesh().loop(),
                                           mesh().board(), worker.waiter);
    worker.thread = platform::Thread("gloo.worker", [this, i] { work(static_cast<int>(i)); });
  }
  watchdog_ = platform::Thread("gloo.watchdog", [this] { watch(); });
}

void GlooProcessGroup::Impl::end_threads() {
  {
    platform::MutexLock lock(mutex_);
    is_stopping_ = true;
    ready_.notify_all();
    armed_.notify_all();
  }
  for (Worker& worker : workers_)
    if (worker.thread.joinable()) worker.thread.join();
  if (watchdog_.joinable()) watchdog_.join();
  mesh().release();
}

GlooProcessGroup::Impl::~Impl() {
  bool is_busy = false;
  {
    platform::MutexLock lock(mutex_);
    is_busy = head_ != tail_;
  }
  if (is_busy)
    mesh().abort(Status(Code::kAborted, "the group was destroyed with operations in flight"));
  end_threads();
  LOCKSTEP_CHECK_EQ(head_, tail_);  // Every Work is complete.
}

Status GlooProcessGroup::Impl::check(const Collective& collective) const {
  const auto invalid = [](const char* text) { return Status(Code::kInvalidArgument, text); };
  if (collective.op == Op::kAllReduceSum && sum_function(collective.dtype) == nullptr)
    return invalid("an all_reduce cannot sum elements of this dtype");
  if (collective.factor != 1.0 && !can_scale(collective))
    return invalid("a collective is to be scaled that this group cannot scale");
  return check_arguments(collective, mesh().size());
}

// Whether to compare headers with more ranks than the neighbours: see agreement.h.
bool GlooProcessGroup::Impl::asks_others(const Collective& collective) const {
  const bool is_ring = collective.op == Op::kAllReduceSum && !collective.verify &&
                       collective.reduction == Reduction::kNative &&
                       options_.algorithm == GlooOptions::Algorithm::kRing;
  return options_.agree && !is_ring;
}

Status GlooProcessGroup::Impl::start(const Collective& collective, Work& work) {
  LOCKSTEP_RETURN_IF_ERROR(check(collective));
  Status health = mesh().health();
  platform::MutexLock lock(mutex_);
  if (!health.ok()) {
    note_collective(health.failure(), collective, static_cast<std::int64_t>(tail_));
    return health;
  }
  LOCKSTEP_CHECK(!is_stopping_);
  LOCKSTEP_CHECK_LE(head_, next_);
  LOCKSTEP_CHECK_LE(next_, tail_);
  Operation* const place = operations_.push(head_, tail_);
  if (place == nullptr) return out_of_memory();
  Operation& operation = *place;
  operation.collective = collective;
  operation.work = &work;
  operation.sequence = static_cast<std::int64_t>(tail_);
  const bool is_shared = mesh().rounds() != nullptr;  // Then agreement sends no messages.
  operation.tags =
      mesh().begin_operation(options_.agree && !is_shared, asks_others(collective) && !is_shared);
  operation.worker = kNone;
  operation.has_ended = false;
  work.begin(operation.sequence);
  if (head_ == tail_) progress_.note();  // The time before does not count.
  ++tail_;
  ready_.notify_one();
  if (is_watchdog_idle_) armed_.notify_one();
  return Status();
}

void GlooProcessGroup::Impl::work(int index) {
  // Sums run here, and a thread inherits the settings of the application.
  const DefaultFloats floats;
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  platform::MutexLock lock(mutex_);
  for (;;) {
    ready_.wait(mutex_, platform::Deadline::never(), [this]() LOCKSTEP_REQUIRES(mutex_) {
      const bool has_next = next_ < tail_ && next_ - head_ < Agreement::kWindow;
      return has_next || (is_stopping_ && next_ == tail_);
    });
    if (next_ == tail_) return;
    Operation& operation = at(next_++);
    LOCKSTEP_CHECK_EQ(operation.worker, kNone);  // No other worker has taken it.
    LOCKSTEP_CHECK_EQ(static_cast<std::uint64_t>(operation.sequence) + 1, next_);
    LOCKSTEP_CHECK_LE(next_ - head_, Agreement::kWindow);
    operation.worker = index;
    worker.waiter.peer.store(kNone, std::memory_order_relaxed);
    progress_.note();
    lock.unlock();

    Status status = execute(operation, worker);

    lock.lock();
    // The operation leaves the ring before its owner is notified, because the owner may destroy the
    // group then.
    Work* const done = operation.work;
    LOCKSTEP_CHECK(!operation.has_ended);
    operation.has_ended = true;
    progress_.note();
    while (head_ < next_ && at(head_).has_ended) ++head_;
    if (next_ < tail_ || is_stopping_) ready_.notify_all();
    mesh().end_operation();
    lock.unlock();
    done->complete(std::move(status));
    lock.lock();
  }
}

Status GlooProcessGroup::Impl::execute(const Operation& operation, Worker& worker) {
  if (!mesh().health().ok()) return ended_by_mesh(operation);
  const Collective& collective = operation.collective;
  try {
    if (mesh().size() == 1) {
      run_alone(collective);
      return Status();
    }
    LOCKSTEP_CHECK(worker.context != nullptr);
    if (mesh().rounds() != nullptr) return run_shared(operation, worker);
    if (Status status = agree(operation, worker); !status.ok()) return status;
    worker.waiter.phase.store(Waiter::Phase::kPayload, std::memory_order_relaxed);
    if (collective.verify && collective.count > 0) return run_checked(operation, worker);
    if (collective.count > 0)
      run_collective(collective, worker.context, operation.tags.operation, options_,
                     worker.scratch);
    return Status();
  } catch (const Interrupted&) {
    return ended_by_mesh(operation);
  } catch (const std::exception& error) {
    // By now all of Gloo's buffers over the caller's memory are gone.
    const int waited_for = worker.waiter.peer.load(std::memory_order_relaxed);
    mesh().fail(about(operation, mesh().explain(error, waited_for)));
    return ended_by_mesh(operation);
  }
}

// Agrees and moves the payload through the memory that the ranks share; only a bcube, whose order
// of additions is Gloo's own, takes the connections.
Status GlooProcessGroup::Impl::run_shared(const Operation& operation, Worker& worker) {
  const Collective& collective = operation.collective;
  const bool is_bcube = collective.op == Op::kAllReduceSum && !collective.verify &&
                        collective.reduction == Reduction::kNative &&
                        options_.algorithm == GlooOptions::Algorithm::kBcube;
  worker.waiter.phase.store(Waiter::Phase::kAgreement, std::memory_order_relaxed);
  const Header mine = header_of(operation);
  std::span<const std::byte> header;
  if (options_.agree) header = std::as_bytes(std::span(&mine, 1));
  SharedCollective shared(*mesh().rounds(), worker.waiter, header, options_.max_segment_bytes);
  const CollectiveId id{options_.epoch, operation.sequence};
  switch (is_bcube ? shared.agree() : shared.run(collective, id, worker.frames)) {
    case SharedCollective::End::kDone:
      break;
    case SharedCollective::End::kInterrupted:
      throw Interrupted();
    case SharedCollective::End::kLost: {
      const int peer = worker.waiter.peer.load(std::memory_order_relaxed);
      throw std::runtime_error(mesh().error_of(peer));
    }
    case SharedCollective::End::kMismatch: {
      Header theirs;
      std::memcpy(&theirs, shared.header_of(shared.different()), sizeof theirs);
      return mismatch(operation, shared.different(), theirs);
    }
    case SharedCollective::End::kCorrupted:
      mesh().fail(about(operation, corrupted(shared.flaw(), mesh().rank())));
      return ended_by_mesh(operation);
  }
  if (is_bcube && collective.count > 0)
    run_collective(collective, worker.context, operation.tags.operation, options_, worker.scratch);
  return Status();
}

Status GlooProcessGroup::Impl::run_checked(const Operation& operation, Worker& worker) {
  GlooFrames frames(worker.context, operation.tags.operation);
  Flaw flaw;
  const CollectiveId id{options_.epoch, operation.sequence};
  if (run_verified(operation.collective, id, frames, worker.frames, flaw)) return Status();
  mesh().fail(about(operation, corrupted(flaw, mesh().rank())));
  return ended_by_mesh(operation);
}

Status GlooProcessGroup::Impl::agree(const Operation& operation, Worker& worker) {
  if (!options_.agree) return Status();
  worker.waiter.phase.store(Waiter::Phase::kAgreement, std::memory_order_relaxed);
  const Header mine = header_of(operation);
  const Mesh::Tags& tags = operation.tags;
  const bool asks_all = asks_others(operation.collective);
  mesh().with_neighbours().send(tags.neighbours, mine, worker.waiter);
  if (asks_all) mesh().with_others().send(tags.others, mine, worker.waiter);
  Header theirs;
  int different = mesh().with_neighbours().compare(tags.neighbours, worker.waiter, theirs);
  if (different == kNone && asks_all)
    different = mesh().with_others().compare(tags.others, worker.waiter, theirs);
  if (different == kNone) return Status();
  LOCKSTEP_CHECK(theirs != mine);
  return mismatch(operation, different, theirs);
}

Status GlooProcessGroup::Impl::mismatch(const Operation& operation, int different,
                                        const Header& theirs) {
  Failure failure;
  failure.code = Code::kMismatch;
  failure.suspect = different;
  failure.definite = true;
  failure.detail = "rank " + std::to_string(mesh().rank()) + " entered " +
                   describe(header_of(operation)) + "; rank " + std::to_string(different) +
                   " entered " + describe(theirs);
  mesh().fail(about(operation, std::move(failure)));
  return mesh().health();
}

Header GlooProcessGroup::Impl::header_of(const Operation& operation) const {
  Header header;
  header.collective = lockstep::header_of(operation.collective, operation.sequence);
  header.algorithm = static_cast<std::uint64_t>(options_.algorithm);
  header.epoch = options_.epoch;
  header.segment_bytes = options_.max_segment_bytes;
  return header;
}

// The deadline is one of progress: it moves with each step of any operation that runs. A worker
// takes up no more than kWindow operations from the oldest on, so an operation without progress
// stops the others, too, and then the deadline. Bytes count as progress also in the middle of a
// long message; the watchdog looks at them several times before a deadline.
void GlooProcessGroup::Impl::watch() {
  const platform::Duration span = options_.timeout / kLooks;
  platform::MutexLock lock(mutex_);
  while (!is_stopping_) {
    is_watchdog_idle_ = true;
    armed_.wait(mutex_, platform::Deadline::never(),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return is_stopping_ || head_ != tail_; });
    is_watchdog_idle_ = false;
    bytes_moved_ = mesh().bytes_moved();
    while (!is_stopping_ && head_ != tail_) {
      const platform::Duration left = options_.timeout - (platform::now() - progress_.latest());
      const bool has_limit = options_.timeout != platform::Duration::max();
      armed_.wait(
          mutex_,
          has_limit ? platform::Deadline::in(std::min(span, left)) : platform::Deadline::never(),
          [this]() LOCKSTEP_REQUIRES(mutex_) { return is_stopping_; });
      if (is_stopping_ || head_ == tail_ || !is_overdue()) continue;
      const Operation operation = at(head_);
      LOCKSTEP_CHECK(!operation.has_ended);
      lock.unlock();
      mesh().fail(overdue(operation));
      lock.lock();
      armed_.wait(mutex_, platform::Deadline::never(),
                  [this]() LOCKSTEP_REQUIRES(mutex_) { return is_stopping_; });
    }
  }
}

bool GlooProcessGroup::Impl::is_overdue() {
  const std::uint64_t bytes = mesh().bytes_moved();
  if (std::exchange(bytes_moved_, bytes) != bytes) progress_.note();
  return platform::now() - progress_.latest() >= options_.timeout;
}

Failure GlooProcessGroup::Impl::overdue(const Operation& operation) {
  Failure failure;
  failure.code = Code::kTimeout;
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count();
  failure.detail = "no progress within " + std::to_string(limit) + " ms";
  LOCKSTEP_CHECK_LT(operation.worker, static_cast<int>(workers_.size()));
  if (operation.worker != kNone) {
    const Waiter& waiter = workers_[static_cast<std::size_t>(operation.worker)].waiter;
    failure.suspect = waiter.peer.load(std::memory_order_relaxed);
    const bool has_begun = waiter.phase.load(std::memory_order_relaxed) == Waiter::Phase::kPayload;
    if (failure.suspect != kNone) failure.detail += held_up(operation, failure.suspect, has_begun);
  }
  return about(operation, std::move(failure));
}

// Describes what holds up a rank that waits for `suspect`, and sets `suspect` to the rank at which
// the chain of waits ends, or to this rank if no other one answers it.
std::string GlooProcessGroup::Impl::held_up(const Operation& operation, int& suspect,
                                            bool has_begun) {
  LOCKSTEP_CHECK_LE(0, suspect);
  LOCKSTEP_CHECK_LT(suspect, mesh().size());
  const platform::Duration limit =
      std::clamp<platform::Duration>(options_.timeout / 4, kShortestRollCall, kLongestRollCall);
  const ChainEnd end = mesh().call_roll(platform::Deadline::in(limit));
  LOCKSTEP_CHECK_LT(end.rank, mesh().size());
  const bool is_direct = end.rank == kNone || end.rank == mesh().rank();
  if (is_direct)
    return (has_begun ? "; waiting for data from or to rank "
                      : "; this collective was not entered by rank ") +
           std::to_string(suspect);
  suspect = end.is_alone ? mesh().rank() : end.rank;
  const std::string rank = "rank " + std::to_string(suspect);
  if (end.is_alone) return "; no other rank answers " + rank;
  if (!end.has_answered) return "; " + rank + " does not answer";
  if (end.started <= operation.tags.operation)
    return "; this collective was not entered by " + rank;
  if (!end.has_operation)
    return "; " + rank + " has ended this collective, and what it sent has not come";
  return "; " + rank + " has not come further, and waits for no other rank";
}

Standing GlooProcessGroup::Impl::standing() {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_LE(head_, tail_);
  Standing standing;
  standing.has_operation = head_ != tail_ ? 1 : 0;
  if (head_ == tail_ || at(head_).worker == kNone) return standing;
  const Waiter& waiter = workers_[static_cast<std::size_t>(at(head_).worker)].waiter;
  standing.waits_for = waiter.peer.load(std::memory_order_relaxed);
  return standing;
}

// Adds what is known about the operation, unless the failure came from a peer and has these fields
// already.
Failure GlooProcessGroup::Impl::about(const Operation& operation, Failure failure) const {
  if (failure.rank != kNone && failure.rank != mesh().rank()) return failure;
  failure.rank = mesh().rank();
  failure.reported_by = mesh().rank();
  note_collective(failure, operation.collective, operation.sequence);
  return failure;
}

// Returns the mesh's first cause. If that did not arise in an operation (a peer was lost, a user
// aborted), this operation is the first one that it concerns.
Status GlooProcessGroup::Impl::ended_by_mesh(const Operation& operation) const {
  Status status = mesh().health();
  LOCKSTEP_CHECK(!status.ok());
  note_collective(status.failure(), operation.collective, operation.sequence);
  if (status.failure().reported_by == kNone) status.failure().reported_by = mesh().rank();
  return status;
}

Result<std::unique_ptr<GlooProcessGroup>> GlooProcessGroup::connect(
    // NOLINTNEXTLINE(performance-unnecessary-value-param): as the other connect() takes it
    std::shared_ptr<Store> store, int rank, int size, const GlooOptions& options,
    const GlooContextOptions& connection) {
  Result<std::shared_ptr<GlooContext>> context =
      GlooContext::connect(store, rank, size, connection);
  if (!context) return failed(std::move(context.error()));
  return create(std::move(*context), options);
}

Result<std::unique_ptr<GlooProcessGroup>> GlooProcessGroup::connect(std::shared_ptr<Store> store,
                                                                    int rank, int size,
                                                                    const GlooOptions& options) {
  GlooContextOptions connection;
  connection.timeout = options.timeout;
  return connect(std::move(store), rank, size, options, connection);
}

Result<std::unique_ptr<GlooProcessGroup>> GlooProcessGroup::create(
    std::shared_ptr<GlooContext> context, const GlooOptions& options) {
  const auto invalid = [](const char* text) {
    return failed(Status(Code::kInvalidArgument, text));
  };
  if (context == nullptr) return invalid("the context of a Gloo group is null: connect one first");
  if (options.algorithm != GlooOptions::Algorithm::kRing &&
      options.algorithm != GlooOptions::Algorithm::kBcube)
    return invalid("the algorithm of a Gloo group is neither kRing nor kBcube");
  if (options.workers < 1 || options.workers > kMaxWorkers)
    return invalid("a Gloo group has 1 to 8 workers");
  if (options.timeout <= platform::Duration(0))
    return invalid("the timeout of a Gloo group must be positive");
  if (options.max_segment_bytes < 1) return invalid("max_segment_bytes must be positive");
  if (Status status = context->health(); !status.ok()) return failed(std::move(status));
  if (!context->mesh().claim()) return invalid("another group is using this Gloo context");
  try {
    return std::unique_ptr<GlooProcessGroup>(
        new GlooProcessGroup(std::make_unique<Impl>(std::move(context), options)));
  } catch (const std::system_error& error) {
    return failed(no_thread("a worker or the watchdog of a Gloo group", error.what()));
  } catch (const std::exception& error) {
    return failed(
        Status(Code::kTransport, std::string("a Gloo group cannot start: ") + error.what()));
  }
}

GlooProcessGroup::GlooProcessGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GlooProcessGroup::~GlooProcessGroup() = default;

int GlooProcessGroup::rank() const { return impl_->mesh().rank(); }
int GlooProcessGroup::size() const { return impl_->mesh().size(); }
bool GlooProcessGroup::can_reduce(DType dtype) const { return sum_function(dtype) != nullptr; }

bool GlooProcessGroup::can_scale(DType dtype) const { return impl_->can_scale(dtype); }

Status GlooProcessGroup::start(const Collective& collective, Work& work) {
  return impl_->start(collective, work);
}

void GlooProcessGroup::abort(const Status& cause) { impl_->abort(cause); }
Status GlooProcessGroup::health() const { return impl_->mesh().health(); }
platform::Duration GlooProcessGroup::timeout() const { return impl_->options().timeout; }
std::uint64_t GlooProcessGroup::progress() const { return impl_->progress(); }
const std::shared_ptr<GlooContext>& GlooProcessGroup::context() const { return impl_->context(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
