#include "reducer/comm/staged_group.h"

#include <new>
#include <string>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/device/grow.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::size_t bytes_of(const Collective& collective) {
  return static_cast<std::size_t>(collective.count) * size_of(collective.dtype);
}

}  // namespace

Result<std::unique_ptr<StagedGroup>> StagedGroup::create(std::shared_ptr<ProcessGroup> group,
                                                         Device& device) {
  LOCKSTEP_CHECK(group != nullptr);
  const Result<Stream> stream = device.new_stream();
  if (!stream) return failed(stream.error());
  return std::unique_ptr<StagedGroup>(new StagedGroup(std::move(group), device, *stream));
}

StagedGroup::StagedGroup(std::shared_ptr<ProcessGroup> group, Device& device, const Stream& stream)
    : group_(std::move(group)), device_(device), stream_(stream) {
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
  is_closing_ = true;
  changed_.notify_all();
  lock.unlock();
  sender_.join();
  receiver_.join();
  // What took too long may have ended by now. Otherwise the device goes on to use this memory.
  const bool is_idle =
      stuck_.empty() ||
      device_.synchronize(device_.record(stream_), platform::Deadline::in({})).ok();
  if (is_idle) device_.give_back(stream_);
  for (const std::unique_ptr<Entry>& entry : stuck_) {
    if (is_idle) break;
    entry->data.abandon();
    entry->gathered.abandon();
  }
}

Status StagedGroup::start(const Collective& collective, Work& work) try {
  std::unique_ptr<Entry> entry;
  {
    platform::MutexLock lock(mutex_);
    if (!cause_.ok()) {
      Status refusal = cause_;
      note_collective(refusal.failure(), collective, next_sequence_);
      return refusal;
    }
    if (!spare_.empty()) {
      entry = std::move(spare_.front());
      spare_.pop_front();
    }
  }
  if (!entry) entry = std::make_unique<Entry>();
  entry->collective = collective;
  entry->work = &work;
  entry->is_staged = collective.device != nullptr && !collective.device->is_host();
  Status staged = entry->is_staged ? stage(*entry) : Status();
  platform::MutexLock lock(mutex_);
  if (!staged.ok()) {
    note_collective(staged.failure(), collective, next_sequence_);
    return staged;
  }
  to_send_.push_back(std::move(entry));
  ++in_flight_;
  work.begin(next_sequence_++);
  changed_.notify_all();
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

// Submits the copy to the host. The group works on the host addresses of the entry.
Status StagedGroup::stage(Entry& entry) {
  Collective& collective = entry.collective;
  LOCKSTEP_CHECK(collective.device == &device_);
  const std::size_t bytes = bytes_of(collective);
  const bool gathers = collective.op == Op::kAllGather;
  const std::size_t all = gathers ? bytes * static_cast<std::size_t>(size()) : 0;
  LOCKSTEP_RETURN_IF_ERROR(grow(device_, entry.data, bytes));
  LOCKSTEP_RETURN_IF_ERROR(grow(device_, entry.gathered, all));
  const platform::MutexLock lock(starting_);
  device_.wait(stream_, collective.ready);
  if (bytes > 0) {
    device_.note_use(stream_, collective.data);
    if (gathers) device_.note_use(stream_, collective.gathered);
  }
  const bool is_needed = collective.op != Op::kBroadcast || collective.root == rank();
  if (is_needed && bytes > 0) device_.download(stream_, collective.data, entry.data, 0, bytes);
  entry.downloaded = device_.record(stream_);
  return {};
}

void StagedGroup::abort(const Status& given) {
  const Status cause = cause_of_abort(given, rank());
  {
    platform::MutexLock lock(mutex_);
    if (cause_.ok()) cause_ = cause;
  }
  group_->abort(cause);
}

// Returns the next entry of a queue, or null when the queue is empty and closed.
std::unique_ptr<StagedGroup::Entry> StagedGroup::next(Entries StagedGroup::*queue,
                                                      bool StagedGroup::*is_closed) {
  platform::MutexLock lock(mutex_);
  Entries& entries = this->*queue;
  changed_.wait(mutex_, platform::Deadline::never(),
                [&] { return this->*is_closed || !entries.empty(); });
  if (entries.empty()) return nullptr;
  std::unique_ptr<Entry> entry = std::move(entries.front());
  entries.pop_front();
  return entry;
}

void StagedGroup::send() {
  while (std::unique_ptr<Entry> entry = next(&StagedGroup::to_send_, &StagedGroup::is_closing_)) {
    Status status = begin(*entry);
    if (!status.ok()) {
      end(std::move(entry), std::move(status));
      continue;
    }
    platform::MutexLock lock(mutex_);
    to_receive_.push_back(std::move(entry));
    changed_.notify_all();
  }
  platform::MutexLock lock(mutex_);
  is_sent_ = true;
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
  // An entry that waits behind others has no deadline.
  entry.deadline = platform::Deadline::in(timeout());
  LOCKSTEP_RETURN_IF_ERROR(cause());
  Collective sent = entry.collective;
  if (entry.is_staged) {
    LOCKSTEP_RETURN_IF_ERROR(own(device_.synchronize(entry.downloaded, entry.deadline)));
    sent.data = entry.data.to_write(0, entry.data.bytes());
    sent.gathered = entry.gathered.to_write(0, entry.gathered.bytes());
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
  while (std::unique_ptr<Entry> entry = next(&StagedGroup::to_receive_, &StagedGroup::is_sent_)) {
    Status status = finish(*entry);
    end(std::move(entry), std::move(status));
  }
}

Status StagedGroup::finish(Entry& entry) {
  const Collective& collective = entry.collective;
  // The group ends every collective that it started.
  Status sent = entry.sent.wait(platform::Deadline::never());
  entry.deadline = platform::Deadline::in(timeout());
  LOCKSTEP_RETURN_IF_ERROR(std::move(sent));
  // The group may have completed this collective although an earlier one then failed on the device.
  LOCKSTEP_RETURN_IF_ERROR(cause());
  if (!entry.is_staged) return {};
  const platform::MutexLock lock(starting_);
  const std::size_t bytes = bytes_of(collective);
  if (collective.op == Op::kAllGather)
    device_.upload(stream_, entry.gathered, 0, collective.gathered,
                   bytes * static_cast<std::size_t>(size()));
  else if (bytes > 0)
    device_.upload(stream_, entry.data, 0, collective.data, bytes);
  return {};
}

void StagedGroup::end(std::unique_ptr<Entry> entry, Status status) {
  bool is_idle = true;
  // A device that has not answered in time is not waited for again, however much is queued.
  if (is_stuck()) entry->deadline = platform::Deadline::in({});
  if (entry->is_staged) {  // Whatever the result is, the device first ends its use of all memory.
    Event last;
    {
      const platform::MutexLock lock(starting_);
      last = device_.record(stream_);
    }
    Status passed = own(device_.synchronize(last, entry->deadline));
    // An error does not say that the device is done. Only a wait that succeeds does.
    is_idle = passed.ok() || device_.synchronize(last, entry->deadline).ok();
    if (status.ok()) status = std::move(passed);
  }
  if (!status.ok()) {
    Failure& failure = status.failure();
    note_collective(failure, entry->collective, entry->work->sequence());
    if (failure.reported_by == kNone) failure.reported_by = rank();
    abort(status);
  }
  Work& work = *entry->work;
  {
    platform::MutexLock lock(mutex_);
    --in_flight_;
    (is_idle ? spare_ : stuck_).push_back(std::move(entry));
  }
  work.complete(std::move(status));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
