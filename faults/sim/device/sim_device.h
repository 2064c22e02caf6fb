// SimDevice: a Device of the simulator with the asynchrony of a GPU. What is submitted to a stream
// is queued, and the stream's own fiber executes it as early or as late as the schedule decides;
// the host continues at once. HostDevice does the arithmetic, so the bits are the same.
//
// Order. Vector clocks compare each access of memory, by an operation or by the host, with the
// earlier ones. Two accesses that conflict (not both are reads), and of which neither happens
// before the other, are a race, and a Finding (finding.h) names both, whatever the values were in
// this schedule. An operation happens after what was submitted to its stream before it, after what
// its stream waited for, and after what the host knew when it submitted the operation: what the
// host did itself, and what it waited for with synchronize(). All of this is decided at submission,
// so a program that submits the same operations in every schedule has the same findings in every
// schedule.
//   A simplification: the threads of the host count as one. The mutexes and atomics of the program
//   order those threads, and that order is not visible here. So races among host threads are not
//   found, and no false race is reported.
//
// Memory (sim_memory.h): a storage belongs to the stream that is current when it is allocated, its
// home. Releasing it overwrites it with poison in the order of the home stream; that is a write
// like any other. Another stream that uses the storage must be ordered behind the allocation, or
// must be recorded as a user (note_use, PyTorch's `record_stream`): then the release waits for it.
// With Uses::kNoted this class records every use by itself, and lets the first use wait for the
// home, as CudaDevice does. kDeclared is stricter and the default; it is what PyTorch's allocator
// does.
//
// Faults: an operation that fails makes the device fail permanently. Nothing that is not done by
// then happens any more, and synchronize() returns the failure for all events that were not
// reached. A device that stops executes nothing any more and reports nothing: synchronize() ends at
// its deadline.
//
// Threads: as Device says; it is created, used and destroyed in fibers of one run. It cannot wait
// for events of other devices. Ownership: it outlives its storages. The destructor executes what is
// queued, unless the device failed or stopped. The clocks of events are stored as long as the
// device lives.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "faults/sim/device/borrowed_memory.h"
#include "faults/sim/device/finding.h"
#include "faults/sim/device/sim_memory.h"
#include "faults/sim/device/vector_clock.h"
#include "reducer/device/device.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

enum class Uses : std::uint8_t { kDeclared, kNoted };

struct DeviceOptions {
  int index = 1;  // index 0 is the host's
  Uses uses = Uses::kDeclared;
  // The virtual time that an operation takes, by stream, name and bytes. If empty, an operation
  // takes no time.
  std::function<platform::Duration(const Stream&, std::string_view, std::size_t)> duration;
  // These count from 1; 0 means never.
  std::uint64_t failing_operation = 0;  // in the order of submission
  std::uint64_t stopping_operation = 0;
  std::uint64_t failing_allocation = 0;
  // Asked for each request for memory, of tensors or pinned, whether it is refused. May be empty.
  std::function<bool()> refuses;
  // Asked for each synchronize() whether it fails. The device works on. May be empty.
  std::function<bool()> fails_call;
};

// The bytes that an operation accesses.
struct Touch {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool is_write = false;
};

class SimDevice final : public Device {
 public:
  explicit SimDevice(DeviceOptions options = {});
  ~SimDevice() override;

  int index() const override { return options_.index; }
  Result<Ref<Storage>> allocate(std::size_t bytes) override;
  void release(std::byte* data, std::size_t bytes) override;
  std::uint64_t allocated_bytes() const override { return allocated_.load(); }
  void leave_to_process() override { is_left_ = true; }
  bool is_left() const { return is_left_.load(); }
  Result<PinnedMemory> allocate_pinned(std::size_t bytes) override;
  void release_pinned(std::byte* data, std::size_t capacity) override;
  void note_host_read(const std::byte* data, std::size_t bytes) override;
  void note_host_write(const std::byte* data, std::size_t bytes) override;

  Stream current_stream() override;      // of the calling fiber: see StreamGuard
  Result<Stream> new_stream() override;  // at most 63 at a time
  // Not for the device's own. The stream is handed out again.
  void give_back(const Stream& stream) override;
  // How many streams of new_stream() have not been given back. No scheduling point, either.
  std::size_t streams_in_use() const;
  // The number of the allocation in which this pinned memory was taken, or 0.
  std::uint64_t pinned_allocation(const std::byte* data);
  void* native(const Stream& stream) override;
  static Stream stream_of(void* native);  // the inverse of native()
  Event record(const Stream& stream) override;
  void wait(const Stream& stream, const Event& event) override;
  Status synchronize(const Event& event, platform::Deadline deadline) override;
  void note_use(const Stream& stream, const std::byte* data) override;

  void fill_zero(const Stream& stream, std::byte* data, std::size_t bytes) override;
  void copy(const Stream& stream, const Tensor& from, const Tensor& to) override;
  void add(const Stream& stream, const Tensor& from, const Tensor& to) override;
  void pack_bucket(const Stream& stream, std::span<const Transfer> transfers,
                   double factor) override;
  void convert(const Stream& stream, const Tensor& from, const Tensor& to, double factor) override;
  void unpack_bucket(const Stream& stream, std::span<const Transfer> transfers) override;
  void reduce_in_rank_order(const Stream& stream, const Tensor& from, const Tensor& to,
                            double factor) override;
  void upload(const Stream& stream, const PinnedMemory& from, std::size_t offset, std::byte* to,
              std::size_t bytes) override;
  void download(const Stream& stream, const std::byte* from, const PinnedMemory& to,
                std::size_t offset, std::size_t bytes) override;

