#include "properties/lane/nccl_card.h"

namespace lockstep::inline LOCKSTEP_NS {
namespace {

Result<std::unique_ptr<Device>> open_none() {
  return failed(Status(Code::kInvalidArgument,
                       "this program was built without the CUDA parts: install a CUDA toolkit of "
                       "12.1 or newer and build anew (cmake --preset cuda says what is missing)"));
}

}  // namespace

OpenCard& open_card() {
  static OpenCard opener = open_none;
  return opener;
}

}  // namespace lockstep::inline LOCKSTEP_NS
