#include "reducer/comm/nccl/nccl_process_group.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/checked_store.h"
#include "reducer/comm/nccl/nccl_group_impl.h"
#include "reducer/device/grow.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using platform::Deadline;
using platform::Duration;
using platform::MutexLock;

namespace {

// A sum in rank order has its pieces and their sum in memory of the group.
constexpr int kCopies = 4;

}  // namespace

NcclProcessGroup::Impl::Impl(const NcclApi& api, Device& device, const Stream& stream,
                             std::shared_ptr<Store> store, int rank, int size,
                             const NcclOptions& options)
    : options_(options),
      peers_(std::move(store), rank, size, options_),
      communicator_(api, device.index() - 1, peers_, options_),
      stream_(communicator_.link(), device, stream, rank, size, [this] { return settle(); }) {
  static_assert(NcclOperationQueue::kWindow <= NcclHeaderExchange::kSlots);
}

// --- Connecting.

Status NcclProcessGroup::Impl::connect() {
  const Deadline deadline = Deadline::in(options_.connect_timeout);
  Status status = stream_.reserve();
  if (!status.ok()) return peers_.report_unconnected(std::move(status));
  return communicator_.connect(deadline);
}

// NCCL does not shrink a communicator if no rank is excluded.
Status NcclProcessGroup::Impl::connect_out_of(Impl& parent, const std::vector<int>& excluded,
                                              NcclPeers::Remains own, Deadline deadline) {
  own.can_be_shrunk = own.can_be_shrunk && !excluded.empty();
  const Result<NcclPeers::Remains> all = peers_.remains_of_all(own, deadline);
  if (!all) return all.error();
  LOCKSTEP_CHECK(own.can_be_shrunk || !all->can_be_shrunk);
  LOCKSTEP_CHECK(own.is_healthy || !all->is_healthy);
  if (!all->is_healthy) parent.release_by_abort();
  if (!all->can_be_shrunk) return connect();
  const auto state = all->is_healthy ? NcclLink::Parent::kHealthy : NcclLink::Parent::kFailed;
  Status status = stream_.reserve();
  if (!status.ok()) return peers_.report_unconnected(std::move(status));
  return communicator_.shrink(parent.communicator_, state, excluded, deadline);
}

void NcclProcessGroup::Impl::release_by_abort() {
  MutexLock lock(mutex_);
  end_.release_communicator();
}

Status NcclProcessGroup::Impl::begin_threads() {
  const auto begin = [this](platform::Thread& thread, const char* name, void (Impl::*body)()) {
    LOCKSTEP_CHECK(!thread.joinable());
    {
      MutexLock lock(mutex_);
      LOCKSTEP_CHECK(!end_.is_leaving());
      end_.note_thread_begun();
    }
    try {
      thread = platform::Thread(name, [this, body] { (this->*body)(); });
    } catch (...) {
      MutexLock lock(mutex_);
      end_.note_thread_ended();
      throw;
    }
  };
  try {
    begin(threads_[0], "nccl.closer", &Impl::close);
    begin(threads_[1], "nccl.watchdog", &Impl::watch);
    begin(threads_[2], "nccl.issuer", &Impl::issue);
  } catch (const std::exception& error) {  // The system may refuse a thread.
    return Status(Code::kTransport, std::string("an NCCL group cannot start: ") + error.what());
  }
  return {};
}

bool NcclProcessGroup::Impl::shut_down() {
  MutexLock lock(mutex_);
  LOCKSTEP_CHECK(!end_.is_leaving());
  if (!queue_.is_empty() && cause_.ok())
    fail_locked(Status(Code::kAborted, "the group was destroyed with operations in flight"));
  end_.leave();
  queued_.notify_all();
  armed_.notify_all();
  closing_.notify_all();
  const Deadline bound = Deadline::in(4 * (options_.grace + options_.end_timeout));
  if (!changed_.wait(mutex_, bound,
                     [this]() LOCKSTEP_REQUIRES(mutex_) { return end_.running_threads() == 0; }))
    return false;
  LOCKSTEP_CHECK(queue_.is_empty());  // Every Work is complete.
  const bool is_stuck = end_.is_stuck();
  lock.unlock();
  for (auto thread = threads_.rbegin(); thread != threads_.rend(); ++thread)
    if (thread->joinable()) thread->join();
  if (!is_stuck) return true;
  // What took too long may have ended by now.
  return stream_.synchronize(stream_.record(), Deadline::in(options_.grace)).ok();
}

