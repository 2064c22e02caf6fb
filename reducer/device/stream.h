// Stream and Event are handles of a device's queues of work, and of points in them (device.h). They
// have a header of their own for code that only passes them on.
#pragma once

#include <cstdint>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Device;

struct Stream {
  Device* device = nullptr;
  std::uint64_t handle = 0;  // The device defines its meaning; 0 is the default stream.
};

struct Event {
  Device* device = nullptr;  // Null means that the event is complete from the beginning.
  std::uint64_t handle = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
