#include "reducer/comm/staged_group.h"

#include <new>
#include <string>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// Takes the first element of a list out of it, if there is one.
template <class T>
std::list<T> first_of(std::list<T>& list) {
  std::list<T> first;
  if (!list.empty()) first.splice(first.begin(), list, list.begin());
  return first;
}

}  // namespace

Result<std::unique_ptr<StagedGroup>> StagedGroup::create(std::shared_ptr<ProcessGroup> group,
                                                         Device& device) {
  if (group == nullptr)
    return failed(Status(Code::kInvalidArgument, "the process group is null: connect one first"));
  const Result<Stream> stream = device.new_stream();
  if (!stream) return failed(stream.error());
  return std::unique_ptr<StagedGroup>(new StagedGroup(std::move(group), device, *stream));
}

StagedGroup::StagedGroup(std::shared_ptr<ProcessGroup> group, Device& device, const Stream& stream)
    : group_(std::move(group)), stream_(device, stream, group_->rank(), group_->size()) {
  const std::string name = "rank " + std::to_string(group_->rank()) + " staged ";
  sender_ = platform::Thread(name + "sends", [this] { send(); });
  receiver_ = platform::Thread(name + "receives", [this] { receive(); });
}

StagedGroup::~StagedGroup() {
  platform::MutexLock lock(mutex_);
  const bool is_busy = in_flight_ > 0;
  lock.unlock();
  if (is_busy) abort(Status(Code::kAborted, "the process group was destroyed"));
  lock.lock();
  to_send_.close();
  changed_.notify_all();
  lock.unlock();
  sender_.join();
  receiver_.join();
  LOCKSTEP_CHECK_EQ(in_flight_, 0u);
  // What took too long may have ended by now. Otherwise the device goes on to use this memory.
  const bool is_idle =
      stuck_.empty() || stream_.synchronize(stream_.record(), platform::Deadline::in({})).ok();
  if (is_idle) {
    stream_.give_back();
    return;
  }
  for (Entry& entry : stuck_) {
    entry.memory.data.abandon();
    entry.memory.gathered.abandon();
  }
}

void StagedGroup::Queue::push(Entries entry) {
  LOCKSTEP_CHECK_EQ(entry.size(), 1u);
  LOCKSTEP_CHECK(!is_closed_);
  entries_.splice(entries_.end(), entry);
}

StagedGroup::Entries StagedGroup::Queue::pop() {
  LOCKSTEP_CHECK(is_ready());
  return first_of(entries_);
}

// Returns an entry whose memory is not in use, or none.
StagedGroup::Entries StagedGroup::unused_entry() { return first_of(spare_); }

Status StagedGroup::start(const Collective& collective, Work& work) try {
  LOCKSTEP_RETURN_IF_ERROR(check_arguments(collective, size()));
  Entries started;
  {
    platform::MutexLock lock(mutex_);
    if (!cause_.ok()) {
      Status refusal = cause_;
      note_collective(refusal.failure(), collective, next_sequence_);
      return refusal;
    }
    started = unused_entry();
  }
  if (started.empty()) started.emplace_back();
  Entry& entry = started.front();
  entry.collective = collective;
  entry.work = &work;
  entry.is_staged = collective.device != nullptr && !collective.device->is_host();
  Result<Event> downloaded = entry.is_staged ? stream_.download(collective, entry.memory) : Event();
  platform::MutexLock lock(mutex_);
  if (!downloaded) {
    note_collective(downloaded.error().failure(), collective, next_sequence_);
    return std::move(downloaded.error());
  }
  entry.downloaded = *downloaded;
  // What is in flight was started, and is counted.
  LOCKSTEP_CHECK_LE(in_flight_, static_cast<std::size_t>(next_sequence_));
  to_send_.push(std::move(started));
  ++in_flight_;
  work.begin(next_sequence_++);
  changed_.notify_all();
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

void StagedGroup::abort(const Status& given) {
  const Status cause = cause_of_abort(given, rank());
  {
    platform::MutexLock lock(mutex_);
    if (cause_.ok()) cause_ = cause;
  }
  group_->abort(cause);
}

StagedGroup::Entries StagedGroup::next_to_send() {
  platform::MutexLock lock(mutex_);
  changed_.wait(mutex_, platform::Deadline::never(),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return to_send_.is_ready(); });
  return to_send_.pop();
}

