#include "reducer/comm/nccl/nccl_process_group.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <string_view>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/nccl/nccl_group_impl.h"
#include "reducer/device/grow.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

using platform::Deadline;
using platform::Duration;
using platform::MutexLock;

namespace {

// Begins the message of rank 0 that has the id. No encoded failure begins with it.
constexpr std::string_view kIdFollows = "id:";

}  // namespace

NcclProcessGroup::Impl::Impl(const NcclApi& api, Device& device, const Stream& stream,
                             std::shared_ptr<Store> store, int rank, int size,
                             const NcclOptions& options)
    : device_(device),
      stream_(stream),
      store_(std::move(store)),
      rank_(rank),
      size_(size),
      options_(options),
      link_(api, options.poll, device.index() - 1),
      payload_(link_, device, stream, rank, size),
      frames_(payload_, device, stream, rank, size, [this] { return settle(); }),
      compared_(static_cast<std::size_t>(size)),
      failure_key_(key("failure")) {}

Status NcclProcessGroup::Impl::reserve() {
  const std::size_t bytes = kWindow * static_cast<std::size_t>(size_) * sizeof(CollectiveHeader);
  LOCKSTEP_RETURN_IF_ERROR(headers_.grow(device_, stream_, bytes));
  LOCKSTEP_RETURN_IF_ERROR(grow(device_, told_, bytes));
  return grow(device_, heard_, bytes);
}

// --- Connecting.

// The message of rank 0 in place of an id, which says why there is none.
std::string NcclProcessGroup::Impl::instead_of_id(Failure failure) const {
  failure.rank = rank_;
  return encode(failure);
}

Status NcclProcessGroup::Impl::make_id(NcclUniqueId& id) {
  const NcclResult result = api().get_unique_id(&id);
  const Status status = link_.checked("ncclGetUniqueId", result);
  const std::string bytes = status.ok()
                                ? std::string(kIdFollows).append(id.internal, sizeof id.internal)
                                : instead_of_id(status.failure());
  const Result<bool> is_new = store_->set(key("id"), bytes);
  LOCKSTEP_RETURN_IF_ERROR(status);
  if (!is_new) return is_new.error();
  if (*is_new) return {};
  return Status(Code::kInvalidArgument, "another NCCL group was made under the name '" +
                                            options_.name +
                                            "' in this store: give each group its own");
}

Status NcclProcessGroup::Impl::meet(NcclUniqueId& id, Deadline deadline) {
  static_cast<void>(store_->set(key("here/") + std::to_string(rank_), "here"));
  if (rank_ == 0) {
    LOCKSTEP_RETURN_IF_ERROR(make_id(id));
  } else {
    const Result<std::string> bytes = store_->get(key("id"), deadline);
    if (!bytes) {
      Failure failure = bytes.error().failure();
      failure.suspect = 0;
      return failure;
    }
    const bool has_id = bytes->starts_with(kIdFollows);
    if (!has_id || bytes->size() != kIdFollows.size() + sizeof id.internal) return told(*bytes);
    std::memcpy(id.internal, bytes->data() + kIdFollows.size(), sizeof id.internal);
  }
  id_ = 0xcbf29ce484222325u;
  for (const char c : id.internal) id_ = (id_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return {};
}

Failure NcclProcessGroup::Impl::late() {
  Failure failure;
  failure.code = Code::kTimeout;
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.connect_timeout);
  failure.detail =
      "the ranks' communicator was not made within " + std::to_string(limit.count()) + " ms";
  for (int peer = 0; peer < size_; ++peer) {
    const Result<bool> is_here = store_->contains(key("here/") + std::to_string(peer));
    if (!is_here || *is_here) continue;
    if (failure.suspect == kNone) failure.suspect = peer;
    failure.detail += "; rank " + std::to_string(peer) + " has not come";
  }
  return failure;
}

Status NcclProcessGroup::Impl::give_up(Deadline deadline) {
  if (platform::now() >= next_notice_) LOCKSTEP_RETURN_IF_ERROR(look_in_store());
  return deadline.passed() ? Status(late()) : Status();
}

// Notifies the other ranks, so that they do not wait for a rank that gave up. It is called before
// the communicator ends, as other ranks may have theirs already, and would otherwise see a peer
// leave that has named no cause.
Status NcclProcessGroup::Impl::report_unconnected(Status status) {
  LOCKSTEP_CHECK(!status.ok());
  Failure& failure = status.failure();
  // The failure came from a peer.
  if (failure.rank != kNone && failure.rank != rank_) return status;
  failure.rank = rank_;
  failure.reported_by = rank_;
  const Failure own = failure;
  publish(status, own);
  return status;
}

