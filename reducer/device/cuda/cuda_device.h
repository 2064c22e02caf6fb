// CudaDevice is the memory and arithmetic of a GPU (see device.h). All work is submitted
// asynchronously. The one call that waits for the GPU is synchronize(), which polls until its
// deadline and does not block in the driver, so a collective that hangs on the GPU does not block
// its caller. Two things may wait in the driver. A submission may, while about a thousand launches
// are pending on the GPU (no polling thread waits for it). Setting up may, which is open(),
// new_stream(), adopt(), and allocate_pinned() when no memory is spare. So set up before
// collectives run. open() loads all kernels, and each stream has its memory for tables of launches
// from the beginning; only a table beyond kTableBytes, or one more than kTables that are pending on
// the GPU, needs further memory.
//
// Streams: the device has one of its own, its current stream. Further ones come from new_stream()
// or are borrowed from the user (adopt); there are at most 63 in all, and they live as long as the
// device. new_stream() reuses a stream that was given back, without its earlier failures. None of
// them waits for CUDA's legacy default stream. Events are numbers of points in a stream
// (cuda_stream.h).
//
// Memory: storages are allocated in stream order from a pool of the device, which returns nothing
// to the system before the device ends. The home of a storage is the stream that is current when
// the storage is allocated. Another stream that works on the storage through this class, or calls
// note_use(), first waits for the home stream, once; the memory is then not used again before that
// stream is done with it, too. With its last reference the storage is freed on its home if no other
// stream used it, and otherwise on a stream that only waits for all streams that did. So no thread
// waits, and the memory outlives every use by a stream, whatever thread submitted it. When the GPU
// refuses such a wait, the device keeps the memory until it ends. A Storage of this device may also
// refer to memory that was allocated elsewhere: no stream waits because of it, and it stays its
// owner's.
//
// Several GPUs of one process: where they can reach each other, each may use memory of the other's
// pool. NCCL up to 2.22 writes to buffers of peers in its own process, and assumes that it may; the
// memory of a pool has to be made accessible to the other GPU for that. The second of two devices
// that is opened does so.
//
// The tensors of every operation must lie on this device, which is checked. No operation copies
// from another GPU or from the host (use upload() and download() for that, with pinned memory).
// Only wait() takes events of another CudaDevice.
//
// Arithmetic: the bits are those of HostDevice (contract G2, G3, G9). The kernels are in
// kernel_bodies.h. A whole bucket takes one launch, and one copy of a table before it when it has
// more than a thousand parameters.
//
// Threads: as Device says. Each stream takes one operation at a time, as a whole, and whoever
// submits another waits for that. A call may leave this device current on its thread; it restores
// the device that was current before if that one has a context.
// Ownership: the device outlives its storages, streams and pinned memory.
// Failure: a stream remembers a submission that fails, and reports it when somebody synchronizes an
// event that was recorded after it. Until the failure has been reported, or passed to another
// stream by wait(), every such event has it; events that are recorded afterwards do not
// (cuda_stream.h). A failure on the GPU itself is reported for ever. The destructor waits for the
// streams, a user's too, for at most ten seconds. What is still in use then is left to the end of
// the process, and so is everything after leave_to_process().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reducer/device/cuda/cuda_stream.h"
#include "reducer/device/cuda/launch_plan.h"
#include "reducer/device/device.h"

struct CUmemPoolHandle_st;

