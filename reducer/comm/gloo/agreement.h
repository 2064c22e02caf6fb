// Agreement: before any payload moves, ranks exchange headers of the collective that they are about
// to run (contract F6).
//
// Gloo does not check that the two ends of a transfer agree on its length: a message that is longer
// than expected ends the process from Gloo's own thread, and a shorter one is silently accepted. So
// each rank sends a Header to its peers and compares the headers that they send.
//
// Which peers to compare with. A rank may start to receive payload once it knows that every rank
// that will send to it runs the same collective: the sender sends only on a receive that was
// posted, and the header alone determines the lengths of its messages. So safety needs one hop,
// from each sender to its receiver:
//  - In a ring all-reduce, all payload of rank r comes from r+1. If any two ranks differ then,
//    some r and r+1 around the ring do, and r notices. Ranks further on wait for those two, and
//    learn the reason from the notice that a failing rank sends to all (mesh.h).
//  - In bcube, rank-ordered sums, broadcast and all-gather, the sender may be any rank, and equal
//    neighbours prove nothing: of ranks 0 to 5 the first three may run one collective and the
//    others another, and rank 1, whose neighbours are equal, would receive from rank 4. So every
//    rank compares with every other. (The all-gather is a ring too, in the opposite direction; it
//    is rare and small, and treated alike.)
//
// A rank compares with the neighbours on both sides. That costs a message, but lets both ranks of a
// differing pair name the other. It compares with the neighbours first in every collective,
// whatever it is, so that a rank in a ring all-reduce and one in a broadcast still wait for the
// same messages. In small groups every rank always compares with every other; then each rank names
// the one that did not enter the collective.
//
// A rank sends all headers of a collective before it waits for any, also where it compares the
// neighbours' before the others': when a rank waits for a neighbour, it has informed every other
// rank that it has entered the collective.
//
// Receives are posted in advance, for kWindow collectives, so that a header needs one message and
// no answer; the caller keeps concurrent collectives less than kWindow apart. A peer that has
// completed a collective may leave the group before this rank has posted the receive for a later
// one. Only that later collective fails, as this one needs nothing more from the peer.
//
// Threads: send() and compare() of different tags from different threads.
// Ownership: the transport, the loop and the board outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/collective_header.h"
#include "reducer/comm/gloo/slots.h"
#include "reducer/comm/gloo/watched_transport.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

struct Header {
  CollectiveHeader collective;
  std::uint64_t algorithm = 0;
  // The epoch of the group, on a connection that several groups use in turn.
  std::uint64_t epoch = 0;
  std::uint64_t segment_bytes = 0;  // Determines the lengths of the ring's messages.
  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 80 && std::has_unique_object_representations_v<Header>);

// Formats the header: "all_reduce of 8 float32 (bucket 3, pass 1, sequence 7)".
std::string describe(const Header& header);

class Agreement {
 public:
  static constexpr std::uint32_t kWindow = 8;

  // `channel` separates the messages of several agreements on one mesh.
  Agreement(::gloo::transport::Context& transport, const EventLoop& loop, WaitBoard& board,
            std::vector<int> peers, Channel channel);

  // Posts the first receives; all peers must be connected. It throws what Gloo throws.
  void open();

  // Sends `mine` to all peers. Tags count from 0 without gaps. It throws what Gloo throws, and
  // Interrupted.
  void send(std::uint32_t tag, const Header& mine, Waiter& waiter);
  // Waits for the peers' headers, after send() of the same tag. It returns kNone, or the rank of a
  // peer whose header differs, and stores that header in `theirs`. It throws as send() does.
  int compare(std::uint32_t tag, Waiter& waiter, Header& theirs);

  bool is_empty() const { return peers_.empty(); }

 private:
  struct Lane {  // The messages of one of kWindow collectives in flight.
    Header sent;
    std::vector<Header> received;  // In the order of peers_.
    std::unique_ptr<WatchedBuffer> sender;
    std::vector<std::unique_ptr<WatchedBuffer>> receivers;
  };

  std::vector<int> peers_;
  Channel channel_;
  std::vector<Lane> lanes_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
