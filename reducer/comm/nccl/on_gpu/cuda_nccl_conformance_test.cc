// NCCL on a GPU does what the reducer relies on: the tests that the simulated NCCL passes, with
// ranks as processes that share the GPU. LOCKSTEP_NCCL names the library, else the loader finds
// libnccl.so.2. A program of its own, as this process must not use CUDA before it forks. Where
// there is no GPU, each test is skipped.
#include <gtest/gtest.h>

#include <cstdlib>

#include "reducer/comm/nccl/test_nccl_group_conformance.h"
#include "reducer/comm/nccl/test_nccl_processes.h"
#include "reducer/device/cuda/cuda_device.h"

namespace lockstep {
namespace {

struct Gpu {
  static std::string library() {
    const char* const named = std::getenv("LOCKSTEP_NCCL");
    return named != nullptr ? named : kNcclDefaultLibrary;
  }
  static Result<std::unique_ptr<Device>> open() {
    Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
    if (!opened) return failed(opened.error());
    return std::unique_ptr<Device>(std::move(*opened));
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(CudaNccl, NcclConformance, NcclProcesses<Gpu>);
INSTANTIATE_TYPED_TEST_SUITE_P(CudaNccl, NcclGroupConformance, NcclProcesses<Gpu>);

}  // namespace
}  // namespace lockstep
