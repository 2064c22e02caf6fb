// The wire format: the handle that NCCL carries from the listener to the connecting rank, the
// handshake of the two ranks, and the header before each message. Both ends run on machines with
// the same byte order.
//
// Everything that a peer sent is checked before it is used: by the functions here, or, for sizes,
// by the code that knows the size of the buffer.
#pragma once

#include <cstdint>
#include <type_traits>

#include "faults/nccl_net/net_tables.h"

namespace lockstep::faults::net {

constexpr std::uint64_t kHandleMagic = 0x31444e4148544b4cu;   // "LKTHAND1" in memory
constexpr std::uint64_t kHelloMagic = 0x314f4c4c4548544bu;    // "KTHELLO1"
constexpr std::uint64_t kWelcomeMagic = 0x31434c4557544b4cu;  // "LKTWELC1"
constexpr std::uint32_t kFrameMagic = 0x4d52464bu;            // "KFRM"

struct Handle {
  std::uint64_t magic = kHandleMagic;
  std::uint64_t token = 0;      // the listener's; a stranger does not know it
  std::uint64_t connector = 0;  // the connecting side's attempt; 0 before the first call
  std::int32_t rank = -1;       // the listener's
  std::uint32_t address_size = 0;
  unsigned char address[32] = {};
};

// The first message of the connecting side. The answer is a Welcome.
struct Hello {
  std::uint64_t magic = kHelloMagic;
  std::uint64_t token = 0;
  std::int32_t rank = -1;  // the sender's
  std::uint32_t connection = 0;
};

struct Welcome {
  std::uint64_t magic = kWelcomeMagic;
  std::uint64_t token = 0;
};

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  // The low bits of the message's number, so that a shifted stream is detected.
  std::uint32_t number = 0;
  std::uint64_t size = 0;  // the size of the payload that follows
};

static_assert(std::is_trivially_copyable_v<Handle> && sizeof(Handle) <= kHandleBytes);
static_assert(std::is_trivially_copyable_v<Hello> && sizeof(Hello) == 24);
static_assert(std::is_trivially_copyable_v<Welcome> && sizeof(Welcome) == 16);
static_assert(std::is_trivially_copyable_v<FrameHeader> && sizeof(FrameHeader) == 16);

}  // namespace lockstep::faults::net
