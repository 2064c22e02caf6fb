#include "faults/sim/device/sim_device.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "faults/plan.h"
#include "faults/sim/scheduler/scheduler.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {
namespace {

using platform::Deadline;
using platform::MutexLock;
using simulation::Scheduler;

constexpr int kPointBits = 40;  // of an event's handle; the bits above are the line
constexpr std::uint64_t kPointMask = (std::uint64_t{1} << kPointBits) - 1;

std::uint32_t running_fiber() {
  LOCKSTEP_CHECK(Scheduler::running() != nullptr);
  return Scheduler::running()->current_id();
}

std::string name_of_line(std::size_t line) {
  if (line == 1) return "reclaiming";
  return "stream " + std::to_string(line - 2);
}

std::string name_of(const Actor& actor) {
  return actor.line == 0 ? "host thread " + actor.thread : name_of_line(actor.line);
}

std::string text_of_range(const Touch& touch) {
  return std::to_string(touch.bytes) + " bytes that are not the device's, or not all of them";
}

}  // namespace

SimDevice::SimDevice(DeviceOptions options) : options_(std::move(options)) {
  LOCKSTEP_CHECK(Scheduler::running() != nullptr);
  lines_.emplace_back();  // the host's line
  const std::string name = "device " + std::to_string(options_.index);
  LOCKSTEP_CHECK_EQ(add_line(name + " reclaiming"), kReclaim);
  LOCKSTEP_CHECK_EQ(add_line(name + " stream 0"), kFirstStream);
}

SimDevice::~SimDevice() {
  LOCKSTEP_CHECK(is_left_.load() || allocated_.load() == 0);
  {
    MutexLock lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  for (Line& line : lines_)
    if (line.thread.joinable()) line.thread.join();
}

std::size_t SimDevice::add_line(const std::string& name) {
  MutexLock lock(mutex_);
  const std::size_t number = lines_.size();
  LOCKSTEP_CHECK_LT(number, kMaxLines);
  Line& line = lines_.emplace_back();
  line.device = this;
  line.handle = number - kFirstStream;
  lock.unlock();
  line.thread = platform::Thread(name, [this, number] { run_line(number); });
  return number;
}

// These two do not take the mutex, as they must not be scheduling points (see note_host_read()).
Result<Stream> SimDevice::new_stream() LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
  if (!spare_.empty()) {
    const Stream again{this, spare_.back()};
    spare_.pop_back();
    return again;
  }
  std::string name = "device " + std::to_string(options_.index) + " stream ";
  name += std::to_string(lines_.size() - kFirstStream);
  return Stream{this, add_line(name) - kFirstStream};
}

void SimDevice::give_back(const Stream& stream) LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
  LOCKSTEP_CHECK(line_of(stream) > kFirstStream);  // Not the device's own.
  LOCKSTEP_CHECK(std::find(spare_.begin(), spare_.end(), stream.handle) == spare_.end());
  spare_.push_back(stream.handle);
}

std::uint64_t SimDevice::pinned_allocation(const std::byte* data)
    LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
  const Block* const block = memory_.find(data);
  return block == nullptr || !block->is_pinned ? 0 : block->number;
}

std::size_t SimDevice::streams_in_use() const LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
  return lines_.size() - kFirstStream - 1 - spare_.size();
}

void* SimDevice::native(const Stream& stream) {
  MutexLock lock(mutex_);
  return &lines_[line_of(stream)];
}

Stream SimDevice::stream_of(void* native) {
  const Line& line = *static_cast<const Line*>(native);
  return {line.device, line.handle};
}

std::size_t SimDevice::line_of(const Stream& stream) const {
  LOCKSTEP_CHECK(stream.device == this || (stream.device == nullptr && stream.handle == 0));
  LOCKSTEP_CHECK_LT(stream.handle + kFirstStream, lines_.size());
  return stream.handle + kFirstStream;
}

