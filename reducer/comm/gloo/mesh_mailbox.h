// MeshMailbox has the messages that ranks send each other beside their collectives: the notice that
// a rank leaves, or why it failed, and its standing in a roll call (roll_call.h). A receive for
// each stays posted on every connection, so a rank sends without waiting for its peers, and each
// kind of message once in its life.
//
// Threads: Gloo's thread writes what arrives. await(), new_standing() and new_notice() by the
// monitor; notice_of() by any thread. One thread sends a notice, and one a standing: the mesh sees
// to it.
// Failure: what the kernel does not accept at once is lost with the connection. await() throws what
// Gloo throws when a connection closes.
// Ownership: the transport outlives what open() makes of it, until close().
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reducer/base/status.h"
#include "reducer/comm/gloo/roll_call.h"
#include "reducer/platform/platform.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

class MeshMailbox {
 public:
  static constexpr std::size_t kNoticeBytes = 1024;
  enum class NoticeKind : std::uint32_t { kLeft = 1, kFailed = 2 };
  struct Notice {
    std::uint32_t magic = 0;
    NoticeKind kind = NoticeKind::kLeft;
    std::uint64_t length = 0;
    std::uint64_t checksum = 0;
    char text[kNoticeBytes - 24] = {};  // An encoded Failure.
  };
  static_assert(sizeof(Notice) == kNoticeBytes);

  MeshMailbox(int rank, int size);

  // Posts the receives.
  void open(::gloo::transport::Context& transport);
  bool is_open() const { return receiver_ != nullptr; }
  void close();

  // Neither blocks.
  void send_left();
  void send_failed(const Failure& failure);
  void send_standing(const Standing& standing);

  // Waits until something has arrived, and returns from whom; empty after interrupt(). Of several
  // messages that arrived together Gloo names the latest.
  std::optional<int> await();
  void interrupt();
  // A message of the peer that was not returned before.
  std::optional<Standing> new_standing(int peer);
  std::optional<Notice> new_notice(int peer);
  // The notice that the peer has sent, if it has arrived.
  std::optional<Notice> notice_of(int peer) const;
  // The failure of which a peer's notice tells.
  Failure failure_of(int peer, const Notice& notice) const;

 private:
  struct Inbox {  // The messages of one peer.
    Notice notice;
    Standing standing;
  };
  using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

  void send_notice(NoticeKind kind, const std::string& text);

  const int rank_;
  const int size_;
  // By rank: what has arrived; Gloo's thread writes them.
  std::vector<Inbox> inboxes_;
  // By rank: which messages were returned. Only the monitor uses them.
  std::vector<bool> is_notice_read_;
  std::vector<bool> is_standing_read_;
  Notice sent_notice_;
  Standing sent_standing_;
  Buffer receiver_;
  Buffer notice_sender_;
  Buffer standing_sender_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
