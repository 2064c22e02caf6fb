// The hooks that come with the reducer (contract S4). Each call makes a new one, for one reducer.
//
//   all_reduce     scales (G2) and sums: the bits of no hook at all.
//   fp16_compress  the same in float16 or bfloat16: every element of a bucket of a wider dtype is
//   bf16_compress  scaled in the compute type of that dtype, rounded to 16 bits, summed there, and
//                  widened again. Half the bytes of float32 on the wire, a quarter of float64. A
//                  bucket of 16-bit elements goes as it is. Costs 16 bits of memory per element,
//                  kept from pass to pass.
//
// The scale comes before the sum here, too: a sum of float16 overflows where the mean does not.
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
