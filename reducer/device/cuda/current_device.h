// CurrentDevice: the GPU of the calling thread, for as long as a call of the runtime needs it.
//
// Threads: any; the object belongs to its thread. Failure: none; a call that follows reports it.
#pragma once

#include "reducer/base/build_namespace.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

// Makes a device current on this thread, and restores the device that was current before. (On a
// fresh thread that is number 0, which this process may not use at all; then our device stays
// current.)
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
