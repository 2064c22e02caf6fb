// A mesh at work: notices, the monitor, and the end. Connecting is in mesh_connect.cc.
#include "reducer/comm/gloo/mesh.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/gloo/gloo_errors.h"
#include "reducer/comm/gloo/sigpipe.h"
#include "reducer/comm/gloo/slots.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kNoticeMagic = 0x4c534e31;  // The bytes spell "LSN1".
constexpr platform::Duration kGraceForLostPeer = std::chrono::seconds(1);
constexpr milliseconds kForEver = std::chrono::hours(24 * 365);
constexpr std::size_t kMaxLater = 8;

std::uint64_t checksum_of(std::uint32_t kind, const char* text, std::size_t length) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ kind;
  for (std::size_t i = 0; i < length; ++i) {
    hash ^= static_cast<unsigned char>(text[i]);
    hash *= 0x100000001b3u;
  }
  return hash;
}

}  // namespace

Mesh::~Mesh() {
  const WithoutSigpipe guard;
  {
    platform::MutexLock lock(mutex_);
    LOCKSTEP_CHECK(!is_claimed_);
    is_leaving_ = true;
    changed_.notify_all();
  }
  if (monitor_.joinable()) {
    // The monitor may just be relaying a peer's failure, in the only notice that a rank sends. Only
    // when the monitor has ended is it known whether this rank leaves without a failure.
    notice_receiver_->abortWaitRecv();
    monitor_.join();
    platform::MutexLock lock(mutex_);
    const bool is_peaceful = cause_.ok();
    lock.unlock();
    if (is_peaceful) send_notice(NoticeKind::kLeft, nullptr);
  }
  std::optional<EventLoop::Hurry> hurry;
  if (loop_) hurry.emplace(*loop_);
  // Buffers are destroyed before connections, and connections before the device. Closing here is
  // not Pair::close(), which would discard what the kernel has not sent yet and a peer may still be
  // waiting for.
  with_neighbours_.reset();
  with_others_.reset();
  closer_.reset();
  notice_sender_.reset();
  standing_sender_.reset();
  notice_receiver_.reset();
  transport_.reset();
}

Status Mesh::health() const {
  platform::MutexLock lock(mutex_);
  return cause_.ok() ? loss_ : cause_;
}

bool Mesh::fail(const Failure& failure) { return end(failure, failure); }

bool Mesh::abort(const Status& given) {
  const Status cause = cause_of_abort(given, rank_);
  return end(cause.failure(), abort_for_peers(cause, rank_));
}

bool Mesh::end(const Failure& failure, const Failure& for_peers) {
  {
    platform::MutexLock lock(mutex_);
    if (!cause_.ok()) {
      std::vector<std::string>& later = cause_.failure().later;
      const std::string line = failure.to_string();
      const bool is_new = line != Status(cause_).to_string() &&
                          std::find(later.begin(), later.end(), line) == later.end();
      if (is_new && later.size() < kMaxLater) later.push_back(line);
      return false;
    }
    cause_ = Status(failure);
    changed_.notify_all();
  }
  const WithoutSigpipe guard;  // A user's thread may be here, through abort().
  if (transport_ != nullptr) send_notice(NoticeKind::kFailed, &for_peers);
  board_.interrupt();
  if (transport_ != nullptr) close_connections();
  return true;
}

// Never blocks: what the kernel does not accept at once is lost with the connection.
void Mesh::send_notice(NoticeKind kind, const Failure* failure) {
  sent_notice_.magic = kNoticeMagic;
  sent_notice_.kind = kind;
  const std::string text = failure == nullptr ? "" : encode(*failure, sizeof sent_notice_.text);
  std::memcpy(sent_notice_.text, text.data(), text.size());
  sent_notice_.length = text.size();
  sent_notice_.checksum = checksum_of(static_cast<std::uint32_t>(kind), text.data(), text.size());
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      notice_sender_->send(peer, slot_of(Channel::kNotice), 0,
                           sizeof(Notice) - sizeof sent_notice_.text + text.size());
    } catch (const std::exception&) {
      // The connection is gone already: its peer cannot be notified, and need not be.
    }
  }
}

// A wait that times out at once makes Gloo close all connections of the context gracefully, and
// pass an exception to most pending transfers.
void Mesh::close_connections() {
  const EventLoop::Hurry hurry(*loop_);
  try {
    closer_->waitRecv(nullptr, milliseconds(0));
  } catch (const std::exception&) {
  }
}

Failure Mesh::explain(const std::exception& error, int waited_for) {
  const std::string text = error.what();
  Failure failure;
  failure.code = code_of_gloo_error(text);
  failure.rank = rank_;
  failure.reported_by = rank_;
  failure.suspect = waited_for;
  failure.detail = readable_gloo_error(text);
  // A failed connection throws its own error again when it is used again.
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      closer_->recv(peer, slot_of(Channel::kProbe), 0, 0);
    } catch (const std::exception& own) {
      if (text != own.what()) continue;
      failure.suspect = peer;
      Notice notice;
      const bool has_notice = read_notice(peer, notice);
      if (has_notice && notice.kind == NoticeKind::kFailed) return relayed(peer, notice);
      if (has_notice) failure.detail += "; it had left the group in peace";
      break;
    }
  }
  if (failure.suspect != kNone)
    failure.detail = "rank " + std::to_string(failure.suspect) + ": " + failure.detail;
  return failure;
}

