// TensorMemory: how a lane writes to tensors and reads them, whether they lie on the host or on a
// GPU. On the host that is where they are; on a GPU it is pinned memory, from which the GPU
// copies when its stream gets there, as it does with what a user's kernels compute.
//
// Threads: fill() from any engine worker of the rank; the rest from the training thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reducer/device/device.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class TensorMemory {
 public:
  TensorMemory() = default;
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;
  ~TensorMemory() { settle(); }

  // Calls write(memory), which fills all elements of a dense tensor, in their order in memory.
  template <class Write>
  Status fill(const Tensor& tensor, const Write& write) {
    if (tensor.device().is_host()) {
      write(tensor.data());
      return {};
    }
    const std::size_t bytes = static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype());
    Result<PinnedMemory> pinned = tensor.device().allocate_pinned(bytes);
    if (!pinned) return pinned.error();
    write(pinned->to_write(0, bytes));
    submit(std::move(*pinned), tensor, bytes);
    return {};
  }

  // The tensor's first element and all up to its last one, when everything that was submitted is
  // done. Valid until the next call, on the host as long as the tensor.
  const std::byte* read(const Tensor& tensor);

  // Waits for the GPU, and gives its pinned memory back.
  void settle();

 private:
  void submit(PinnedMemory pinned, const Tensor& tensor, std::size_t bytes);

  platform::Mutex mutex_{"harness.memory"};
  std::vector<PinnedMemory> in_use_;  // by copies that may be ahead; guarded by mutex_
  Device* device_ = nullptr;          // theirs
  std::vector<std::byte> copy_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
