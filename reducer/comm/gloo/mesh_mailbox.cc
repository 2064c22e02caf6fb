#include "reducer/comm/gloo/mesh_mailbox.h"

#include <cstddef>
#include <cstring>
#include <exception>

#include "reducer/base/check.h"
#include "reducer/comm/gloo/slots.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::uint32_t kNoticeMagic = 0x4c534e31;  // The bytes spell "LSN1".
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

std::uint64_t checksum_of(std::uint32_t kind, const char* text, std::size_t length) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ kind;
  for (std::size_t i = 0; i < length; ++i) {
    hash ^= static_cast<unsigned char>(text[i]);
    hash *= 0x100000001b3u;
  }
  return hash;
}

// Sends to all other ranks. A connection that is gone already is left out: its peer cannot be
// notified, and need not be.
void send_to_all(::gloo::transport::UnboundBuffer& buffer, Channel channel, std::size_t bytes,
                 int rank, int size) {
  LOCKSTEP_CHECK_LE(bytes, buffer.size);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    try {
      buffer.send(peer, slot_of(channel), 0, bytes);
    } catch (const std::exception&) {
    }
  }
}

}  // namespace

MeshMailbox::MeshMailbox(int rank, int size) : rank_(rank), size_(size) {
  LOCKSTEP_CHECK_LE(0, rank);
  LOCKSTEP_CHECK_LT(rank, size);
}

void MeshMailbox::open(::gloo::transport::Context& transport) {
  LOCKSTEP_CHECK(!is_open());
  const auto ranks = static_cast<std::size_t>(size_);
  inboxes_.resize(ranks);
  for (Inbox& inbox : inboxes_) inbox.standing.magic = 0;  // No standing has arrived yet.
  is_notice_read_.resize(ranks);
  is_standing_read_.resize(ranks);
  receiver_ = transport.createUnboundBuffer(inboxes_.data(), ranks * sizeof(Inbox));
  notice_sender_ = transport.createUnboundBuffer(&sent_notice_, sizeof(Notice));
  standing_sender_ = transport.createUnboundBuffer(&sent_standing_, sizeof(Standing));
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::size_t inbox = static_cast<std::size_t>(peer) * sizeof(Inbox);
    receiver_->recv(peer, slot_of(Channel::kNotice), inbox + offsetof(Inbox, notice),
                    sizeof(Notice));
    receiver_->recv(peer, slot_of(Channel::kRollCall), inbox + offsetof(Inbox, standing),
                    sizeof(Standing));
  }
}

void MeshMailbox::close() {
  notice_sender_.reset();
  standing_sender_.reset();
  receiver_.reset();
}

void MeshMailbox::send_left() { send_notice(NoticeKind::kLeft, ""); }

void MeshMailbox::send_failed(const Failure& failure) {
  send_notice(NoticeKind::kFailed, encode(failure, sizeof sent_notice_.text));
}

void MeshMailbox::send_notice(NoticeKind kind, const std::string& text) {
  LOCKSTEP_CHECK(is_open());
  LOCKSTEP_CHECK_LE(text.size(), sizeof sent_notice_.text);
  // What is sent ends where the text does.
  static_assert(offsetof(Notice, text) + sizeof sent_notice_.text == sizeof(Notice));
  sent_notice_.magic = kNoticeMagic;
  sent_notice_.kind = kind;
  std::memcpy(sent_notice_.text, text.data(), text.size());
  sent_notice_.length = text.size();
  sent_notice_.checksum = checksum_of(static_cast<std::uint32_t>(kind), text.data(), text.size());
  send_to_all(*notice_sender_, Channel::kNotice,
              sizeof(Notice) - sizeof sent_notice_.text + text.size(), rank_, size_);
}

void MeshMailbox::send_standing(const Standing& standing) {
  LOCKSTEP_CHECK(is_open());
  LOCKSTEP_CHECK(standing.is_sealed());
  sent_standing_ = standing;
  send_to_all(*standing_sender_, Channel::kRollCall, sizeof(Standing), rank_, size_);
}

std::optional<int> MeshMailbox::await() {
  LOCKSTEP_CHECK(is_open());
  int peer = kNone;
  if (!receiver_->waitRecv(&peer, kLongestWait)) return std::nullopt;
  return peer;
}

void MeshMailbox::interrupt() {
  LOCKSTEP_CHECK(is_open());
  receiver_->abortWaitRecv();
}

std::optional<Standing> MeshMailbox::new_standing(int peer) {
  const auto index = static_cast<std::size_t>(peer);
  LOCKSTEP_CHECK_LT(index, inboxes_.size());
  const Standing standing = inboxes_[index].standing;
  if (is_standing_read_[index] || !standing.is_sealed()) return std::nullopt;
  is_standing_read_[index] = true;
  return standing;
}

std::optional<MeshMailbox::Notice> MeshMailbox::new_notice(int peer) {
  const auto index = static_cast<std::size_t>(peer);
  LOCKSTEP_CHECK_LT(index, inboxes_.size());
  if (is_notice_read_[index]) return std::nullopt;
  std::optional<Notice> notice = notice_of(peer);
  is_notice_read_[index] = notice.has_value();
  return notice;
}

std::optional<MeshMailbox::Notice> MeshMailbox::notice_of(int peer) const {
  const auto index = static_cast<std::size_t>(peer);
  LOCKSTEP_CHECK_LT(index, inboxes_.size());
  const Notice notice = inboxes_[index].notice;
  const bool is_whole = notice.magic == kNoticeMagic && notice.length <= sizeof notice.text &&
                        notice.checksum == checksum_of(static_cast<std::uint32_t>(notice.kind),
                                                       notice.text, notice.length);
  if (!is_whole) return std::nullopt;
  return notice;
}

Failure MeshMailbox::failure_of(int peer, const Notice& notice) const {
  LOCKSTEP_CHECK(notice.kind == NoticeKind::kFailed);
  LOCKSTEP_CHECK_LE(notice.length, sizeof notice.text);
  // decode_failure() takes numbers that are invalid here as "not known".
  Failure failure = decode_failure({notice.text, notice.length}, size_);
  failure.reported_by = rank_;
  if (failure.rank == kNone) failure.rank = peer;
  return failure;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