  // Like the functions above, with any memory of the host. If it is not pinned, upload() copies it
  // before it returns, and download() waits for the stream.
  void upload(const Stream& stream, const std::byte* from, std::byte* to, std::size_t bytes);
  void download(const Stream& stream, const std::byte* from, std::byte* to, std::size_t bytes);
  // Submits work of other components to a stream: a collective, or a user's kernel. `body` runs on
  // the stream's fiber.
  void submit(const Stream& stream, std::string name, std::vector<Touch> touches,
              std::function<void()> body);

  // The host accesses memory at once, without waiting for anything.
  void host_read(const std::byte* data, std::span<std::byte> into, std::string name = "read");
  void host_write(std::byte* data, std::span<const std::byte> from, std::string name = "write");

  // Sets the name of these bytes in findings, until they are released.
  void label(const std::byte* data, std::size_t bytes, std::string name);
  // To be read when the run has ended, and nobody else uses the device.
  const std::vector<Finding>& findings() const LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS {
    return findings_.all;
  }

  void stop();  // stops the device now

 private:
  friend class StreamGuard;
  struct Task {
    std::string name;
    // The number among the operations. Zero means that the task is no operation, and that no fault
    // of the plan acts on it.
    std::uint64_t number = 0;
    std::size_t awaited_line = 0;  // for a wait: the line it waits for
    std::uint64_t awaited = 0;     // it waits until that line has passed this point; 0: no wait
    platform::Duration duration{0};
    std::function<void()> body;
  };
  struct Line {
    SimDevice* device = nullptr;
    std::uint64_t handle = 0;
    std::deque<Task> queue;
    std::uint64_t submitted = 0;  // the number of tasks so far; a task's number is its point
    std::uint64_t passed = 0;
    VectorClock clock;  // the clock of the last submission
    std::map<std::uint64_t, VectorClock> events;
    platform::Thread thread;
  };

  std::size_t add_line(const std::string& name) LOCKSTEP_EXCLUDES(mutex_);
  std::size_t line_of(const Stream& stream) const LOCKSTEP_REQUIRES(mutex_);
  Tensor borrowed(const Tensor& tensor);
  void run_line(std::size_t line);
  bool is_over() const LOCKSTEP_REQUIRES(mutex_) { return is_stopped_ || !failure_.ok(); }
  void execute(Line& line, Task task) LOCKSTEP_REQUIRES(mutex_);

  void advance(std::size_t line) LOCKSTEP_REQUIRES(mutex_);
  std::shared_ptr<const Actor> begin(std::size_t line, std::string operation)
      LOCKSTEP_REQUIRES(mutex_);
  std::shared_ptr<const Actor> begin_on_host(std::string operation) LOCKSTEP_REQUIRES(mutex_);
  bool touch(const std::shared_ptr<const Actor>& actor, const Touch& touch)
      LOCKSTEP_REQUIRES(mutex_);
  void check_order(Block& block, const Access& access) LOCKSTEP_REQUIRES(mutex_);
  static Place place_of(const Block& block, const Access& access);
  void push(std::size_t line, Task task) LOCKSTEP_REQUIRES(mutex_);
  std::uint64_t record_on(std::size_t line) LOCKSTEP_REQUIRES(mutex_);
  void wait_on(std::size_t line, std::size_t other, std::uint64_t point) LOCKSTEP_REQUIRES(mutex_);
  void note(std::size_t line, Block& block) LOCKSTEP_REQUIRES(mutex_);
  void check_need(const Block& given_back) LOCKSTEP_REQUIRES(mutex_);
  void submit_on(std::size_t line, std::string name, std::span<const Touch> touches,
                 std::function<void()> body) LOCKSTEP_REQUIRES(mutex_);

  static constexpr std::size_t kHost = 0;
  static constexpr std::size_t kReclaim = 1;  // it waits for the users of released memory
  static constexpr std::size_t kFirstStream = 2;
  static constexpr std::size_t kMaxLines = kFirstStream + 63;

  const DeviceOptions options_;
  HostDevice arithmetic_;
  BorrowedMemory borrowed_;
  platform::Atomic<std::uint64_t> allocated_{0};
  platform::Atomic<bool> is_left_{false};

  platform::Mutex mutex_{"sim.device"};
  platform::CondVar changed_{"sim.device"};
  // The lines by number. The host's line uses only its clock.
  std::deque<Line> lines_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> spare_ LOCKSTEP_GUARDED_BY(mutex_);  // handles of streams given back
  SimMemory memory_ LOCKSTEP_GUARDED_BY(mutex_);
  // The pinned memory that was taken last, by which fiber, and when.
  struct TakenMemory {
    std::uint32_t fiber = 0;
    const Block* block = nullptr;
    std::uint64_t step = 0;  // of the scheduler
  };
  TakenMemory last_pinned_ LOCKSTEP_GUARDED_BY(mutex_);
  // By fiber: the handles of the streams that its guards have made current, the innermost last.
  std::map<std::uint32_t, std::vector<std::uint64_t>> current_ LOCKSTEP_GUARDED_BY(mutex_);
  struct Findings {
    std::vector<Finding> all;
    // The races that are there already: line and number of each of the two operations.
    std::set<std::array<std::uint64_t, 4>> known;
  };
  Findings findings_ LOCKSTEP_GUARDED_BY(mutex_);
  std::uint64_t operations_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::uint64_t allocations_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  Status failure_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_stopped_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_closing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

// Sets the current stream of the calling fiber while the guard lives. Guards nest.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  SimDevice& device_;
  std::uint32_t fiber_;
};

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
