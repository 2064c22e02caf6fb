// TensorMemory: writes and reads tensors for a lane, in host memory or on a GPU. For host tensors
// it accesses their memory directly. For a GPU it uses pinned memory, from which the GPU copies
// when its stream gets there, in the same way as with the results of a user's kernels.
//
// Threads: any engine worker of the rank may call fill(); only the training thread calls the rest.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reducer/device/device.h"
#include "reducer/tensor/tensor.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Makes a request for memory that is the lane's, and not the program's or the reducer's. If the
// fault plan refuses it, it is made again: a plan has few faults, and each of them acts once.
template <class Ask>
auto until_given(const Ask& ask) {
  constexpr int kMostRefusals = 64;
  const auto is_refused = [](const auto& got) {
    if constexpr (requires { got.code(); })
      return got.code() == Code::kOutOfMemory;
    else
      return !got && got.error().code() == Code::kOutOfMemory;
  };
  auto got = ask();
  for (int refusals = 0; refusals < kMostRefusals && is_refused(got); ++refusals) got = ask();
  return got;
}

// Copies a dense tensor to another one of the same elements, by `way`: 0 row-major, 1 column-major,
// 2 with gaps.
Result<Tensor> in_other_strides(const Tensor& tensor, std::size_t way);

class TensorMemory {
 public:
  TensorMemory() = default;
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;
  ~TensorMemory() { settle(); }

  // Calls write(memory), which fills all elements of a dense tensor, in their memory order.
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

  // Waits for everything that was submitted, and returns the memory from the tensor's first element
  // to its last. It is valid until the next call; on the host, as long as the tensor.
  const std::byte* read(const Tensor& tensor);

  // Waits for the GPU, and releases the pinned memory.
  void settle();

 private:
  void submit(PinnedMemory pinned, const Tensor& tensor, std::size_t bytes);

  platform::Mutex mutex_{"harness.memory"};
  // The memory of copies that may not have run yet. Guarded by mutex_.
  std::vector<PinnedMemory> in_use_;
  Device* device_ = nullptr;  // the device of in_use_
  std::vector<std::byte> copy_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
