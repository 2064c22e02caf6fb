// PlacementCheck: whether a reducer takes a model whose parameters, values, buffers and replicas
// lie on devices of two kinds, as chance places them, or refuses it (B5, F8, P15), and what becomes
// of the gradients of a model that it takes. The tensors of a program of a case lie on one kind of
// device.
//
// Threads: a fiber of the simulator's.
#pragma once

#include <cstdint>
#include <string>

#include "reducer/base/build_namespace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Places and trains some models, which `key` determines. Returns a sentence about the first thing
// that is wrong, or an empty text.
std::string wrongly_placed(std::uint32_t key);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
