// How the small NCCL of the tests (test_libraries) puts work on a stream of the played card.
#pragma once

namespace lockstep::properties {

using HostCardSubmit = void (*)(void* stream, void (*body)(void*), void* data);
extern HostCardSubmit host_card_submit;  // of the card that this process has opened

}  // namespace lockstep::properties
