// Memory of a group that grows with its largest collective, and is kept.
#pragma once

#include <cstddef>

#include "reducer/base/status.h"
#include "reducer/device/device.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// How much to ask for where `bytes` are needed: a power of two, so that memory which grows is
// replaced rarely. The least is small, so that generated programs outgrow it, too.
std::size_t grown_size(std::size_t bytes);

// Gives `memory` at least `bytes` bytes of pinned memory of the device; what it held is lost if it
// was smaller. Nothing that it has may be in use by a copy. Fails as Device::allocate_pinned()
// does, and then `memory` is unchanged. Any thread; the caller owns the memory.
Status grow(Device& device, PinnedMemory& memory, std::size_t bytes);

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
