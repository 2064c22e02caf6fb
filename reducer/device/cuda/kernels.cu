// The kernels on a GPU: their bodies are in kernel_bodies.h.
#include "reducer/device/cuda/kernel_bodies.h"
#include "reducer/device/cuda/kernels.h"

namespace lockstep::kernels {
namespace {

template <class Op, class Segments>
__global__ void __launch_bounds__(kThreads)
    run_kernel(const __grid_constant__ Segments argument) {
  run<Op>(argument, blockIdx.x, threadIdx.x);
}

template <class Op, class Segments>
const void* kernel_of() {
  return reinterpret_cast<const void*>(&run_kernel<Op, Segments>);
}

}  // namespace

int launch(const Operation& operation, std::uint32_t blocks, const ManySegments& argument,
           CUstream_st* stream) {
  LOCKSTEP_CHECK(blocks > 0);
  LOCKSTEP_CHECK(argument.table.segments > 0);
  const bool are_many = argument.table.near_bytes > kFewBytes;
  cudaError_t error = cudaSuccess;
  with_operation(operation, [&]<class Op>(Op) {
    LOCKSTEP_CHECK(Op::kTakesMany || !are_many);
    const void* kernel = kernel_of<Op, FewSegments>();
    if constexpr (Op::kTakesMany)
      if (are_many) kernel = kernel_of<Op, ManySegments>();
    void* arguments[] = {const_cast<ManySegments*>(&argument)};
    error = cudaLaunchKernel(kernel, dim3(blocks), dim3(kThreads), arguments, 0, stream);
  });
  return error;
}

int load() {
  constexpr DType kFloats[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  cudaError_t error = cudaSuccess;
  const auto load_one = [&]<class Op>(Op) {
    cudaFuncAttributes attributes{};
    if (error == cudaSuccess)
      error = cudaFuncGetAttributes(&attributes, kernel_of<Op, FewSegments>());
    if constexpr (Op::kTakesMany)
      if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, kernel_of<Op, ManySegments>());
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
