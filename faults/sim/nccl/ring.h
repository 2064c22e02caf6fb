// The data that a stand-in for NCCL moves between ranks for one operation, and the order in which
// it adds. SimNccl uses it over the simulated network, and the library of the nccl lane's tests
// (properties/lane/test_libraries) over the net plug-in. It follows NCCL with one channel, the ring
// algorithm, the Simple protocol and NCCL_NTHREADS=512, where the ring is 0 -> 1 -> ... -> 0.
//
//   all-reduce      One iteration takes one chunk per rank; the last one divides the remainder
//                   evenly, in whole units whose size depends on the version (RingUnits). Chunk c
//                   starts with rank c+1, travels once around the ring and ends with rank c; then
//                   the sums travel around the ring.
//   reduce-scatter  The part of rank d starts with rank d+1 and ends with rank d.
//   broadcast, all-gather  The data travels around the ring.
//
// Each addition rounds once to the element's type. If the operation has a factor
// (ncclRedOpCreatePreMulSum), the first rank computes round(x * k), and each later rank adds with a
// single rounding, fma(x, k, sum).
//
// As in NCCL, the ranks agree on nothing beforehand: a rank takes as much of a message as fits.
// Ranks that call different operations wait for ever, or get garbage within the smaller count.
//
// Threads: one thread or fiber of the rank calls these functions. All functions return false when a
// link has failed; the Lane knows how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "faults/sim/nccl/nccl_profile.h"
#include "reducer/comm/nccl/nccl_api.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

// Returns 0 if NCCL has no such type.
std::size_t size_of(NcclDataType type);

struct NcclReduction {
  bool is_scaled = false;
  double factor = 1;
};

// Reads a scalar of this type.
double read_scalar(NcclDataType type, const std::byte* data);
// Sets out[i] = round(x[i] * factor), or x[i] if the reduction does not scale.
void begin_sum(NcclDataType type, const NcclReduction& reduction, std::byte* out,
               const std::byte* x, std::size_t bytes);
// Sets out[i] = round(x[i] * factor + sum[i]). `out` may be `x` or `sum`.
void add_to_sum(NcclDataType type, const NcclReduction& reduction, std::byte* out,
                const std::byte* x, const std::byte* sum, std::size_t bytes);

// The links of one rank during one operation. What is sent may be changed as soon as send() has
// returned, and send() does not wait for the receiver.
class Lane {
 public:
  Lane(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  int next() const { return (rank_ + 1) % size_; }
  int previous() const { return (rank_ + size_ - 1) % size_; }

  virtual bool send(int to, std::span<const std::byte> bytes) = 0;
  virtual bool receive(int from, std::span<std::byte> bytes) = 0;

 private:
  const int rank_;
  const int size_;
};

bool nccl_ring_all_reduce(Lane& lane, NcclDataType type, const NcclReduction& reduction,
                          std::span<const std::byte> in, std::byte* out, std::size_t chunk_bytes,
                          faults::RingUnits units = faults::RingUnits::k16Bytes);
// `in` holds one part per rank.
bool nccl_ring_reduce_scatter(Lane& lane, NcclDataType type, const NcclReduction& reduction,
                              std::span<const std::byte> in, std::byte* out);
bool nccl_ring_all_gather(Lane& lane, std::span<const std::byte> mine, std::byte* out);
bool nccl_ring_broadcast(Lane& lane, int root, std::span<const std::byte> in, std::byte* out);

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