Status NcclProcessGroup::Impl::connect() {
  const Deadline deadline = Deadline::in(options_.connect_timeout);
  NcclUniqueId id{};
  origin_ = "ncclCommInitRankConfig";
  Status status = reserve();
  if (status.ok()) status = meet(id, deadline);
  if (!status.ok()) return report_unconnected(std::move(status));
  return link_.init(
      id, rank_, size_, [&] { return give_up(deadline); },
      [&](Status error) { return report_unconnected(std::move(error)); });
}

// All ranks must choose the same way, so each announces what it can do, once it has nothing in
// flight on the parent any more. After this, all remaining ranks have completed the parent's
// collectives.
Result<NcclProcessGroup::Impl::Remains> NcclProcessGroup::Impl::remains_of_all(Remains own,
                                                                               Deadline deadline) {
  const std::string place = key("shrinks/");
  const std::string text = std::string(own.can_be_shrunk ? "shrinkable" : "not shrinkable") +
                           (own.is_healthy ? ", healthy" : ", failed");
  if (const Result<bool> is_new = store_->set(place + std::to_string(rank_), text); !is_new)
    return failed(is_new.error());
  Remains all = own;
  for (int peer = 0; peer < size_; ++peer) {
    const Result<std::string> told = store_->get(place + std::to_string(peer), deadline);
    if (!told) {
      Failure failure = told.error().failure();
      failure.suspect = peer;
      return failed(report_unconnected(failure));
    }
    all.can_be_shrunk = all.can_be_shrunk && told->starts_with("shrinkable");
    all.is_healthy = all.is_healthy && told->ends_with("healthy");
  }
  return all;
}

// NCCL does not shrink a communicator if no rank is excluded.
Status NcclProcessGroup::Impl::connect_out_of(Impl& parent, const std::vector<int>& excluded,
                                              Remains own, Deadline deadline) {
  own.can_be_shrunk = own.can_be_shrunk && !excluded.empty();
  const Result<Remains> all = remains_of_all(own, deadline);
  if (!all) return all.error();
  if (!all->is_healthy) parent.release_by_abort();
  if (!all->can_be_shrunk) return connect();
  origin_ = "ncclCommShrink";
  id_ = parent.id_ + 1;
  const auto state = all->is_healthy ? NcclLink::Parent::kHealthy : NcclLink::Parent::kFailed;
  Status status = reserve();
  if (!status.ok()) return report_unconnected(std::move(status));
  return link_.init_from(
      parent.link_, state, excluded, rank_, size_, [&] { return give_up(deadline); },
      [&](Status error) { return report_unconnected(std::move(error)); });
}

// For a group that has failed on some rank: finalizing its communicator might wait for that rank.
void NcclProcessGroup::Impl::release_by_abort() {
  MutexLock lock(mutex_);
  is_kept_ = false;
}

Status NcclProcessGroup::Impl::begin_threads() {
  const auto begin = [this](platform::Thread& thread, const char* name, void (Impl::*body)()) {
    {
      MutexLock lock(mutex_);
      ++threads_;
    }
    try {
      thread = platform::Thread(name, [this, body] { (this->*body)(); });
    } catch (...) {
      MutexLock lock(mutex_);
      --threads_;
      throw;
    }
  };
  try {
    begin(closer_, "nccl.closer", &Impl::close);
    begin(watchdog_, "nccl.watchdog", &Impl::watch);
    begin(issuer_, "nccl.issuer", &Impl::issue);
  } catch (const std::exception& error) {  // The system may refuse a thread.
    return Status(Code::kTransport, std::string("an NCCL group cannot start: ") + error.what());
  }
  return {};
}

bool NcclProcessGroup::Impl::shut_down() {
  MutexLock lock(mutex_);
  if (head_ != tail_ && cause_.ok())
    fail_locked(Status(Code::kAborted, "the group was destroyed with operations in flight"));
  is_leaving_ = true;
  queued_.notify_all();
  armed_.notify_all();
  closing_.notify_all();
  const Deadline bound = Deadline::in(4 * (options_.grace + options_.end_timeout));
  if (!changed_.wait(mutex_, bound, [this]() LOCKSTEP_REQUIRES(mutex_) { return threads_ == 0; }))
    return false;
  const bool is_stuck = is_stuck_;
  lock.unlock();
  for (platform::Thread* thread : {&issuer_, &watchdog_, &closer_})
    if (thread->joinable()) thread->join();
  if (!is_stuck) return true;
  // What took too long may have ended by now.
  return device_.synchronize(device_.record(stream_), Deadline::in(options_.grace)).ok();
}