StagedGroup::Entries StagedGroup::next_to_receive() {
  platform::MutexLock lock(mutex_);
  changed_.wait(mutex_, platform::Deadline::never(),
                [this]() LOCKSTEP_REQUIRES(mutex_) { return to_receive_.is_ready(); });
  return to_receive_.pop();
}

void StagedGroup::send() {
  for (Entries entry = next_to_send(); !entry.empty(); entry = next_to_send()) {
    Status status = begin(entry.front());
    if (!status.ok()) {
      end(std::move(entry), std::move(status));
      continue;
    }
    platform::MutexLock lock(mutex_);
    to_receive_.push(std::move(entry));
    changed_.notify_all();
  }
  platform::MutexLock lock(mutex_);
  to_receive_.close();
  changed_.notify_all();
}

Status StagedGroup::cause() {
  platform::MutexLock lock(mutex_);
  return cause_;
}

bool StagedGroup::is_stuck() {
  platform::MutexLock lock(mutex_);
  return !stuck_.empty();
}

Status StagedGroup::begin(Entry& entry) {
  LOCKSTEP_CHECK(entry.work != nullptr);
  // An entry that waits behind others has no deadline.
  entry.deadline = platform::Deadline::in(timeout());
  LOCKSTEP_RETURN_IF_ERROR(cause());
  Collective sent = entry.collective;
  if (entry.is_staged) {
    LOCKSTEP_RETURN_IF_ERROR(own(stream_.synchronize(entry.downloaded, entry.deadline)));
    LOCKSTEP_CHECK(stream_.is_of(*entry.collective.device));
    sent.data = entry.memory.data.to_write(0, entry.memory.data.bytes());
    sent.gathered = entry.memory.gathered.to_write(0, entry.memory.gathered.bytes());
    sent.device = nullptr;
    sent.ready = {};
  }
  return group_->start(sent, entry.sent);
}

// Marks an error of the device as this rank's own. A device that is late may wait for another rank,
// so a timeout is not definite.
Status StagedGroup::own(Status status) const {
  if (status.ok()) return status;
  Failure& failure = status.failure();
  failure.rank = failure.reported_by = rank();
  failure.definite = failure.code != Code::kTimeout;
  return status;
}

void StagedGroup::receive() {
  for (Entries entry = next_to_receive(); !entry.empty(); entry = next_to_receive()) {
    Status status = finish(entry.front());
    end(std::move(entry), std::move(status));
  }
}

Status StagedGroup::finish(Entry& entry) {
  // The group ends every collective that it started.
  Status sent = entry.sent.wait(platform::Deadline::never());
  entry.deadline = platform::Deadline::in(timeout());
  LOCKSTEP_RETURN_IF_ERROR(std::move(sent));
  // The group may have completed this collective although an earlier one then failed on the device.
  LOCKSTEP_RETURN_IF_ERROR(cause());
  if (entry.is_staged) stream_.upload(entry.collective, entry.memory);
  return {};
}

void StagedGroup::end(Entries ended, Status status) {
  LOCKSTEP_CHECK_EQ(ended.size(), 1u);
  Entry& entry = ended.front();
  bool is_idle = true;
  // A device that has not answered in time is not waited for again, however much is queued.
  if (is_stuck()) entry.deadline = platform::Deadline::in({});
  if (entry.is_staged) {  // Whatever the result is, the device first ends its use of all memory.
    const Event last = stream_.record();
    Status passed = own(stream_.synchronize(last, entry.deadline));
    // An error does not say that the device is done. Only a wait that succeeds does.
    is_idle = passed.ok() || stream_.synchronize(last, entry.deadline).ok();
    if (status.ok()) status = std::move(passed);
  }
  if (!status.ok()) {
    Failure& failure = status.failure();
    note_collective(failure, entry.collective, entry.work->sequence());
    if (failure.reported_by == kNone) failure.reported_by = rank();
    abort(status);
  }
  Work& work = *entry.work;
  {
    platform::MutexLock lock(mutex_);
    LOCKSTEP_CHECK_LT(0u, in_flight_);
    --in_flight_;
    Entries& next = is_idle ? spare_ : stuck_;
    next.splice(next.end(), ended);
  }
  work.complete(std::move(status));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
