// Agreement: ranks tell each other which collective they are about to run, before any payload moves
// (contract F6).
//
// Gloo does not check that the two ends of a transfer agree on its length: a longer message than
// expected ends the process from Gloo's own thread, a shorter one is silently accepted. So each
// rank sends a Header to its peers and compares what they send.
//
// Whom to ask. A rank may start to receive payload once it knows that everyone who will send to it
// runs the same collective: the sender sends only on a receive that was posted, and the lengths of
// its messages follow from the header alone. So safety needs one hop, from each sender to its
// receiver:
//  - ring all-reduce: all payload of rank r comes from r+1. If any two ranks differ then, round
//    the ring, some r and r+1 do, and r sees it. Ranks further on get stuck waiting for those two,
//    and are told why by the notice that a failing rank sends to all (mesh.h).
//  - bcube, rank-ordered sums, broadcast, all-gather: the sender may be any rank, and equal
//  neighbours say nothing
//    about it: of ranks 0 to 5 the first three may run one collective and the others another, and
//    rank 1, which sees equal neighbours, would receive from rank 4. So everyone asks everyone.
//    (The all-gather is a ring too, the other way round; it is rare and small, and treated alike.)
//
// The neighbours are asked on both sides, which costs a message but lets both ranks of a differing
// pair name the other; and first in every collective, whatever it is, so that a rank in a ring
// all-reduce and one in a broadcast still wait for the same messages. In small groups everyone is
// asked always: then each rank names the one that did not come.
//
// Every header of a collective is sent before any is waited for, also where the neighbours' are
// compared before the others': a rank that waits for a neighbour has told everyone else that it has
// come.
//
// Receives are posted ahead, kWindow collectives deep, so that a header needs one message and no
// answer; the caller keeps collectives less than kWindow apart.
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
  std::uint64_t epoch = 0;          // of the group on a connection that several groups use in turn
  std::uint64_t segment_bytes = 0;  // the ring's message lengths depend on it
  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 80 && std::has_unique_object_representations_v<Header>);

// "all_reduce of 8 float32 (bucket 3, pass 1, sequence 7)".
std::string describe(const Header& header);

class Agreement {
 public:
  static constexpr std::uint32_t kWindow = 8;

  // `channel` keeps the messages of several agreements on one mesh apart.
  Agreement(::gloo::transport::Context& transport, const EventLoop& loop, WaitBoard& board,
            std::vector<int> peers, Channel channel);

  // Posts the first receives; all peers must be connected. Throws what Gloo throws.
  void open();

  // Sends `mine` to all peers. Tags count from 0 without gaps. Throws what Gloo throws, and
  // Interrupted.
  void send(std::uint32_t tag, const Header& mine, Waiter& waiter);
  // Waits for the peers' headers, after send() of the same tag. The rank of a peer whose header
  // differs, which is then in `theirs`, or kNone. Throws as send() does.
  int compare(std::uint32_t tag, Waiter& waiter, Header& theirs);

  bool is_empty() const { return peers_.empty(); }

 private:
  struct Lane {  // one of kWindow collectives in flight
    Header sent;
    std::vector<Header> received;  // by position in peers_
    std::unique_ptr<WatchedBuffer> sender;
    std::vector<std::unique_ptr<WatchedBuffer>> receivers;
  };

  std::vector<int> peers_;
  Channel channel_;
  std::vector<Lane> lanes_;
};

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