void SimDevice::stop() {
  MutexLock lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

// Runs the tasks of a stream.
void SimDevice::run_line(std::size_t number) {
  MutexLock lock(mutex_);
  Line& line = lines_[number];
  while (true) {
    changed_.wait(mutex_, Deadline::never(), [&]() LOCKSTEP_REQUIRES(mutex_) {
      return is_over() || is_closing_ || !line.queue.empty();
    });
    if (is_over() || line.queue.empty()) return;
    Task task = std::move(line.queue.front());
    line.queue.pop_front();
    execute(line, std::move(task));
  }
}

void SimDevice::execute(Line& line, Task task) {
  if (task.awaited != 0) {
    const Line& other = lines_[task.awaited_line];
    changed_.wait(mutex_, Deadline::never(), [&]() LOCKSTEP_REQUIRES(mutex_) {
      return is_over() || other.passed >= task.awaited;
    });
  }
  if (task.duration > platform::Duration(0))
    changed_.wait(mutex_, Deadline::in(task.duration),
                  [&]() LOCKSTEP_REQUIRES(mutex_) { return is_over(); });
  if (is_over()) return;
  if (task.number != 0 && task.number == options_.stopping_operation) is_stopped_ = true;
  if (task.number != 0 && task.number == options_.failing_operation)
    failure_ = Status(Code::kTransport, "simulated device " + std::to_string(options_.index) +
                                            ": operation " + std::to_string(task.number) + ", " +
                                            task.name + ", failed");
  if (!is_over() && task.body) {
    const platform::MutexUnlock unlocked(mutex_);
    task.body();
    task.body = nullptr;
  }
  if (!is_over()) ++line.passed;
  changed_.notify_all();
}

// --- Submission and its order.

void SimDevice::advance(std::size_t number) {
  Line& line = lines_[number];
  line.clock.join(lines_[kHost].clock);
  line.clock.set(number, ++line.submitted);
}

std::shared_ptr<const Actor> SimDevice::begin(std::size_t number, std::string operation) {
  advance(number);
  return std::make_shared<Actor>(Actor{number, lines_[number].submitted, {}, std::move(operation)});
}

std::shared_ptr<const Actor> SimDevice::begin_on_host(std::string operation) {
  Line& host = lines_[kHost];
  host.clock.set(kHost, ++host.submitted);
  return std::make_shared<Actor>(
      Actor{kHost, host.submitted, Scheduler::running()->current_name(), std::move(operation)});
}

void SimDevice::push(std::size_t number, Task task) {
  if (is_over()) return;  // the point of this task is never passed
  lines_[number].queue.push_back(std::move(task));
  changed_.notify_all();
}

std::uint64_t SimDevice::record_on(std::size_t number) {
  advance(number);
  Line& line = lines_[number];
  line.events.emplace_hint(line.events.end(), line.submitted, line.clock);
  const std::uint64_t point = line.submitted;
  push(number, {});
  return point;
}

void SimDevice::wait_on(std::size_t number, std::size_t other, std::uint64_t point) {
  lines_[number].clock.join(lines_[other].events.at(point));
  advance(number);
  Task task;
  task.awaited_line = other;
  task.awaited = point;
  push(number, std::move(task));
}

Event SimDevice::record(const Stream& stream) {
  MutexLock lock(mutex_);
  const std::size_t number = line_of(stream);
  const std::uint64_t point = record_on(number);
  LOCKSTEP_CHECK_LE(point, kPointMask);
  return {this, std::uint64_t{number} << kPointBits | point};
}

void SimDevice::wait(const Stream& stream, const Event& event) {
  if (event.device == nullptr) return;
  LOCKSTEP_CHECK(event.device == this);
  MutexLock lock(mutex_);
  wait_on(line_of(stream), event.handle >> kPointBits, event.handle & kPointMask);
}

Status SimDevice::synchronize(const Event& event, Deadline deadline) {
  if (event.device == nullptr) return {};
  LOCKSTEP_CHECK(event.device == this);
  if (options_.fails_call && options_.fails_call())
    return Status(Code::kTransport,
                  "simulated device " + std::to_string(options_.index) +
                      ": a call to wait for an event fails: " + faults::kCallErrorText);
  MutexLock lock(mutex_);
  const Line& line = lines_[event.handle >> kPointBits];
  const std::uint64_t point = event.handle & kPointMask;
  changed_.wait(mutex_, deadline,
                [&]() LOCKSTEP_REQUIRES(mutex_) { return line.passed >= point || !failure_.ok(); });
  if (line.passed >= point) {
    lines_[kHost].clock.join(line.events.at(point));
    return {};
  }
  if (!failure_.ok()) return failure_;
  return Status(Code::kTimeout, "simulated device " + std::to_string(options_.index) +
                                    ": work that was submitted to its " +
                                    name_of_line(event.handle >> kPointBits) +
                                    " is not done in time, and goes on");
}

void SimDevice::submit(const Stream& stream, std::string name, std::vector<Touch> touches,
                       std::function<void()> body) {
  MutexLock lock(mutex_);
  submit_on(line_of(stream), std::move(name), touches, std::move(body));
}

void SimDevice::submit_on(std::size_t number, std::string name, std::span<const Touch> touches,
                          std::function<void()> body) {
  if (options_.uses == Uses::kNoted)
    for (const Touch& touched : touches) {
      if (touched.bytes == 0) continue;  // another block may begin behind the end of a block
      if (Block* block = memory_.find(touched.data)) note(number, *block);
    }
  Task task;
  task.number = ++operations_;
  task.name = name;
  const std::shared_ptr<const Actor> actor = begin(number, std::move(name));
  std::size_t bytes = 0;
  bool is_allowed = true;
  for (const Touch& touched : touches) {
    is_allowed = touch(actor, touched) && is_allowed;
    bytes += touched.bytes;
  }
  if (is_allowed) task.body = std::move(body);
  if (options_.duration)
    task.duration = options_.duration({this, number - kFirstStream}, task.name, bytes);
  push(number, std::move(task));
}

// --- Accesses. touch() returns false if the memory is not the device's and must not be accessed.

bool SimDevice::touch(const std::shared_ptr<const Actor>& actor, const Touch& touch) {
  if (touch.bytes == 0 || !failure_.ok()) return true;
  Block* const block = memory_.find(touch.data);
  const auto begin = block == nullptr ? 0 : static_cast<std::size_t>(touch.data - block->data);
  const std::size_t end = begin + touch.bytes;
  if (block == nullptr || end > block->bytes) {
    const Place place{name_of(*actor), actor->sequence, actor->operation, touch.is_write,
                      text_of_range(touch)};
    findings_.all.push_back({FindingKind::kForeign, place, {}});
    return false;
  }
  const Access access{actor, begin, end, touch.is_write, block->number};
  if (!block->is_live) {
    findings_.all.push_back(
        {FindingKind::kFreed, place_of(*block, access), place_of(*block, block->release)});
    return true;
  }
  check_order(*block, access);
  return true;
}

void SimDevice::check_order(Block& block, const Access& access) {
  const auto report = [&](const Access& earlier) LOCKSTEP_REQUIRES(mutex_) {
    if (!failure_.ok()) return;
    const bool is_new = findings_.known
                            .insert({earlier.actor->line, earlier.actor->sequence,
                                     access.actor->line, access.actor->sequence})
                            .second;
    if (is_new)
      findings_.all.push_back(
          {FindingKind::kRace, place_of(block, access), place_of(block, earlier)});
  };
  block.history.add(access, lines_[access.actor->line].clock, std::ref(report));
}

Place SimDevice::place_of(const Block& block, const Access& access) {
  const Actor& actor = *access.actor;
  return {name_of(actor), actor.sequence, actor.operation, access.is_write, block.describe(access)};
}

void SimDevice::host_read(const std::byte* data, std::span<std::byte> into, std::string name) {
  MutexLock lock(mutex_);
  if (touch(begin_on_host(std::move(name)), {data, into.size(), false}))
    std::memcpy(into.data(), data, into.size());
}

void SimDevice::host_write(std::byte* data, std::span<const std::byte> from, std::string name) {
  MutexLock lock(mutex_);
  if (touch(begin_on_host(std::move(name)), {data, from.size(), true}))
    std::memcpy(data, from.data(), from.size());
}

// This does not acquire the mutex: that would be a scheduling point which the following memcpy does
// not have, and the state read here is consistent at all scheduling points.
void SimDevice::note_host_read(const std::byte* data,
                               std::size_t bytes) LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
  touch(begin_on_host("read"), {data, bytes, false});
}

