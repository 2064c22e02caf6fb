#include "reducer/device/cuda/cuda_error.h"

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
namespace {

constexpr int kOldestDriver = 12010;  // ManySegments needs it (kernel_table.h).

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string named(int error) {
  const auto code = static_cast<cudaError_t>(error);
  return std::string(cudaGetErrorString(code)) + " (" + cudaGetErrorName(code) + ")";
}

std::string older_driver(int driver, int runtime) {
  return "the NVIDIA driver is for CUDA " + version(driver) +
         ", and this program was built with CUDA " + version(runtime) +
         ". Install a newer driver, or build with an older toolkit";
}

// Returns a possible cause for an error that does not name one; empty where the driver is new
// enough.
std::string hint_of_versions() {
  int driver = 0;
  int runtime = 0;
  const bool are_known = cudaDriverGetVersion(&driver) == cudaSuccess &&
                         cudaRuntimeGetVersion(&runtime) == cudaSuccess;
  if (!are_known || driver == 0 || driver >= runtime) return {};
  return ". The cause may be that " + older_driver(driver, runtime);
}

}  // namespace

Status cuda_failure(int error, int ordinal, std::string_view what) {
  LOCKSTEP_CHECK(error != cudaSuccess);
  static_cast<void>(cudaGetLastError());
  const Code code = error == cudaErrorMemoryAllocation ? Code::kOutOfMemory : Code::kTransport;
  std::string text =
      "CUDA device " + std::to_string(ordinal) + ", " + std::string(what) + ": " + named(error);
  if (code != Code::kOutOfMemory) text += hint_of_versions();
  return Status(code, std::move(text));
}

Status find_cuda_device(const CudaPresence& presence, int ordinal) {
  const std::string wanted = "CUDA device " + std::to_string(ordinal) + " cannot be used: ";
  const std::string runtime = version(presence.runtime_version);
  if (presence.driver_version == 0)
    return Status(Code::kInvalidArgument,
                  wanted + "no NVIDIA driver is installed. Install one for CUDA " + runtime +
                      " or newer, or use a host device");
  // CUDA promises that an older driver suffices within one major version only.
  const bool is_of_older_major = presence.driver_version / 1000 < presence.runtime_version / 1000;
  if (presence.error == cudaErrorInsufficientDriver || is_of_older_major)
    return Status(Code::kInvalidArgument,
                  wanted + older_driver(presence.driver_version, presence.runtime_version));
  if (presence.error == 0 && presence.driver_version < kOldestDriver)
    return Status(Code::kInvalidArgument, wanted + "the NVIDIA driver is for CUDA " +
                                              version(presence.driver_version) +
                                              ", and kernels with many arguments need one for " +
                                              version(kOldestDriver) + ". Install a newer driver");
  if (presence.error == cudaErrorNoDevice || (presence.error == 0 && presence.devices == 0))
    return Status(Code::kInvalidArgument,
                  wanted +
                      "the driver sees no GPU. Look at nvidia-smi, and at what "
                      "CUDA_VISIBLE_DEVICES hides");
  if (presence.error != 0)
    return Status(Code::kTransport, wanted + "asking for the devices failed: " +
                                        named(presence.error) + ". Look at nvidia-smi");
  if (ordinal < 0 || ordinal >= presence.devices)
    return Status(Code::kInvalidArgument, wanted + "devices are numbered from 0, and there are " +
                                              std::to_string(presence.devices) +
                                              "; CUDA_VISIBLE_DEVICES can hide some of a machine");
  return {};
}

Status kernels_not_loaded(int error, int ordinal, std::string_view name, int major, int minor) {
  const bool is_missing =
      error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction;
  const bool is_untranslated = error == cudaErrorUnsupportedPtxVersion ||
                               error == cudaErrorJitCompilerNotFound ||
                               error == cudaErrorJitCompilationDisabled;
  Status failure = cuda_failure(error, ordinal, "loading the kernels");
  if (!is_missing && !is_untranslated) return failure;
  const std::string gpu = "CUDA device " + std::to_string(ordinal) + " (" + std::string(name) +
                          ") has compute capability " + std::to_string(major) + "." +
                          std::to_string(minor) + ", which the kernels were not compiled for";
  if (is_missing)
    return Status(Code::kInvalidArgument,
                  gpu + ". Use another GPU, or build with CMAKE_CUDA_ARCHITECTURES set for it");
  return Status(Code::kInvalidArgument,
                gpu + ", and its driver does not translate their PTX: " + named(error) +
                    ". Install a newer driver, or build with CMAKE_CUDA_ARCHITECTURES set for it");
}

}  // namespace lockstep
