// Messages between our own processes over a socket: a mark, a length, then that many bytes. Every
// wait of the requesting process has a deadline. A subject shares its process with one end, so the
// received bytes may be anything; bytes without the mark are reported as foreign. A message takes
// no more memory than twice what has arrived of it, whatever length it announces.
//
// Threads: one caller for each end.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::properties {

// Returns false if the other end is gone, or does not read within `limit` (without a limit it
// waits).
bool send_message(int fd, const std::string& text,
                  std::optional<std::chrono::milliseconds> limit = std::nullopt);

enum class Receive {
  kMessage,
  kClosed,
  kTimeout,  // nothing arrived, or the message is incomplete
  kForeign,  // the bytes are no message of ours
};
Receive receive_message(int fd, std::string& text, std::optional<std::chrono::milliseconds> limit);

}  // namespace lockstep::properties
