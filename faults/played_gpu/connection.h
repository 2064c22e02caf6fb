// Sending and Receiving are one operation's ends of NCCL's connections, as kernels.h describes
// them. A slot may be used when is_ready(); post() hands it on. The step is kept in the connection,
// so that the next kernel goes on where this one ended.
//
// Threads: the channel's. Ownership: NCCL's, for longer than the operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "faults/played_gpu/layout.h"

namespace lockstep::played {

inline std::uint64_t loaded(const std::uint64_t* value) {
  return __atomic_load_n(value, __ATOMIC_ACQUIRE);
}

class End {
 public:
  End(const Layout& layout, Connection& connection, int steps_per_slice, int slices_per_chunk)
      : layout_(layout),
        connection_(connection),
        steps_(static_cast<std::uint64_t>(steps_per_slice)),
        step_(rounded(connection.step, steps_ * static_cast<std::uint64_t>(slices_per_chunk))) {}
  ~End() { connection_.step = step_; }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

 protected:
  static std::uint64_t rounded(std::uint64_t step, std::uint64_t unit) {
    return (step + unit - 1) / unit * unit;
  }
  std::byte* entry() const { return connection_.fifo + step_ % kSteps * layout_.fifo_entry_bytes; }
  // The slot lies where the entry says, or in its turn.
  std::byte* slot() const {
    std::byte* const buffer = connection_.buffers[kSimple];
    if (connection_.fifo != nullptr) {
      std::int32_t mode = 0;
      std::memcpy(&mode, entry(), sizeof mode);
      if (mode == kOffsetMode) {
        std::int64_t offset = 0;  // of 4 or 8 bytes, little-endian, and never negative
        std::memcpy(&offset, entry() + layout_.fifo_offset, layout_.fifo_offset_bytes);
        return buffer + offset;
      }
    }
    return buffer + step_ % kSteps * static_cast<std::uint64_t>(connection_.step_bytes);
  }

  static constexpr std::int32_t kOffsetMode = 1;

  const Layout& layout_;
  Connection& connection_;
  const std::uint64_t steps_;
  std::uint64_t step_;
};

class Sending : public End {
 public:
  using End::End;
  bool is_ready() const { return loaded(connection_.head) + kSteps >= step_ + steps_; }
  std::byte* begin(std::size_t bytes) {
    if (connection_.fifo != nullptr) {
      const auto size = static_cast<std::int64_t>(bytes);
      std::memcpy(entry() + layout_.fifo_size, &size, sizeof size);
    }
    return slot();
  }
  void post() {
    step_ += steps_;
    __atomic_store_n(connection_.tail, step_, __ATOMIC_RELEASE);
  }
};

class Receiving : public End {
 public:
  Receiving(const Layout& layout, Connection& connection, int steps_per_slice, int slices_per_chunk)
      : End(layout, connection, steps_per_slice, slices_per_chunk) {
    __atomic_store_n(connection.head, step_, __ATOMIC_RELEASE);  // the slots that rounding skipped
  }
  bool is_ready() const { return loaded(connection_.tail) >= step_ + steps_; }
  const std::byte* begin() const { return slot(); }
  void post() {
    step_ += steps_;
    __atomic_store_n(connection_.head, step_, __ATOMIC_RELEASE);
  }
};

}  // namespace lockstep::played
