// The communication hooks that come with the reducer (contract S4). Each call makes a new hook, for
// one reducer.
//
//   all_reduce     scales (G2) and sums, with the same bits as without a hook.
//   fp16_compress  does the same in float16 or bfloat16. It scales every element of a bucket with a
//   bf16_compress  wider dtype in the compute type of that dtype, rounds it to 16 bits, sums in the
//                  16-bit type, and widens the sum again. It sends half the bytes of float32, and a
//                  quarter of those of float64. A bucket of 16-bit elements is sent as it is. The
//                  hook holds 16 bits of memory per element from pass to pass.
//
// Here, too, the scale comes before the sum: a sum in float16 overflows where the mean does not.
#pragma once

#include <memory>

#include "reducer/hooks/communication_hook.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

std::shared_ptr<CommunicationHook> make_all_reduce_hook();
std::shared_ptr<CommunicationHook> make_fp16_compress_hook();
std::shared_ptr<CommunicationHook> make_bf16_compress_hook();

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
