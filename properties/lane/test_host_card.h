// How the small NCCL of the tests (test_libraries) puts work on a stream of the played card, and
// finds what is at an address of the card.
#pragma once

#include <cstddef>

namespace lockstep::properties {

using HostCardSubmit = void (*)(void* stream, void (*body)(void*), void* data);
using HostCardReach = std::byte* (*)(void* stream, const void* data);
extern HostCardSubmit host_card_submit;  // of the card that this process has opened
extern HostCardReach host_card_reach;

}  // namespace lockstep::properties
