#include "reducer/comm/gloo/agreement.h"

#include <gloo/common/error.h>

#include <utility>

#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

std::string describe(const Header& header) {
  const CollectiveHeader& collective = header.collective;
  std::string more;
  if (header.epoch != 0) more += ", epoch " + std::to_string(header.epoch);
  if (static_cast<Op>(collective.op) == Op::kAllReduceSum && !collective.is_rank_ordered_sum()) {
    more += header.algorithm == 0 ? ", ring" : ", bcube";
    more += " with segments of " + std::to_string(header.segment_bytes) + " bytes";
  }
  return describe(collective, more);
}

Agreement::Agreement(::gloo::transport::Context& transport, const EventLoop& loop, WaitBoard& board,
                     std::vector<int> peers, Channel channel)
    : peers_(std::move(peers)), channel_(channel), lanes_(peers_.empty() ? 0 : kWindow) {
  for (const int peer : peers_) {
    LOCKSTEP_CHECK_LE(0, peer);
    LOCKSTEP_CHECK_LT(peer, transport.size);
    LOCKSTEP_CHECK(peer != transport.rank);
  }
  for (Lane& lane : lanes_) {
    lane.received.resize(peers_.size());
    lane.sender = std::make_unique<WatchedBuffer>(
        transport.createUnboundBuffer(&lane.sent, sizeof(Header)), loop, board, nullptr);
    for (Header& header : lane.received)
      lane.receivers.push_back(std::make_unique<WatchedBuffer>(
          transport.createUnboundBuffer(&header, sizeof(Header)), loop, board, nullptr));
  }
}

void Agreement::open() {
  for (std::uint32_t tag = 0; tag < lanes_.size(); ++tag)
    for (std::size_t i = 0; i < peers_.size(); ++i)
      lanes_[tag].receivers[i]->recv(peers_[i], slot_of(channel_, tag), 0, sizeof(Header));
}

void Agreement::send(std::uint32_t tag, const Header& mine, Waiter& waiter) {
  if (peers_.empty()) return;
  Lane& lane = lanes_[tag % kWindow];
  lane.sent = mine;
  lane.sender->set_waiter(&waiter);
  for (const int peer : peers_) lane.sender->send(peer, slot_of(channel_, tag), 0, sizeof(Header));
}

int Agreement::compare(std::uint32_t tag, Waiter& waiter, Header& theirs) {
  if (peers_.empty()) return kNone;
  Lane& lane = lanes_[tag % kWindow];
  LOCKSTEP_CHECK_EQ(lane.receivers.size(), peers_.size());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    WatchedBuffer& receiver = *lane.receivers[i];
    receiver.set_waiter(&waiter);
    receiver.waitRecv(nullptr, {});
    theirs = lane.received[i];
    // The mesh ends here, so nothing needs to be cleaned up.
    if (theirs != lane.sent) return peers_[i];
    try {
      receiver.recv(peers_[i], slot_of(channel_, tag + kWindow), 0, sizeof(Header));
    } catch (const ::gloo::Exception&) {
      // The peer has left. If there is a next collective of this lane, sending to the peer fails.
    }
  }
  // Every peer has entered this collective, so every peer's receive was posted, and these waits end
  // at once.
  for (std::size_t i = 0; i < peers_.size(); ++i) lane.sender->waitSend(nullptr, {});
  return kNone;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
