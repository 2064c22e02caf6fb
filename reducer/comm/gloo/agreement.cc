#include "reducer/comm/gloo/agreement.h"

#include <bit>
#include <utility>

namespace lockstep::inline LOCKSTEP_NS {

std::string describe(const Header& header) {
  const Op op = static_cast<Op>(header.op);
  std::string out = std::string(name_of(op)) + " of " + std::to_string(header.count) + " " +
                    name_of(static_cast<DType>(header.dtype));
  const auto factor = std::bit_cast<double>(header.factor_bits);
  if (op == Op::kAllReduceSum && factor != 1.0) out += " times " + std::to_string(factor);
  if (op == Op::kBroadcast) out += " from root " + std::to_string(header.root);
  out += " (";
  if (header.bucket != kNone) out += "bucket " + std::to_string(header.bucket) + ", ";
  if (header.pass != kNone) out += "pass " + std::to_string(header.pass) + ", ";
  out += "sequence " + std::to_string(header.sequence);
  if (header.source > 0) out += ", source " + std::to_string(header.source);
  if (header.verify != 0) out += ", verified";
  if (header.epoch != 0) out += ", epoch " + std::to_string(header.epoch);
  if (op == Op::kAllReduceSum) {
    if (header.verify != 0 ||
        header.reduction == static_cast<std::uint8_t>(Reduction::kRankOrdered)) {
      out += ", rank-ordered";
    } else {
      out += header.algorithm == 0 ? ", ring" : ", bcube";
      out += " with segments of " + std::to_string(header.segment_bytes) + " bytes";
    }
  }
  return out + ")";
}

Agreement::Agreement(::gloo::transport::Context& transport, WaitBoard& board,
                     std::vector<int> peers, Channel channel)
    : peers_(std::move(peers)), channel_(channel), lanes_(peers_.empty() ? 0 : kWindow) {
  for (Lane& lane : lanes_) {
    lane.received.resize(peers_.size());
    lane.sender = std::make_unique<WatchedBuffer>(
        transport.createUnboundBuffer(&lane.sent, sizeof(Header)), board, nullptr);
    for (Header& header : lane.received)
      lane.receivers.push_back(std::make_unique<WatchedBuffer>(
          transport.createUnboundBuffer(&header, sizeof(Header)), board, nullptr));
  }
}

void Agreement::open() {
  for (std::uint32_t tag = 0; tag < lanes_.size(); ++tag)
    for (std::size_t i = 0; i < peers_.size(); ++i)
      lanes_[tag].receivers[i]->recv(peers_[i], slot_of(channel_, tag), 0, sizeof(Header));
}

int Agreement::exchange(std::uint32_t tag, const Header& mine, Waiter& waiter, Header& theirs) {
  if (peers_.empty()) return kNone;
  Lane& lane = lanes_[tag % kWindow];
  lane.sent = mine;
  lane.sender->set_waiter(&waiter);
  for (const int peer : peers_) lane.sender->send(peer, slot_of(channel_, tag), 0, sizeof(Header));
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    WatchedBuffer& receiver = *lane.receivers[i];
    receiver.set_waiter(&waiter);
    receiver.waitRecv(nullptr, {});
    theirs = lane.received[i];
    if (theirs != mine) return peers_[i];  // the mesh ends here: nothing needs to be tidied up
    receiver.recv(peers_[i], slot_of(channel_, tag + kWindow), 0, sizeof(Header));
  }
  // Everyone has begun this collective, so everyone's receive was posted: these waits end at once.
  for (std::size_t i = 0; i < peers_.size(); ++i) lane.sender->waitSend(nullptr, {});
  return kNone;
}

}  // namespace lockstep::inline LOCKSTEP_NS
