#include "properties/lane/test_host_card.h"

namespace lockstep::properties {
HostCardSubmit host_card_submit = nullptr;
HostCardReach host_card_reach = nullptr;
}  // namespace lockstep::properties

// Found by name (dlsym) from the library.
extern "C" __attribute__((visibility("default"))) void lockstep_test_submit(void* stream,
                                                                            void (*body)(void*),
                                                                            void* data) {
  lockstep::properties::host_card_submit(stream, body, data);
}

extern "C" __attribute__((visibility("default"))) std::byte* lockstep_test_reach(void* stream,
                                                                                 const void* data) {
  return lockstep::properties::host_card_reach(stream, data);
}
