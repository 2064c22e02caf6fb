// A card for the nccl lane that is played on the host: streams are threads (test_queue_device.h).
// Linked into lockstep_on_host, once for each build of the reducer.
#include "properties/lane/test_host_card.h"

#include "properties/lane/nccl_card.h"
#include "reducer/device/test_queue_device.h"

namespace lockstep::inline LOCKSTEP_NS {
namespace {

void submit(void* stream, void (*body)(void*), void* data) {
  testing::QueueDevice::submit(stream, [body, data] { body(data); });
}

Result<std::unique_ptr<Device>> open_host() {
  properties::host_card_submit = submit;
  properties::host_card_reach = testing::QueueDevice::reach;
  return std::unique_ptr<Device>(std::make_unique<testing::QueueDevice>());
}

[[maybe_unused]] const bool is_installed = [] {
  open_card() = open_host;
  return true;
}();

}  // namespace
}  // namespace lockstep::inline LOCKSTEP_NS
