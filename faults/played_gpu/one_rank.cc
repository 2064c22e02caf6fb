#include "faults/played_gpu/one_rank.h"

#include <array>
#include <cstring>
#include <string>

#include "faults/played_gpu/gpu.h"
#include "faults/played_gpu/work.h"
#include "faults/sim/nccl/ring.h"

namespace lockstep::played {
namespace {

// The kernel's name holds the type of its elements, as the compiler spells it.
int type_of(const std::string& kernel) {
  constexpr std::array<const char*, 10> kTypes = {"a", "h",       "i", "j", "l",
                                                  "m", "6__half", "f", "d", "13__nv_bfloat16"};
  for (std::size_t type = 0; type < kTypes.size(); ++type)
    if (kernel.find(std::string("oneRankReduceI13FuncPreMulSumI") + kTypes[type] + "E") !=
        std::string::npos)
      return static_cast<int>(type);
  return -1;
}

std::string name_of_kernel(const Nccl& nccl, const void* kernel) {
  const auto address =
      static_cast<std::uint64_t>(static_cast<const std::byte*>(kernel) - nccl.load_address);
  for (const Symbol& each : nccl.symbols.all())
    if (each.is_function && each.address == address) return each.name;
  return "of no name";
}

}  // namespace

int launch_one_rank(const void* kernel, void** arguments, NativeStream& stream) {
  Gpu& gpu = Gpu::one();
  if (gpu.nccl() == nullptr) return gpu.refuse("the played GPU plays the kernels of NCCL alone");
  const std::string name = name_of_kernel(*gpu.nccl(), kernel);
  const int type = type_of(name);
  if (type < 0) return gpu.refuse("the played GPU does not play the kernel " + name);
  auto* const to = *static_cast<std::byte**>(arguments[0]);
  const auto* const from = *static_cast<const std::byte**>(arguments[1]);
  const std::size_t bytes = *static_cast<const std::size_t*>(arguments[2]) * bytes_of_type(type);
  const std::uint64_t scalar = *static_cast<const std::uint64_t*>(arguments[3]);
  const bool is_pointer = *static_cast<const bool*>(arguments[4]);
  submit(stream, [&gpu, &stream, type, to, from, bytes, scalar, is_pointer] {
    const auto nccl_type = static_cast<NcclDataType>(type);
    const auto* const factor = is_pointer
                                   ? gpu.reach(stream, reinterpret_cast<const std::byte*>(scalar))
                                   : reinterpret_cast<const std::byte*>(&scalar);
    simulated::begin_sum(nccl_type, {true, simulated::read_scalar(nccl_type, factor)},
                         gpu.reach(stream, to), gpu.reach(stream, from), bytes);
  });
  return kSuccess;
}

}  // namespace lockstep::played
