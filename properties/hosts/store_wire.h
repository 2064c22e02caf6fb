// What a rank asks the store of its controller, after the handshake:
//
//   request  operation (1 byte), wait in ms, bytes of the key, bytes of the value (8 bytes each),
//            the key, the value
//   reply    outcome (1 byte), bytes of the text (8 bytes), the text: a value, or why not
//
// Numbers have their highest byte first.
#pragma once

#include <cstddef>

namespace lockstep::properties::hosts {

constexpr std::size_t kRequestBytes = 1 + 3 * 8;
constexpr std::size_t kReplyBytes = 1 + 8;

constexpr char kSet = 's';
constexpr char kGet = 'g';
constexpr char kContains = 'c';

constexpr char kYes = 'y';  // set; contained
constexpr char kNo = 'n';   // was set before; not contained
constexpr char kValue = 'v';
constexpr char kTimedOut = 't';
constexpr char kRefused = 'r';  // the line is closed after it

}  // namespace lockstep::properties::hosts
