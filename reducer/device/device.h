// Device: where tensors live and where the reducer's arithmetic on them runs. Stream: an ordered
// queue of such work. Event: a point in a stream that another stream, or the host, can wait for.
//
// The interface is asynchronous: an operation has been *submitted* when its call returns, and its
// operands must stay alive and unwritten until the stream has passed it. The host device runs
// everything at once, so its events are always complete. Threads: all calls from any thread, for
// one stream too; what two submit to it at once has no order, and must not need one. Failure:
// allocation can fail and says so; that of submitted work shows when the event is waited for.
// Arithmetic (G2, G3, G9, G11): every operation rounds once to the tensor's dtype, to nearest, ties
// to even; float16 and bfloat16 are computed in float; no fused multiply-add, no flush to zero,
// whatever the calling thread's own floating-point environment is.
//
// The host must not touch the memory of a device that is not the host's: upload() and download()
// bring it there and back, through PinnedMemory; read() and write() below are both in one, and
// wait.
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

// One gradient on its way between its own strides and its place in a bucket, where it lies dense in
// `order`'s strides.
struct Transfer {
  const Tensor* gradient = nullptr;
  std::byte* slot = nullptr;
  const Shape* order = nullptr;  // the parameter's dense shape: the order of elements in the slot
};

// Memory of the host that a device copies from and to by itself. It goes back to its device for the
// next one, so no stream may have a copy of it ahead when it is destroyed.
//
// The host goes in and out by the calls below, which tell the device first, so that a simulated one
// sees a host that does not wait for a copy.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  // For devices. `capacity` of its bytes are the device's again later.
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
  // For the host to write, and read, at once.
  std::byte* to_write(std::size_t offset, std::size_t bytes) const;
  // For devices, whose copies are later.
  std::byte* data() const { return data_; }
  // Left to the end of the process: a copy of it is ahead, and nobody waits for that any more.
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

  // Workers of the autograd engine are numbered by it: 0 is served by the thread that calls
  // backward (see autograd/engine.h).
  virtual int index() const = 0;
  // Whether its memory is the host's, and all work is done when its call returns.
  virtual bool is_host() const { return false; }

  virtual Result<Ref<Storage>> allocate(std::size_t bytes) = 0;  // aligned to 64 bytes at least
  virtual void release(std::byte* data, std::size_t bytes) = 0;  // called by ~Storage
  virtual std::uint64_t allocated_bytes() const = 0;             // alive now
  virtual Result<PinnedMemory> allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(std::byte* data, std::size_t capacity) = 0;  // by ~PinnedMemory
  // What the host is about to do with bytes of pinned memory.
  virtual void note_host_read(const std::byte* /*data*/, std::size_t /*bytes*/) {}
  virtual void note_host_write(const std::byte* /*data*/, std::size_t /*bytes*/) {}

  virtual Stream current_stream() = 0;
  virtual Result<Stream> new_stream() = 0;  // lives as long as the device
  // A stream from new_stream() that its user is done with: what was submitted to it is over, or in
  // the way of nobody. The device may give it to the next who asks for one.
  virtual void give_back(const Stream&) {}
  // Something that works with the device does not end, and keeps what it has of it for as long as
  // the process lives. So does the device, at its end: it asks for nothing back.
  virtual void leave_to_process() {}
  // What libraries that work on the device call the stream (a cudaStream_t); null for the host.
  virtual void* native(const Stream& stream) = 0;
  // A stream is about to work on a storage past this class: that is not used again before the
  // stream is done with it.
  virtual void note_use(const Stream& stream, const std::byte* data) = 0;
  virtual Event record(const Stream& stream) = 0;
  virtual void wait(const Stream& stream, const Event& event) = 0;
  virtual Status synchronize(const Event& event, platform::Deadline deadline) = 0;

  // Submitted to `stream`:
  virtual void fill_zero(const Stream& stream, std::byte* data, std::size_t bytes) = 0;
  // to = from, element by element; same sizes and dtype, any strides.
  virtual void copy(const Stream& stream, const Tensor& from, const Tensor& to) = 0;
  // to = round(to + from); same sizes and dtype, any strides.
  virtual void add(const Stream& stream, const Tensor& from, const Tensor& to) = 0;
  // slot = round(gradient * factor) for each transfer; factor 1 copies the bits. All of one dtype.
  virtual void pack_bucket(const Stream& stream, std::span<const Transfer> transfers,
                           double factor) = 0;
  // to = round(from * factor): the product in the compute type of from's dtype, then rounded to
  // to's. Same sizes, both dense in the same strides, any dtypes of gradients.
  virtual void convert(const Stream& stream, const Tensor& from, const Tensor& to,
                       double factor) = 0;
  // gradient = slot for each transfer.
  virtual void unpack_bucket(const Stream& stream, std::span<const Transfer> transfers) = 0;
  // to[i] = ((x0[i] + x1[i]) + x2[i]) + ..., each x scaled by `factor` first and rounded (G2, G3).
  // `from` holds the shards one behind the other: its elements are a multiple of to's. Both
  // row-major, of one real dtype.
  virtual void reduce_in_rank_order(const Stream& stream, const Tensor& from, const Tensor& to,
                                    double factor) = 0;
  // `bytes` bytes from, or to, `offset` of the host's memory, which is touched when the stream gets
  // there.
  virtual void upload(const Stream& stream, const PinnedMemory& from, std::size_t offset,
                      std::byte* to, std::size_t bytes) = 0;
  virtual void download(const Stream& stream, const std::byte* from, const PinnedMemory& to,
                        std::size_t offset, std::size_t bytes) = 0;
};

// Between any memory of the host and a device's, on its current stream; back when it is done, or at
// the deadline: then the GPU may still read or write what is its own, and nothing of the host's.
Status write(Device& device, std::span<const std::byte> from, std::byte* to,
             platform::Deadline deadline);
Status read(Device& device, const std::byte* from, std::span<std::byte> to,
            platform::Deadline deadline);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