void SimDevice::note_host_write(const std::byte* data,
                                std::size_t bytes) LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
  touch(begin_on_host("write"), {data, bytes, true});
}

void SimDevice::label(const std::byte* data, std::size_t bytes, std::string name) {
  MutexLock lock(mutex_);
  Block* const block = memory_.find(data);
  LOCKSTEP_CHECK(block != nullptr);
  const auto begin = static_cast<std::size_t>(data - block->data);
  block->labels.push_back({block->number, begin, begin + bytes, std::move(name)});
}

// --- Memory.

Result<Ref<Storage>> SimDevice::allocate(std::size_t bytes) {
  const std::uint64_t home = current_stream().handle;
  MutexLock lock(mutex_);
  const bool is_refused =
      ++allocations_ == options_.failing_allocation || (options_.refuses && options_.refuses());
  Block* const block = is_refused ? nullptr : memory_.take(bytes, home, lines_[kReclaim].passed);
  if (block == nullptr)
    return failed(Status(Code::kOutOfMemory, "simulated device " + std::to_string(options_.index) +
                                                 " has no memory left for " +
                                                 std::to_string(bytes) + " bytes of a tensor"));
  // The allocator waited for the other users of this block, so their accesses happened before.
  if (block->free_from != 0) lines_[home + kFirstStream].clock.join(block->released);
  block->free_from = 0;
  allocated_ += bytes;
  lock.unlock();
  try {
    return make_ref<Storage>(*this, block->data, bytes);
  } catch (const std::bad_alloc&) {
    release(block->data, bytes);
    throw;
  }
}

