// NcclHeaderExchange is the agreement of a group (F6): the ranks gather the headers of what each is
// about to run, on the group's stream, and compare them.
//
// Threads: submit() by the issuing thread; compare() by the watchdog, when the event that submit()
// returned has come. The two work on one slot after the other, never on the same one.
// Ownership: everything in flight must have ended before this object is destroyed.
#pragma once

#include <cstdint>
#include <vector>

#include "reducer/comm/collective_header.h"
#include "reducer/comm/nccl/nccl_link.h"
#include "reducer/comm/nccl/nccl_payload.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class NcclHeaderExchange {
 public:
  // The number of exchanges that may be in flight at once.
  static constexpr std::uint64_t kSlots = 16;

  NcclHeaderExchange(NcclLink& link, Device& device, const Stream& stream, int rank, int size);

  // Makes room for kSlots exchanges. Call it before the first submit().
  Status reserve();
  // Submits the exchange of this header, and returns the event at which all
  // headers are in host memory.
  Result<Event> submit(const CollectiveHeader& header);
  // Compares what came, see compare_headers(). An `own` that came back changed is kTransport.
  Status compare(const CollectiveHeader& own);

 private:
  std::size_t offset_of(const CollectiveHeader& own) const;  // Of its slot, in bytes.

  NcclLink& link_;
  Device& device_;
  const Stream stream_;
  const int rank_;
  const int size_;
  // Each has kSlots times the headers that it holds.
  StreamMemory gathered_;  // In the memory of the GPU.
  PinnedMemory sent_;
  PinnedMemory received_;
  std::vector<CollectiveHeader> compared_;  // Only the watchdog uses it.
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