// --- Use.

Status NcclProcessGroup::Impl::check(const Collective& collective) const {
  const auto invalid = [](const char* text) { return Status(Code::kInvalidArgument, text); };
  if (collective.op == Op::kAllReduceSum && !nccl_can_sum(collective.dtype))
    return invalid("an all_reduce cannot sum elements of this dtype");
  if (collective.factor != 1.0) return invalid("an NCCL group cannot scale what it adds");
  LOCKSTEP_RETURN_IF_ERROR(check_arguments(collective, size(), kCopies));
  const Device* const device = collective.device;
  if (device != nullptr && device != &stream_.device() && !device->is_host())
    return invalid("a collective's data lies on a GPU that is not the group's");
  if (collective.ready.device != nullptr && collective.ready.device != device)
    return invalid("a collective waits for an event of another device than its data lies on");
  return Status();
}

Status NcclProcessGroup::Impl::start(const Collective& collective, Work& work) {
  LOCKSTEP_RETURN_IF_ERROR(check(collective));
  MutexLock lock(mutex_);
  if (!cause_.ok()) {
    Status refusal = cause_.status();
    note_collective(refusal.failure(), collective, queue_.started());
    return refusal;
  }
  LOCKSTEP_CHECK(!end_.is_leaving());
  LOCKSTEP_CHECK(!end_.is_finished());
  const bool was_empty = queue_.is_empty();
  Operation* const operation = queue_.push(collective, work);
  if (operation == nullptr) return out_of_memory();
  operation->deadline = Deadline::in(options_.timeout);
  operation->is_compared = !options_.agree || size() == 1;
  work.begin(operation->sequence);
  if (was_empty) armed_.notify_all();
  queued_.notify_all();
  return Status();
}

Status NcclProcessGroup::Impl::health() const {
  MutexLock lock(mutex_);
  return cause_.status();
}

void NcclProcessGroup::Impl::abort(const Status& given) {
  const Status cause = cause_of_abort(given, rank());
  MutexLock lock(mutex_);
  if (!cause_.ok()) return cause_.attach(cause.to_string());
  for_peers_ = abort_for_peers(cause, rank());
  fail_locked(cause);
}

// An idle communicator stays as it is, and nothing is published, because peers may be in the last
// collective and would take it for a failure. Otherwise the communicator must have been revoked.
NcclPeers::Remains NcclProcessGroup::Impl::end_for_shrink() {
  MutexLock lock(mutex_);
  LOCKSTEP_CHECK(!end_.is_leaving());
  if (cause_.ok()) {
    if (queue_.is_empty()) end_.keep_communicator();
    Failure failure;
    failure.code = Code::kAborted;
    failure.rank = rank();
    failure.detail = "rank " + std::to_string(rank()) + " makes a smaller group";
    fail_locked(failure);
  }
  const Deadline bound = Deadline::in(4 * (options_.grace + options_.end_timeout));
  const bool is_over = changed_.wait(
      mutex_, bound, [this]() LOCKSTEP_REQUIRES(mutex_) { return end_.is_finished(); });
  LOCKSTEP_CHECK(!is_over || queue_.is_empty());
  const bool is_healthy = end_.is_communicator_kept();
  const bool is_released = is_over && !end_.is_stuck();
  lock.unlock();
  return {is_released && communicator_.link().can_be_shrunk(), is_healthy};
}

namespace {

Status check_options(const NcclOptions& options, int rank, int size) {
  const auto invalid = [](const char* text) { return Status(Code::kInvalidArgument, text); };
  constexpr Duration kLongest = std::chrono::hours(24 * 365);
  // Less than kDrainLimit of reducer/failure.cc.
  constexpr Duration kLongestEnd = std::chrono::seconds(50);
  if (size < 1 || rank < 0 || rank >= size)
    return invalid("the rank of an NCCL group must be one of 0 to size - 1");
  for (const Duration span : {options.timeout, options.connect_timeout, options.poll,
                              options.notice, options.grace, options.end_timeout})
    if (span <= Duration(0) || span > kLongest)
      return invalid("the times of an NCCL group must be positive, and less than a year");
  if (3 * options.grace + options.end_timeout > kLongestEnd)
    return invalid(
        "the grace of an NCCL group, three times, and its end_timeout must be 50 s at most "
        "together: that is how long what is in flight may take to end after a failure, and a "
        "reducer waits a minute for it");
  if (options.name.empty()) return invalid("an NCCL group needs a name");
  return {};
}

}  // namespace