// --- Use.

Status NcclProcessGroup::Impl::check(const Collective& collective) const {
  const auto invalid = [](const char* text) { return Status(Code::kInvalidArgument, text); };
  const std::uint64_t ranks = static_cast<std::uint64_t>(size_);
  const std::uint64_t bytes = size_of(collective.dtype);
  const bool is_gather = collective.op == Op::kAllGather;
  if (collective.op == Op::kAllReduceSum && !nccl_can_sum(collective.dtype))
    return invalid("an all_reduce cannot sum elements of this dtype");
  if (collective.factor != 1.0) return invalid("an NCCL group cannot scale what it adds");
  if (collective.op == Op::kBroadcast && (collective.root < 0 || collective.root >= size_))
    return invalid("the root of a broadcast is not a rank of the group");
  if (collective.count > std::numeric_limits<std::int64_t>::max() / bytes / ranks / 4)
    return invalid("a collective's count is beyond what memory can hold");
  if (collective.count > 0 && collective.data == nullptr)
    return invalid("a collective has elements but no data");
  if (collective.count > 0 && is_gather && collective.gathered == nullptr)
    return invalid("an all_gather has nowhere to gather to");
  const Device* const device = collective.device;
  if (device != nullptr && device != &device_ && !device->is_host())
    return invalid("a collective's data lies on a GPU that is not the group's");
  if (collective.ready.device != nullptr && collective.ready.device != device)
    return invalid("a collective waits for an event of another device than its data lies on");
  return Status();
}

Status NcclProcessGroup::Impl::start(const Collective& collective, Work& work) {
  LOCKSTEP_RETURN_IF_ERROR(check(collective));
  MutexLock lock(mutex_);
  if (!cause_.ok()) {
    Status refusal = cause_;
    note_collective(refusal.failure(), collective, next_sequence_);
    return refusal;
  }
  Operation* const place = operations_.push(head_, tail_);
  if (place == nullptr) return out_of_memory();
  Operation& operation = *place;
  operation = Operation();
  operation.collective = collective;
  operation.work = &work;
  operation.deadline = Deadline::in(options_.timeout);
  operation.sequence = next_sequence_++;
  operation.is_compared = !options_.agree || size_ == 1;
  work.begin(operation.sequence);
  if (head_ == tail_) armed_.notify_all();
  ++tail_;
  queued_.notify_all();
  return Status();
}

Status NcclProcessGroup::Impl::health() const {
  MutexLock lock(mutex_);
  return cause_;
}

void NcclProcessGroup::Impl::abort(const Status& given) {
  const Status cause = cause_of_abort(given, rank_);
  MutexLock lock(mutex_);
  if (!cause_.ok()) return attach(cause.to_string());
  for_peers_ = abort_for_peers(cause, rank_);
  fail_locked(cause);
}

// An idle communicator stays as it is, and nothing is published, because peers may be in the last
// collective and would take it for a failure. Otherwise the communicator must have been revoked.
NcclProcessGroup::Impl::Remains NcclProcessGroup::Impl::end_for_shrink() {
  MutexLock lock(mutex_);
  if (cause_.ok()) {
    is_kept_ = head_ == tail_;
    Failure failure;
    failure.code = Code::kAborted;
    failure.rank = rank_;
    failure.detail = "rank " + std::to_string(rank_) + " makes a smaller group";
    fail_locked(failure);
  }
  const Deadline bound = Deadline::in(4 * (options_.grace + options_.end_timeout));
  const bool is_over =
      changed_.wait(mutex_, bound, [this]() LOCKSTEP_REQUIRES(mutex_) { return is_finished_; });
  const bool is_healthy = is_kept_;
  const bool is_released = is_over && !is_stuck_;
  lock.unlock();
  return {is_released && link_.can_be_shrunk(), is_healthy};
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
  LOCKSTEP_CHECK(store != nullptr);
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
  LOCKSTEP_CHECK(store != nullptr);
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
  if (Status status = check_options(options, rank, size); !status.ok())
    return failed(std::move(status));
  // Making a stream is set-up, which may wait for all that runs on the GPU, so whatever hangs there
  // is ended first.
  const Deadline deadline = Deadline::in(options.connect_timeout);
  const Impl::Remains remains = parent.end_for_shrink();
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
