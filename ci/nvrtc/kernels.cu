// The kernels of reducer/device/cuda/kernels.cu, for a compiler that knows no host code: the same
// template, and by name each kernel that launch() may start.
#include "reducer/device/cuda/kernel_bodies.h"

namespace lockstep {

void check_failed(const char*, int, const char*, const std::string&) { __trap(); }

namespace kernels {

template <class Op, class Segments>
__global__ void __launch_bounds__(kThreads) run_kernel(const __grid_constant__ Segments argument) {
  run<Op>(argument, blockIdx.x, threadIdx.x);
}

#define FEW(...)                                                 \
  template __global__ void run_kernel<__VA_ARGS__, FewSegments>( \
      const __grid_constant__ FewSegments);
#define MANY(...)                                                 \
  FEW(__VA_ARGS__)                                                \
  template __global__ void run_kernel<__VA_ARGS__, ManySegments>( \
      const __grid_constant__ ManySegments);
#define OF_EACH_FORMAT(DO) DO(Float64) DO(Float32) DO(Float16) DO(BFloat16)

#define SAME(F) MANY(Scale<F>) FEW(Add<F>) FEW(Fold<F>)
OF_EACH_FORMAT(SAME)
MANY(Move<std::uint8_t>)
MANY(Move<std::uint16_t>)
MANY(Move<std::uint32_t>)
MANY(Move<std::uint64_t>)
FEW(Convert<Float64, Float32>)
FEW(Convert<Float64, Float16>)
FEW(Convert<Float64, BFloat16>)
FEW(Convert<Float32, Float64>)
FEW(Convert<Float32, Float16>)
FEW(Convert<Float32, BFloat16>)
FEW(Convert<Float16, Float64>)
FEW(Convert<Float16, Float32>)
FEW(Convert<Float16, BFloat16>)
FEW(Convert<BFloat16, Float64>)
FEW(Convert<BFloat16, Float32>)
FEW(Convert<BFloat16, Float16>)

}  // namespace kernels
}  // namespace lockstep