Result<std::unique_ptr<NcclProcessGroup>> NcclProcessGroup::connect(const NcclApi& api,
                                                                    Device& device,
                                                                    std::shared_ptr<Store> store,
                                                                    int rank, int size,
                                                                    const NcclOptions& options) {
  if (store == nullptr) return failed(no_store());
  if (Status status = check_options(options, rank, size); !status.ok())
    return failed(std::move(status));
  Result<Stream> stream = device.new_stream();
  if (!stream) return failed(std::move(stream.error()));
  auto impl = std::make_unique<Impl>(api, device, *stream, std::move(store), rank, size, options);
  if (Status status = impl->connect(); !status.ok()) return failed(std::move(status));
  return finish(std::move(impl));
}

Result<std::unique_ptr<NcclProcessGroup>> NcclProcessGroup::shrink(NcclProcessGroup& group,
                                                                   std::vector<int> excluded,
                                                                   std::shared_ptr<Store> store,
                                                                   const NcclOptions& options) {
  if (store == nullptr) return failed(no_store());
  Impl& parent = *group.impl_;
  // NCCL counts the entries, so a rank that is named twice would count as two.
  std::sort(excluded.begin(), excluded.end());
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  int rank = 0;
  int size = 0;
  bool is_excluded = false;
  for (int old = 0; old < parent.size(); ++old) {
    const bool is_out = std::find(excluded.begin(), excluded.end(), old) != excluded.end();
    if (old == parent.rank()) is_excluded = is_out;
    if (!is_out && old < parent.rank()) ++rank;
    if (!is_out) ++size;
  }
  const bool are_ranks = std::all_of(excluded.begin(), excluded.end(),
                                     [&](int old) { return old >= 0 && old < parent.size(); });
  if (is_excluded || !are_ranks)
    return failed(Status(Code::kInvalidArgument,
                         "who is left out of a smaller group is another rank of the old one"));
  LOCKSTEP_CHECK_EQ(static_cast<std::size_t>(size) + excluded.size(),
                    static_cast<std::size_t>(parent.size()));
  if (Status status = check_options(options, rank, size); !status.ok())
    return failed(std::move(status));
  // Making a stream is set-up, which may wait for all that runs on the GPU, so whatever hangs there
  // is ended first.
  const Deadline deadline = Deadline::in(options.connect_timeout);
  const NcclPeers::Remains remains = parent.end_for_shrink();
  Result<Stream> stream = parent.device().new_stream();
  if (!stream) return failed(std::move(stream.error()));
  auto impl = std::make_unique<Impl>(parent.api(), parent.device(), *stream, std::move(store), rank,
                                     size, options);
  if (Status status = impl->connect_out_of(parent, excluded, remains, deadline); !status.ok())
    return failed(std::move(status));
  return finish(std::move(impl));
}

Result<std::unique_ptr<NcclProcessGroup>> NcclProcessGroup::finish(std::unique_ptr<Impl> impl) {
  Status status = impl->begin_threads();
  std::unique_ptr<NcclProcessGroup> group(new NcclProcessGroup(std::move(impl)));
  if (!status.ok()) return failed(std::move(status));
  return group;
}

NcclProcessGroup::NcclProcessGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// A thread that is stuck in NCCL or the driver needs its objects until the process ends.
NcclProcessGroup::~NcclProcessGroup() {
  if (impl_->shut_down()) return;
  impl_->device().leave_to_process();
  static_cast<void>(impl_.release());
}

int NcclProcessGroup::rank() const { return impl_->rank(); }
int NcclProcessGroup::size() const { return impl_->size(); }
bool NcclProcessGroup::can_reduce(DType dtype) const { return nccl_can_sum(dtype); }
bool NcclProcessGroup::can_reach(const Device& device) const {
  return &device == &impl_->device() || device.is_host();
}
Status NcclProcessGroup::start(const Collective& collective, Work& work) {
  return impl_->start(collective, work);
}
void NcclProcessGroup::abort(const Status& cause) { impl_->abort(cause); }
Status NcclProcessGroup::health() const { return impl_->health(); }
Duration NcclProcessGroup::timeout() const { return impl_->options().timeout; }
std::uint64_t NcclProcessGroup::progress() const { return impl_->progress(); }
const char* NcclProcessGroup::origin() const { return impl_->origin(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