namespace lockstep {
inline namespace LOCKSTEP_NS {

class CudaDevice final : public Device {
 public:
  // Enough for about 2,000 parameters.
  static constexpr std::size_t kTableBytes = std::size_t{64} << 10;
  static constexpr int kTables = 4;  // For each stream.

  // Opens the GPU with that number. It returns kInvalidArgument, with an error that says what to
  // do, if there is no driver, if the driver is too old, if there is no such GPU, or if the kernels
  // were not compiled for it. If the process has opened other GPUs, the call may wait for what runs
  // on them.
  static Result<std::unique_ptr<CudaDevice>> open(int ordinal);
  ~CudaDevice() override;

  int index() const override { return ordinal_ + 1; }  // The host has index 0.
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }

  // Aligned to 256 bytes. It returns kOutOfMemory when the GPU has no memory left.
  Result<Ref<Storage>> allocate(std::size_t bytes) override;
  void release(std::byte* data, std::size_t bytes) override;
  std::uint64_t allocated_bytes() const override { return allocated_.load(); }
  // This is set-up, which may wait for all that runs on the GPU, unless memory of that size is
  // spare.
  Result<PinnedMemory> allocate_pinned(std::size_t bytes) override;
  void release_pinned(std::byte* data, std::size_t capacity) override;

  Stream current_stream() override { return {this, current_.load()}; }
  void set_current_stream(const Stream& stream);
  Result<Stream> new_stream() override;
  void give_back(const Stream& stream) override;  // Not for the current stream, nor for a user's.
  void leave_to_process() override { is_left_ = true; }
  bool is_left() const { return is_left_; }
  // Adopts a cudaStream_t of the user's, which must outlive the device.
  Result<Stream> adopt(CUstream_st* native);
  void* native(const Stream& stream) override;  // Returns a cudaStream_t.

  Event record(const Stream& stream) override;
  void wait(const Stream& stream, const Event& event) override;
  Status synchronize(const Event& event, platform::Deadline deadline) override;
  // Call it before work on a storage is submitted without going through this class.
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

 private:
  struct Line;
  struct Staging;
  struct Range {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    bool has(const std::byte* data) const { return data >= begin && data < end; }
  };
  struct Allocation {
    std::size_t bytes = 0;
    std::uint64_t home = 0;     // The handle of a stream.
    std::uint64_t used_by = 0;  // The bits of the handles of other streams.
    // True if the memory stays until the device ends, because no order existed to free it in.
    bool is_kept = false;
  };

  CudaDevice(int ordinal, std::string name);
  Status start();
  Status meet_others();
  Result<std::uint64_t> add_line(CUstream_st* native, bool is_owned);
  Status add_staging(Line& line, std::size_t bytes);
  void free_staging(Line& line);
  Line& line_at(std::uint64_t handle);
  Line& line_of(const Stream& stream);
  // For the destructor, when no other thread uses the device.
  bool becomes_idle(platform::Deadline deadline) LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS;
  void nap(platform::Deadline deadline);
  // The caller of these holds the mutex of the line.
  Range note_use(Line& user, std::uint64_t handle, const std::byte* data);
  void note_uses(Line& user, const Stream& stream, const Tensor& from, const Tensor& to);
  void note_uses(Line& user, const Stream& stream, std::span<const Transfer> transfers);
  void launch(Line& line);
  template <class Plan, class... Used>
  void launch(const Stream& stream, const Plan& plan, const Used&... used);
  Staging* stage(Line& line);

  const int ordinal_;
  const std::string name_;
  CUmemPoolHandle_st* pool_ = nullptr;
  std::unique_ptr<CudaStream> reclaim_;  // Frees storages that several streams used.
  platform::Atomic<std::uint64_t> current_{0};
  platform::Atomic<std::uint64_t> allocated_{0};
  platform::Atomic<bool> is_left_{false};

  // Comes after cuda.line and before cuda.stream in the lock order.
  platform::Mutex mutex_{"cuda.device"};
  // By handle; a Line never moves.
  std::vector<std::unique_ptr<Line>> lines_ LOCKSTEP_GUARDED_BY(mutex_);
  platform::Atomic<std::uint64_t> line_count_{0};
  // The handles of streams that were given back.
  std::vector<std::uint64_t> spare_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<const std::byte*, Allocation> allocations_ LOCKSTEP_GUARDED_BY(mutex_);
  // By capacity.
  std::multimap<std::size_t, std::byte*> spare_pinned_ LOCKSTEP_GUARDED_BY(mutex_);

  platform::Mutex nap_mutex_{
      "cuda.nap"};  // Guards nothing: a thread waits with it for time to pass, and nobody notifies.
  platform::CondVar nap_{"cuda.nap"};
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
