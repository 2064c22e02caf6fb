// The QueueDevice of tests, and the headers of threads that tests use with it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "reducer/device/host/queue_device.h"

namespace lockstep::testing {

using lockstep::QueueDevice;

}  // namespace lockstep::testing
