// Messages between our own processes over a socket: a length, then that many bytes. Blocking, with
// a deadline for reading.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::properties {

// False when the other end is gone.
bool send_message(int fd, const std::string& text);

enum class Receive { kMessage, kClosed, kTimeout };
Receive receive_message(int fd, std::string& text, std::optional<std::chrono::milliseconds> limit);

}  // namespace lockstep::properties
