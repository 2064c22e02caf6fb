// CudaDevice: memory and arithmetic of a GPU (see device.h). Everything is submitted, and the one
// call that waits for the GPU is synchronize(), which asks it again and again until its deadline
// and does not block in the driver: a collective that hangs on the GPU must not take its caller
// with it. What may wait in the driver is: a submission, while some thousand launches are ahead of
// the GPU (nobody who asks waits for it); and setting up, which is open(), new_stream(), adopt()
// and allocate_pinned() where none is spare. So set up before collectives run. All kernels are
// loaded by open(), and each stream has its places for tables of launches from the beginning; only
// a table beyond kTableBytes, or one more than kTables that are ahead of the GPU, needs another.
//
// Streams: the device has one of its own, its current stream; further ones come from new_stream()
// or are borrowed from the user (adopt), 63 in all, and live as long as the device. One that was
// given back is what new_stream() gives next, without the failures of before. None of them
// waits for CUDA's legacy default stream. Events are numbers of points in a stream (cuda_stream.h).
//
// Memory comes in stream order from a pool of the device's own, from which nothing is given back to
// the system before the device ends. A storage belongs to the stream that is current when it is
// allocated, its home. Another stream that works on it through this class, or says so with
// note_use(), waits for its home first, once, and its memory is not used again before that stream
// is done with it, too: with its last reference the storage is freed on its home if no other stream
// used it, else on a stream that waits for all that did and does nothing else. So nobody waits, and
// what a stream used, by whatever thread, outlives that use. When the GPU refuses such a wait the
// memory is kept until the device ends. A Storage of this device may also be of memory that came
// from elsewhere: nothing waits for its sake, and it stays its owner's.
//
// Several GPUs of one process: where they can reach each other, each may use memory of the other's
// pool. NCCL up to 2.22 writes to buffers of peers in its own process, and takes for granted that
// it may; memory of a pool has to be opened to them. The second of two that is opened does that.
//
// Tensors of every operation are of this device, which is checked: what lies on another GPU, or on
// the host, is not copied from here (upload() and download() are for that, from pinned memory).
// Only wait() takes events of another CudaDevice.
//
// Arithmetic: the bits of HostDevice (contract G2, G3, G9), by the kernels of kernel_bodies.h; one
// launch for a whole bucket, and one copy of a table before it when it has more than a thousand
// parameters.
//
// Threads: as Device says: each stream takes one operation at a time, as a whole, and whoever
// submits another waits for that. A call may leave this device current on its thread; it makes the
// one that was current before it so again if that has a context. Ownership: outlives its storages,
// streams and pinned memory. Failure: a submission that fails is remembered by its stream, and
// shows when an event that was recorded behind it is synchronized. Until it has shown, or gone to
// another stream with wait(), it is in every such event; events that are recorded after that are
// free of it (cuda_stream.h). What fails on the GPU itself shows for ever. The destructor waits
// for the streams, a user's too, for ten seconds at most; what is still in use then is left to the
// end of the process, and so is all of it after leave_to_process().
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
  static constexpr std::size_t kTableBytes = std::size_t{64} << 10;  // some 2,000 parameters
  static constexpr int kTables = 4;                                  // of a stream

  // The GPU of that number. No driver, one that is too old, no such GPU, or one that the kernels
  // were not compiled for: an error that says what to do (kInvalidArgument). Where the process has
  // others open it may wait for what runs on them.
  static Result<std::unique_ptr<CudaDevice>> open(int ordinal);
  ~CudaDevice() override;

  int index() const override { return ordinal_ + 1; }  // 0 is the host's
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }

  // Aligned to 256 bytes. kOutOfMemory when the GPU has none left.
  Result<Ref<Storage>> allocate(std::size_t bytes) override;
  void release(std::byte* data, std::size_t bytes) override;
  std::uint64_t allocated_bytes() const override { return allocated_.load(); }
  // Set-up, which may wait for all that runs on the GPU, unless memory of that size is spare.
  Result<PinnedMemory> allocate_pinned(std::size_t bytes) override;
  void release_pinned(std::byte* data, std::size_t capacity) override;

  Stream current_stream() override { return {this, current_.load()}; }
  void set_current_stream(const Stream& stream);
  Result<Stream> new_stream() override;
  void give_back(const Stream& stream) override;  // not the current one, nor a user's
  void leave_to_process() override { is_left_ = true; }
  // A cudaStream_t of the user's, which outlives the device.
  Result<Stream> adopt(CUstream_st* native);
  void* native(const Stream& stream) override;  // a cudaStream_t

  Event record(const Stream& stream) override;
  void wait(const Stream& stream, const Event& event) override;
  Status synchronize(const Event& event, platform::Deadline deadline) override;
  // For work on a storage that is submitted past this class, before it is.
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
    std::uint64_t home = 0;     // a stream's handle
    std::uint64_t used_by = 0;  // the bits of other streams' handles
    bool is_kept = false;       // until the device ends: there was no order to free it in
  };

  CudaDevice(int ordinal, std::string name);
  Status start();
  Status meet_others();
  Status open_pool_to(const CudaDevice& other);
  Result<std::uint64_t> add_line(CUstream_st* native, bool is_owned);
  Status add_staging(Line& line, std::size_t bytes);
  void free_staging(Line& line);
  Line& line_at(std::uint64_t handle);
  Line& line_of(const Stream& stream);
  bool becomes_idle(platform::Deadline deadline);
  void nap(platform::Deadline deadline);
  // With the line's mutex:
  Range note_use(Line& user, std::uint64_t handle, const std::byte* data);
  void note_uses(Line& user, const Stream& stream, const Tensor& from, const Tensor& to);
  void note_uses(Line& user, const Stream& stream, std::span<const Transfer> transfers);
  void launch(Line& line);
  Staging* stage(Line& line);

  const int ordinal_;
  const std::string name_;
  CUmemPoolHandle_st* pool_ = nullptr;
  std::unique_ptr<CudaStream> reclaim_;  // frees what several streams used
  platform::Atomic<std::uint64_t> current_{0};
  platform::Atomic<std::uint64_t> allocated_{0};
  platform::Atomic<bool> is_left_{false};

  platform::Mutex mutex_{"cuda.device"};  // after cuda.line; before cuda.stream; guards the rest
  std::vector<std::unique_ptr<Line>> lines_;  // by handle; a Line stays where it is
  platform::Atomic<std::uint64_t> line_count_{0};
  std::vector<std::uint64_t> spare_;  // handles of streams that were given back
  std::map<const std::byte*, Allocation> allocations_;
  std::multimap<std::size_t, std::byte*> spare_pinned_;  // by capacity

  platform::Mutex nap_mutex_{
      "cuda.nap"};  // guards nothing: time passes with it, and nobody notifies
  platform::CondVar nap_{"cuda.nap"};
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
