// The way `host` of a program for tests: a stand-in on the host for a GPU, whose streams are
// threads (queue_device.h), under the small NCCL of the tests.
#include "properties/compare/way.h"
#include "reducer/device/host/queue_device.h"

namespace lockstep::properties {
namespace {

[[maybe_unused]] const bool is_added = [] {
  ways().push_back({"host", "on a stand-in of the tests for a GPU",
                    [](const std::string& library) { return load_nccl(library); },
                    []() -> Result<std::unique_ptr<Device>> {
                      return std::unique_ptr<Device>(std::make_unique<QueueDevice>());
                    }});
  return true;
}();

}  // namespace
}  // namespace lockstep::properties
