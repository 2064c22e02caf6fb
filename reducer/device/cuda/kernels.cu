// The kernels on a card: their bodies are in kernel_bodies.h.
#include "reducer/device/cuda/kernel_bodies.h"
#include "reducer/device/cuda/kernels.h"

namespace lockstep::kernels {
namespace {

template <class Op>
__global__ void __launch_bounds__(kThreads) run_kernel(const __grid_constant__ Table table) {
  run<Op>(table, blockIdx.x, threadIdx.x);
}

}  // namespace

int launch(const Operation& operation, std::uint32_t blocks, const Table& table,
           CUstream_st* stream) {
  LOCKSTEP_CHECK(blocks > 0);
  LOCKSTEP_CHECK(table.segments > 0);
  cudaError_t error = cudaSuccess;
  with_operation(operation, [&]<class Op>(Op) {
    void* arguments[] = {const_cast<Table*>(&table)};
    error = cudaLaunchKernel(reinterpret_cast<const void*>(&run_kernel<Op>), dim3(blocks),
                             dim3(kThreads), arguments, 0, stream);
  });
  return error;
}

int load() {
  constexpr DType kFloats[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  cudaError_t error = cudaSuccess;
  const auto load_one = [&]<class Op>(Op) {
    cudaFuncAttributes attributes{};
    if (error == cudaSuccess)
      error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&run_kernel<Op>));
  };
  for (const DType dtype : {DType::kByte, DType::kFloat16, DType::kFloat32, DType::kFloat64})
    with_operation({Kind::kMove, dtype, dtype}, load_one);
  for (const DType from : kFloats) {
    with_operation({Kind::kAdd, from, from}, load_one);
    with_operation({Kind::kFold, from, from}, load_one);
    for (const DType to : kFloats) with_operation({Kind::kConvert, from, to}, load_one);
  }
  return error;
}

}  // namespace lockstep::kernels
