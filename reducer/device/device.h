// Device is where tensors live and where the reducer's arithmetic on them runs. Stream is an
// ordered queue of such work. Event is a point in a stream that another stream, or the host, can
// wait for.
//
// The interface is asynchronous: when a call returns, its operation has been *submitted*, and its
// operands must stay alive and unwritten until the stream has passed it. The host device runs
// everything at once, so its events are always complete.
// Threads: any thread may make any call, also for one stream. What two threads submit to a stream
// at once has no order, and must not need one.
// Failure: an allocation that fails returns an error. A failure of submitted work shows when
// somebody waits for the event.
// Arithmetic (G2, G3, G9, G11): every operation rounds once to the tensor's dtype, to nearest, ties
// to even; float16 and bfloat16 are computed in float; there is no fused multiply-add and no flush
// to zero, whatever the calling thread's own floating-point environment is.
//
// The host must not touch the memory of a device other than its own. upload() and download() move
// data there and back through PinnedMemory; read() and write() below combine both and wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reducer/base/dtype.h"
#include "reducer/base/ref.h"
#include "reducer/base/status.h"
#include "reducer/device/stream.h"
#include "reducer/platform/platform.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Transfer is one gradient on its way between its own strides and its place in a bucket, where it
// is dense in the strides of `order`.
struct Transfer {
  const Tensor* gradient = nullptr;
  std::byte* slot = nullptr;
  // The parameter's dense shape, which is the order of the elements in the bucket.
  const Shape* order = nullptr;
};

// PinnedMemory is host memory that a device copies from and to asynchronously. Its destructor
// returns it to the device, which uses it again; so no stream may have a pending copy of it then.
//
// The host reads and writes it through the calls below, which notify the device first, so that a
// simulated device sees a host that does not wait for a copy.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  // For devices. `capacity` is the number of bytes that the device gets back.
  PinnedMemory(Device& device, std::byte* data, std::size_t bytes, std::size_t capacity)
      : device_(&device), data_(data), bytes_(bytes), capacity_(capacity) {}
  PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedMemory();
  std::size_t bytes() const { return bytes_; }
  void write(std::size_t offset, const void* from, std::size_t bytes) const;
  void read(std::size_t offset, void* into, std::size_t bytes) const;
  // Returns the memory for the host to write, and to read, at once.
  std::byte* to_write(std::size_t offset, std::size_t bytes) const;
  // For devices, whose copies happen later.
  std::byte* data() const { return data_; }
  // Leaves the memory to the end of the process: a copy of it is pending, and nobody waits for that
  // any more.
  void abandon() { device_ = nullptr; }

 private:
  void swap(PinnedMemory& other);

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t capacity_ = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // Numbers the workers of the autograd engine: the thread that calls backward serves 0 (see
  // autograd/engine.h).
  virtual int index() const = 0;
  // Whether its memory is host memory, and all work is done when its call returns.
  virtual bool is_host() const { return false; }

  virtual Result<Ref<Storage>> allocate(std::size_t bytes) = 0;  // Aligned to at least 64 bytes.
  virtual void release(std::byte* data, std::size_t bytes) = 0;  // Called by ~Storage.
  virtual std::uint64_t allocated_bytes() const = 0;  // The bytes of all storages that exist now.
  virtual Result<PinnedMemory> allocate_pinned(std::size_t bytes) = 0;
  // Called by ~PinnedMemory.
  virtual void release_pinned(std::byte* data, std::size_t capacity) = 0;
  // Called when the host is about to read or write bytes of pinned memory.
  virtual void note_host_read(const std::byte* /*data*/, std::size_t /*bytes*/) {}
  virtual void note_host_write(const std::byte* /*data*/, std::size_t /*bytes*/) {}

  virtual Stream current_stream() = 0;
  virtual Result<Stream> new_stream() = 0;  // Lives as long as the device.
  // Returns a stream of new_stream() to the device. What was submitted to it is complete, or need
  // not complete before later work. The device may hand the stream out again.
  virtual void give_back(const Stream&) {}
  // Says that work on the device does not end, and that whoever runs it holds its resources for as
  // long as the process lives. So does the device: its destructor frees nothing.
  virtual void leave_to_process() {}
  // The stream as libraries that work on the device know it (a cudaStream_t); null for the host.
  virtual void* native(const Stream& stream) = 0;
  // Says that a stream is about to work on a storage without going through this class. The device
  // does not use the storage's memory again before the stream is done with it.
  virtual void note_use(const Stream& stream, const std::byte* data) = 0;
  virtual Event record(const Stream& stream) = 0;
  virtual void wait(const Stream& stream, const Event& event) = 0;
  virtual Status synchronize(const Event& event, platform::Deadline deadline) = 0;

  // The operations below are submitted to `stream`.
  virtual void fill_zero(const Stream& stream, std::byte* data, std::size_t bytes) = 0;
  // to = from, element by element; same sizes and dtype, any strides.
  virtual void copy(const Stream& stream, const Tensor& from, const Tensor& to) = 0;
  // to = round(to + from); same sizes and dtype, any strides.
  virtual void add(const Stream& stream, const Tensor& from, const Tensor& to) = 0;
  // Computes slot = round(gradient * factor) for each transfer; factor 1 copies the bits. All
  // gradients have one dtype.
  virtual void pack_bucket(const Stream& stream, std::span<const Transfer> transfers,
                           double factor) = 0;
  // Computes to = round(from * factor): the product is in the compute type of from's dtype, and is
  // then rounded to to's dtype. Both tensors have the same sizes, and are dense with the same
  // strides. Each has any dtype that gradients may have.
  virtual void convert(const Stream& stream, const Tensor& from, const Tensor& to,
                       double factor) = 0;
  // Computes gradient = slot for each transfer.
  virtual void unpack_bucket(const Stream& stream, std::span<const Transfer> transfers) = 0;
  // Computes to[i] = ((x0[i] + x1[i]) + x2[i]) + ..., where each x is first scaled by `factor` and
  // rounded (G2, G3). `from` holds the shards one behind the other: its element count is a multiple
  // of that of `to`. Both are row-major and have one real dtype.
  virtual void reduce_in_rank_order(const Stream& stream, const Tensor& from, const Tensor& to,
                                    double factor) = 0;
  // Copies `bytes` bytes from or to the host's memory at `offset`. The copy touches that memory
  // when the stream gets there.
  virtual void upload(const Stream& stream, const PinnedMemory& from, std::size_t offset,
                      std::byte* to, std::size_t bytes) = 0;
  virtual void download(const Stream& stream, const std::byte* from, const PinnedMemory& to,
                        std::size_t offset, std::size_t bytes) = 0;
};

// Copies between any host memory and the memory of a device, on the device's current stream. The
// calls return when the copy is done, or at the deadline. After the deadline the GPU may still read
// or write its own memory, but no memory of the caller.
Status write(Device& device, std::span<const std::byte> from, std::byte* to,
             platform::Deadline deadline);
Status read(Device& device, const std::byte* from, std::span<std::byte> to,
            platform::Deadline deadline);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
