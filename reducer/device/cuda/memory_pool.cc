#include "reducer/device/cuda/memory_pool.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <string>

#include "reducer/device/cuda/cuda_error.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Status make_pool(int ordinal, CUmemPoolHandle_st*& pool) {
  int has_pools = 0;
  int error = cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, ordinal);
  if (error == cudaSuccess && has_pools == 0) error = cudaErrorNotSupported;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal;
  if (error == cudaSuccess) error = cudaMemPoolCreate(&pool, &properties);
  if (error != cudaSuccess) return cuda_failure(error, ordinal, "making a pool of memory");
  std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
  error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
  // A stream must not wait for another one only to get that stream's memory.
  int no = 0;
  if (error == cudaSuccess)
    error = cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &no);
  if (error != cudaSuccess) return cuda_failure(error, ordinal, "setting up its pool of memory");
  return {};
}

Status open_pool(CUmemPoolHandle_st* pool, int ordinal, int other) {
  int can_reach = 0;
  int error = cudaDeviceCanAccessPeer(&can_reach, other, ordinal);
  if (error == cudaSuccess && can_reach == 0) return {};
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = other;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  if (error == cudaSuccess) error = cudaMemPoolSetAccess(pool, &access, 1);
  if (error == cudaSuccess) return {};
  return cuda_failure(error, ordinal,
                      "opening its pool of memory to device " + std::to_string(other));
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
