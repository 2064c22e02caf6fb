// Stream and Event: handles of a device's queues of work, and of points in them (device.h). Apart,
// so that who only passes them on needs no more.
#pragma once

#include <cstdint>

#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class Device;

struct Stream {
  Device* device = nullptr;
  std::uint64_t handle = 0;  // meaning belongs to the device; 0 is its default stream
};

struct Event {
  Device* device = nullptr;  // null: complete from the beginning
  std::uint64_t handle = 0;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