void Mesh::set_standing(std::function<Standing()> standing) {
  platform::MutexLock lock(standing_mutex_);
  standing_ = std::move(standing);
}

// Sends this rank's standing. It never blocks, and runs once: the standing does not change any more
// when a collective makes no progress.
void Mesh::tell_standing() {
  {
    platform::MutexLock lock(mutex_);
    if (std::exchange(has_told_standing_, true)) return;
  }
  Standing mine;
  {
    platform::MutexLock lock(standing_mutex_);
    if (standing_) mine = standing_();
  }
  {
    platform::MutexLock lock(mutex_);
    mine.started = next_tags_.operation;
  }
  mine.seal();
  sent_standing_ = mine;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      standing_sender_->send(peer, slot_of(Channel::kRollCall), 0, sizeof(Standing));
    } catch (const std::exception&) {
      // The connection is gone already: its peer cannot be notified.
    }
  }
  platform::MutexLock lock(mutex_);
  standings_[static_cast<std::size_t>(rank_)] = mine;
  changed_.notify_all();
}

ChainEnd Mesh::call_roll(platform::Deadline deadline) {
  LOCKSTEP_CHECK_LT(1, size_);
  tell_standing();
  platform::MutexLock lock(mutex_);
  ChainEnd end;
  changed_.wait(mutex_, deadline, [this, &end]() LOCKSTEP_REQUIRES(mutex_) {
    if (!cause_.ok()) return true;
    end = end_of_chain(standings_, rank_);
    return end.has_answered || end.rank == kNone;
  });
  return end;
}

bool Mesh::claim() {
  platform::MutexLock lock(mutex_);
  return !std::exchange(is_claimed_, true);
}

void Mesh::release() {
  set_standing(nullptr);
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK(is_claimed_);
  LOCKSTEP_CHECK_EQ(in_flight_, 0);
  is_claimed_ = false;
}

Mesh::Tags Mesh::begin_operation(bool asks_neighbours, bool asks_others) {
  platform::MutexLock lock(mutex_);
  ++in_flight_;
  const Tags tags = next_tags_;
  ++next_tags_.operation;
  if (asks_neighbours) ++next_tags_.neighbours;
  if (asks_others) ++next_tags_.others;
  return tags;
}

void Mesh::end_operation() {
  platform::MutexLock lock(mutex_);
  LOCKSTEP_CHECK_LT(0, in_flight_);
  if (--in_flight_ == 0 && !loss_.ok()) changed_.notify_all();
}

void Mesh::monitor() {
  for (;;) {
    int peer = kNone;
    try {
      if (!notice_receiver_->waitRecv(&peer, kForEver)) return;
    } catch (const std::exception& error) {
      if (health().ok()) lose(explain(error, kNone));
      return;
    }
    if (hear(peer)) continue;
    // Gloo names the latest of several messages that arrived together, so this looks for the
    // others.
    for (int other = 0; other < size_; ++other) hear(other);
  }
}

// Whether there was a new message. If there are both, a standing is handled before a notice.
bool Mesh::hear(int peer) {
  if (peer < 0 || peer >= size_ || peer == rank_) return false;
  return hear_standing(peer) || hear_notice(peer);
}

// Handles the standing of a peer, which calls the roll, or answers.
bool Mesh::hear_standing(int peer) {
  const auto index = static_cast<std::size_t>(peer);
  const Standing standing = inboxes_[index].standing;
  if (has_stood_[index] || !standing.is_sealed()) return false;
  has_stood_[index] = true;
  {
    platform::MutexLock lock(mutex_);
    standings_[index] = standing;
    changed_.notify_all();
  }
  tell_standing();
  return true;
}

bool Mesh::hear_notice(int peer) {
  const auto index = static_cast<std::size_t>(peer);
  Notice notice;
  if (is_heard_[index] || !read_notice(peer, notice)) return false;
  is_heard_[index] = true;
  if (notice.kind == NoticeKind::kFailed) fail(relayed(peer, notice));
  return true;
}

// Handles a peer that is gone without a notice. Operations that do not need it may still succeed,
// here and elsewhere. So a rank with nothing in flight keeps its connections, sends nothing, and
// only refuses to start more. The other ranks notice themselves that the peer is gone.
void Mesh::lose(const Failure& failure) {
  {
    platform::MutexLock lock(mutex_);
    if (!cause_.ok()) return;
    loss_ = Status(failure);
    const bool is_over = changed_.wait(mutex_, platform::Deadline::in(kGraceForLostPeer),
                                       [this]() LOCKSTEP_REQUIRES(mutex_) {
                                         return in_flight_ == 0 || is_leaving_ || !cause_.ok();
                                       });
    if (is_over) return;
  }
  fail(failure);
}

bool Mesh::read_notice(int peer, Notice& notice) const {
  if (peer < 0 || peer >= size_) return false;
  notice = inboxes_[static_cast<std::size_t>(peer)].notice;
  return notice.magic == kNoticeMagic && notice.length <= sizeof notice.text &&
         notice.checksum ==
             checksum_of(static_cast<std::uint32_t>(notice.kind), notice.text, notice.length);
}

Failure Mesh::relayed(int peer, const Notice& notice) const {
  // decode_failure() takes numbers that are invalid here as "not known".
  Failure failure = decode_failure({notice.text, notice.length}, size_);
  failure.reported_by = rank_;
  if (failure.rank == kNone) failure.rank = peer;
  return failure;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
