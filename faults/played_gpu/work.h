// Work reads the descriptions that NCCL gives to a kernel: which channels work, and what each does
// in which order.
//
// Pure, but for the memory of NCCL that it reads. Failure: kInvalidArgument for what is not played.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "faults/played_gpu/layout.h"
#include "reducer/base/status.h"

namespace lockstep::played {

// One collective, as one channel sees it. Counts are in elements.
struct CollectiveWork {
  Function function;
  int root = 0;
  std::byte* send_data = nullptr;
  std::byte* receive_data = nullptr;
  std::int64_t count = 0;   // of all channels
  std::int64_t offset = 0;  // of this channel's part
  std::int64_t part = 0;    // of this channel
  std::int64_t chunk = 0;
  bool scalar_is_pointer = false;
  std::uint64_t scalar = 0;
};

// What a channel does at once: a row of collectives, one after the other, or sends and receives
// together.
struct Batch {
  std::vector<CollectiveWork> collectives;
  std::vector<P2pWork> p2p;
  std::uint32_t consumed = 0;  // the end of these descriptions
};

class Work {
 public:
  // `arguments` outlive the object.
  Work(const Layout& layout, std::span<const int> row_to_id, std::span<const std::byte> arguments);

  const KernelArguments& arguments() const { return arguments_; }
  std::vector<int> channels() const;
  // The batches of the channel that is the nth of channels().
  Result<std::vector<Batch>> batches_of(std::size_t nth) const;

 private:
  Result<Batch> read(std::uint32_t kind, std::uint32_t function_id, int channel,
                     const std::vector<WorkBatch>& parts) const;
  const std::byte* description(const WorkBatch& batch, std::size_t index, std::size_t bytes) const;
  Result<CollectiveWork> collective(const std::byte* data, std::uint32_t function_id,
                                    int channel) const;

  const Layout& layout_;
  const std::span<const int> row_to_id_;
  const std::span<const std::byte> bytes_;
  KernelArguments arguments_;
};

// As ncclDataType_t; 0 for a type that is not played.
std::size_t bytes_of_type(int type);

}  // namespace lockstep::played
