#include "properties/lane/nccl_gpu.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

Result<std::unique_ptr<Device>> open_none() {
  return failed(Status(Code::kInvalidArgument,
                       "this program was built without the CUDA parts: install a CUDA toolkit of "
                       "12.1 or newer and build anew (cmake --preset cuda says what is missing)"));
}

}  // namespace

OpenGpu& open_gpu() {
  static OpenGpu opener = open_none;
  return opener;
}

bool is_left(const Device&) { return false; }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