void SimDevice::release(std::byte* data, std::size_t bytes) {
  MutexLock lock(mutex_);
  Block* const block = memory_.find(data);
  LOCKSTEP_CHECK(block != nullptr);
  LOCKSTEP_CHECK_EQ(block->bytes, bytes);
  allocated_ -= bytes;
  const std::size_t home = block->home + kFirstStream;
  std::size_t number = home;
  if (block->used_by != 0) {
    number = kReclaim;
    wait_on(kReclaim, home, record_on(home));
    for (std::size_t line = kFirstStream; line < lines_.size(); ++line)
      if ((block->used_by >> (line - kFirstStream) & 1) != 0)
        wait_on(kReclaim, line, record_on(line));
  }
  block->release = {begin(number, "release"), 0, block->capacity, true, block->number};
  check_order(*block, block->release);
  block->released = lines_[number].clock;
  block->free_from = number == kReclaim ? lines_[number].submitted : 0;
  Task task;
  task.name = "release";
  task.body = [data, capacity = block->capacity] { poison(data, capacity); };
  push(number, std::move(task));
  memory_.give_back(*block);
}

Result<PinnedMemory> SimDevice::allocate_pinned(std::size_t bytes) {
  MutexLock lock(mutex_);
  const bool is_refused = options_.refuses && options_.refuses();
  Block* const block = is_refused ? nullptr : memory_.take_pinned(bytes);
  if (block == nullptr) return failed(out_of_memory());
  last_pinned_ = {running_fiber(), block, Scheduler::running()->steps()};
  return PinnedMemory(*this, block->data, bytes, block->capacity);
}

// A thread that takes memory, and gives back other memory at once, has the one in the place of the
// other. It is larger, or it was not needed: to pin memory takes milliseconds.
void SimDevice::check_need(const Block& given_back) {
  constexpr std::uint64_t kAtOnce = 4;  // scheduling points: those of the two calls
  const TakenMemory last = std::exchange(last_pinned_, {});
  const bool is_next = last.fiber == running_fiber() && last.block != nullptr &&
                       Scheduler::running()->steps() - last.step <= kAtOnce;
  if (!is_next || last.block == &given_back) return;
  const std::size_t taken = last.block->bytes;
  if (taken > given_back.bytes) return;
  const Place place{name_of(*begin_on_host("take")), 0, "take", false,
                    std::to_string(taken) + " bytes of pinned memory in the place of " +
                        std::to_string(given_back.bytes)};
  findings_.all.push_back({FindingKind::kNeedless, place, {}});
}

// The release is a write of the host. A copy that is still queued is unordered with it.
void SimDevice::release_pinned(std::byte* data, std::size_t capacity) {
  MutexLock lock(mutex_);
  Block* const block = memory_.find(data);
  LOCKSTEP_CHECK(block != nullptr);
  check_need(*block);
  block->release = {begin_on_host("release"), 0, capacity, true, block->number};
  check_order(*block, block->release);
  poison(data, capacity);
  memory_.give_back(*block);
}

void SimDevice::note_use(const Stream& stream, const std::byte* data) {
  MutexLock lock(mutex_);
  Block* const block = memory_.find(data);
  LOCKSTEP_CHECK(block != nullptr);
  note(line_of(stream), *block);
}

void SimDevice::note(std::size_t number, Block& block) {
  const std::uint64_t handle = number - kFirstStream;
  const std::uint64_t bit = std::uint64_t{1} << handle;
  if (!block.is_live || block.is_pinned || block.home == handle || (block.used_by & bit) != 0)
    return;
  block.used_by |= bit;
  if (options_.uses == Uses::kDeclared) return;
  const std::size_t home = block.home + kFirstStream;
  wait_on(number, home, record_on(home));
}

// --- The current stream.

Stream SimDevice::current_stream() {
  MutexLock lock(mutex_);
  const auto found = current_.find(running_fiber());
  return {this, found == current_.end() ? 0 : found->second.back()};
}

StreamGuard::StreamGuard(const Stream& stream)
    : device_(dynamic_cast<SimDevice&>(*stream.device)), fiber_(running_fiber()) {
  MutexLock lock(device_.mutex_);
  static_cast<void>(device_.line_of(stream));
  device_.current_[fiber_].push_back(stream.handle);
}

StreamGuard::~StreamGuard() {
  MutexLock lock(device_.mutex_);
  const auto found = device_.current_.find(fiber_);
  LOCKSTEP_CHECK(found != device_.current_.end());
  found->second.pop_back();
  if (found->second.empty()) device_.current_.erase(found);
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
