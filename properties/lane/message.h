// Messages between our own processes over a socket: a mark, a length, then that many bytes. Every
// wait of the process that asks has a deadline. A subject shares its process with one end, so the
// bytes that come may be anything: what does not begin with the mark is told apart.
//
// Threads: one caller for each end.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::properties {

// False when the other end is gone, or does not read within `limit` (none: it waits).
bool send_message(int fd, const std::string& text,
                  std::optional<std::chrono::milliseconds> limit = std::nullopt);

enum class Receive {
  kMessage,
  kClosed,
  kTimeout,  // nothing came, or the message broke off
  kForeign,  // what came is no message of ours
};
Receive receive_message(int fd, std::string& text, std::optional<std::chrono::milliseconds> limit);

}  // namespace lockstep::properties
