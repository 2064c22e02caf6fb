#include "reducer/comm/staging_stream.h"

#include <utility>

#include "reducer/base/check.h"
#include "reducer/device/grow.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

std::size_t data_bytes_of(const Collective& collective) {
  return static_cast<std::size_t>(collective.count) * size_of(collective.dtype);
}

}  // namespace

StagingStream::StagingStream(Device& device, const Stream& stream, int rank, int size)
    : device_(device), stream_(stream), rank_(rank), size_(size) {
  LOCKSTEP_CHECK_LE(0, rank);
  LOCKSTEP_CHECK_LT(rank, size);
}

std::size_t StagingStream::gathered_bytes(const Collective& collective) const {
  LOCKSTEP_CHECK(collective.op == Op::kAllGather);
  return data_bytes_of(collective) * static_cast<std::size_t>(size_);
}

Result<Event> StagingStream::download(const Collective& collective, Memory& memory) {
  LOCKSTEP_CHECK(collective.device == &device_);
  const std::size_t bytes = data_bytes_of(collective);
  const bool gathers = collective.op == Op::kAllGather;
  const std::size_t all = gathers ? gathered_bytes(collective) : 0;
  if (Status status = grow(device_, memory.data, bytes); !status.ok())
    return failed(std::move(status));
  if (Status status = grow(device_, memory.gathered, all); !status.ok())
    return failed(std::move(status));
  const platform::MutexLock lock(submitting_);
  device_.wait(stream_, collective.ready);
  if (bytes > 0) {
    device_.note_use(stream_, collective.data);
    if (gathers) device_.note_use(stream_, collective.gathered);
  }
  const bool is_needed = collective.op != Op::kBroadcast || collective.root == rank_;
  if (is_needed && bytes > 0) device_.download(stream_, collective.data, memory.data, 0, bytes);
  return device_.record(stream_);
}

void StagingStream::upload(const Collective& collective, const Memory& memory) {
  LOCKSTEP_CHECK(collective.device == &device_);
  const platform::MutexLock lock(submitting_);
  const std::size_t bytes = data_bytes_of(collective);
  LOCKSTEP_CHECK_LE(bytes, memory.data.bytes());
  if (collective.op == Op::kAllGather) {
    LOCKSTEP_CHECK_LE(gathered_bytes(collective), memory.gathered.bytes());
    device_.upload(stream_, memory.gathered, 0, collective.gathered, gathered_bytes(collective));
  } else if (bytes > 0) {
    device_.upload(stream_, memory.data, 0, collective.data, bytes);
  }
}

Event StagingStream::record() {
  const platform::MutexLock lock(submitting_);
  return device_.record(stream_);
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
