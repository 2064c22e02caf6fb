#include "faults/sim/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "faults/sim/arithmetic.h"
#include "reducer/base/check.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace simulated {

namespace {

constexpr std::uint32_t kHeaderPart = 0;

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

void Exchange::note(Trouble trouble, int peer) {
  switch (trouble) {
    case Trouble::kNone:
      break;
    case Trouble::kClosed:
      stop(Halt::Cause::kClosed, peer);
      break;
    case Trouble::kReset:
      stop(Halt::Cause::kReset, peer);
      break;
    case Trouble::kTimeout:
      stop(Halt::Cause::kTimeout, peer);
      break;
    case Trouble::kInterrupted:
      stop(Halt::Cause::kInterrupted, kNone);
      break;
  }
}

bool Exchange::send(int to, std::uint32_t part, std::span<const std::byte> bytes) {
  return stop(mesh_.send(rank_, to, sequence_, part, bytes), to);
}

Message* Exchange::take(int from, std::uint32_t part, std::size_t bytes) {
  const Mesh::Received received = mesh_.receive(rank_, from, patience_.until());
  if (!stop(received.trouble, from)) return nullptr;
  ++patience_.received;
  Message* message = received.message;
  const bool is_right =
      message->sequence == sequence_ && message->part == part && message->bytes == bytes;
  if (is_right) return message;
  mesh_.release(message);
  stop(Halt::Cause::kWrongMessage, from);
  return nullptr;
}

bool Exchange::receive(int from, std::uint32_t part, std::span<std::byte> bytes) {
  Message* message = take(from, part, bytes.size());
  if (message == nullptr) return false;
  if (!bytes.empty()) std::memcpy(bytes.data(), message->data, bytes.size());
  mesh_.release(message);
  return true;
}

bool Exchange::receive_and_sum(int from, std::uint32_t part, DType dtype,
                               std::span<std::byte> bytes) {
  Message* message = take(from, part, bytes.size());
  if (message == nullptr) return false;
  sum_into(dtype, bytes.data(), message->data, bytes.size());
  mesh_.release(message);
  return true;
}

bool Exchange::agree(const Header& mine) {
  if (!send(left(), kHeaderPart, std::as_bytes(std::span(&mine, 1)))) return false;
  mesh_.offer_switch();
  Header theirs;
  if (!receive(right(), kHeaderPart, std::as_writable_bytes(std::span(&theirs, 1)))) return false;
  if (theirs == mine) return true;
  halt_ = Halt{Halt::Cause::kOtherHeader, right(), theirs};
  return false;
}

namespace {

// The positions of a ring's segments. Segments behind the end of the buffer are empty and are not
// sent.
struct Segments {
  std::span<std::byte> data;
  std::size_t per_rank;
  std::size_t count;
  std::size_t bytes;  // of a full segment

  std::span<std::byte> at(std::size_t index) const {
    while (index >= count)
      index -= count;  // at most twice; a division would be the most expensive step of a message
    const std::size_t begin = std::min(index * bytes, data.size());
    return data.subspan(begin, std::min(bytes, data.size() - begin));
  }
};

// Element sizes are powers of two. There are two segments per rank unless the limit requires more;
// only that case divides.
Segments cut(std::span<std::byte> data, std::size_t world, std::size_t element_bytes,
             std::size_t max_segment_bytes) {
  const std::size_t mask = ~(element_bytes - 1);
  const std::size_t largest = std::max(element_bytes, max_segment_bytes & mask);
  std::size_t per_rank = 2;
  if (data.size() > 2 * world * largest)
    per_rank = divide_up(divide_up(data.size(), largest), world);
  const std::size_t count = per_rank * world;
  const std::size_t bytes = (divide_up(data.size(), count) + element_bytes - 1) & mask;
  return {data, per_rank, count, bytes};
}

// Travels around the ring once, for all but the last chunk. Two segments are in flight at a time,
// as in Gloo: segment i is received after segment i + 1 was sent.
template <class Receive>
bool travel(Exchange& exchange, const Segments& segments, std::size_t first_sent,
            std::uint32_t first_part, Receive receive) {
  const std::size_t first_received = first_sent + segments.per_rank;
  const std::size_t trips = segments.count - segments.per_rank;
  for (std::size_t i = 0; i < trips + 2; ++i) {
    if (i >= 2) {
      const std::span<std::byte> in = segments.at(first_received + i - 2);
      const auto part = static_cast<std::uint32_t>(first_part + i - 2);
      if (!in.empty() && !receive(part, in)) return false;
    }
    if (i >= trips) continue;
    const std::span<std::byte> out = segments.at(first_sent + i);
    const auto part = static_cast<std::uint32_t>(first_part + i);
    if (!out.empty() && !exchange.send(exchange.left(), part, out)) return false;
  }
  return true;
}

}  // namespace

bool ring_all_reduce(Exchange& exchange, DType dtype, std::span<std::byte> data,
                     std::size_t max_segment_bytes) {
  const auto world = static_cast<std::size_t>(exchange.size());
  const auto rank = static_cast<std::size_t>(exchange.rank());
  const Segments segments = cut(data, world, size_of(dtype), max_segment_bytes);
  const int right = exchange.right();
  const auto part_of_second_trip = static_cast<std::uint32_t>(1 + segments.count);
  return travel(exchange, segments, (rank + 1) * segments.per_rank, 1,
                [&](std::uint32_t part, std::span<std::byte> bytes) {
                  return exchange.receive_and_sum(right, part, dtype, bytes);
                }) &&
         travel(exchange, segments, rank * segments.per_rank, part_of_second_trip,
                [&](std::uint32_t part, std::span<std::byte> bytes) {
                  return exchange.receive(right, part, bytes);
                });
}

namespace {

// One round of the bcube for one rank: `members` ranks that are `distance` apart divide the
// elements [begin, begin + length) among them. The lowest of them is `base`, and this rank has
// number `self` among them.
struct Round {
  int members;
  int distance;
  int base;
  int self;
  std::size_t begin;
  std::size_t length;

  int rank_of(int member) const { return base + member * distance; }
  std::size_t chunk() const { return divide_up(length, static_cast<std::size_t>(members)); }
  std::size_t chunk_begin(int member) const {
    return begin + std::min(static_cast<std::size_t>(member) * chunk(), length);
  }
  std::size_t chunk_length(int member) const {
    return std::min(chunk(), begin + length - chunk_begin(member));
  }
};

constexpr int kMaxRounds = 32;

int plan_rounds(int rank, int world, std::size_t elements, std::array<Round, kMaxRounds>& rounds) {
  int count = 0;
  int distance = 1;
  std::size_t begin = 0;
  std::size_t length = elements;
  for (int rest = world; rest > 1;) {
    const int members = rest % 2 == 0 ? 2 : rest;
    const int self = rank / distance % members;
    Round& round = rounds[static_cast<std::size_t>(count++)];
    round = {members, distance, rank - self * distance, self, begin, length};
    begin = round.chunk_begin(self);
    length = round.chunk_length(self);
    distance *= members;
    rest /= members;
  }
  return count;
}

// Every member sends `chunk_of(peer)` to the peer, then receives the peers' chunks in ascending
// order.
template <class ChunkTo, class Receive>
bool swap_chunks(Exchange& exchange, const Round& round, std::uint32_t part, ChunkTo chunk_to,
                 Receive receive) {
  for (int member = 0; member < round.members; ++member)
    if (member != round.self)
      if (!exchange.send(round.rank_of(member), part, chunk_to(member))) return false;
  for (int member = 0; member < round.members; ++member)
    if (member != round.self)
      if (!receive(round.rank_of(member), member)) return false;
  return true;
}

}  // namespace

bool bcube_all_reduce(Exchange& exchange, DType dtype, std::span<std::byte> data) {
  const std::size_t element_bytes = size_of(dtype);
  std::array<Round, kMaxRounds> rounds;
  const int count =
      plan_rounds(exchange.rank(), exchange.size(), data.size() / element_bytes, rounds);
  const auto chunk = [&](const Round& round, int member) {
    return data.subspan(round.chunk_begin(member) * element_bytes,
                        round.chunk_length(member) * element_bytes);
  };
  std::uint32_t part = 0;
  for (int i = 0; i < count; ++i) {
    const Round& round = rounds[static_cast<std::size_t>(i)];
    ++part;
    const bool ok = swap_chunks(
        exchange, round, part, [&](int member) { return chunk(round, member); },
        [&](int peer, int) {
          return exchange.receive_and_sum(peer, part, dtype, chunk(round, round.self));
        });
    if (!ok) return false;
  }
  for (int i = count - 1; i >= 0; --i) {
    const Round& round = rounds[static_cast<std::size_t>(i)];
    ++part;
    const bool ok = swap_chunks(
        exchange, round, part, [&](int) { return chunk(round, round.self); },
        [&](int peer, int member) { return exchange.receive(peer, part, chunk(round, member)); });
    if (!ok) return false;
  }
  return true;
}

bool rank_ordered_all_reduce(Exchange& exchange, DType dtype, std::span<std::byte> data) {
  constexpr std::uint32_t kToBeSummed = 1;
  constexpr std::uint32_t kSummed = 2;
  const auto world = static_cast<std::size_t>(exchange.size());
  const std::size_t element_bytes = size_of(dtype);
  const std::size_t share = divide_up(data.size() / element_bytes, world) * element_bytes;
  const auto share_of = [&](int rank) {
    const std::size_t begin = std::min(static_cast<std::size_t>(rank) * share, data.size());
    return data.subspan(begin, std::min(share, data.size() - begin));
  };
  const std::span<std::byte> own = share_of(exchange.rank());
  for (int rank = 0; rank < exchange.size(); ++rank)
    if (rank != exchange.rank() && !share_of(rank).empty())
      if (!exchange.send(rank, kToBeSummed, share_of(rank))) return false;
  if (!own.empty()) {
    std::vector<std::byte> sum(own.begin(), own.end());
    for (int rank = 0; rank < exchange.size(); ++rank) {
      if (rank == exchange.rank()) {
        if (rank > 0) sum_into(dtype, sum.data(), own.data(), own.size());
        continue;
      }
      const bool ok = rank == 0 ? exchange.receive(rank, kToBeSummed, sum)
                                : exchange.receive_and_sum(rank, kToBeSummed, dtype, sum);
      if (!ok) return false;
    }
    std::copy(sum.begin(), sum.end(), own.begin());
    for (int rank = 0; rank < exchange.size(); ++rank)
      if (rank != exchange.rank() && !exchange.send(rank, kSummed, own)) return false;
  }
  for (int rank = 0; rank < exchange.size(); ++rank)
    if (rank != exchange.rank() && !share_of(rank).empty())
      if (!exchange.receive(rank, kSummed, share_of(rank))) return false;
  return true;
}

bool broadcast(Exchange& exchange, int root, std::span<std::byte> data) {
  constexpr std::uint32_t kPart = 1;
  if (exchange.rank() != root && !exchange.receive(exchange.right(), kPart, data)) return false;
  return exchange.left() == root || exchange.send(exchange.left(), kPart, data);
}

bool all_gather(Exchange& exchange, std::span<const std::byte> mine,
                std::span<std::byte> gathered) {
  const auto world = static_cast<std::size_t>(exchange.size());
  const auto rank = static_cast<std::size_t>(exchange.rank());
  LOCKSTEP_CHECK_EQ(gathered.size(), world * mine.size());
  const auto block = [&](std::size_t of) {
    return gathered.subspan(of % world * mine.size(), mine.size());
  };
  if (!mine.empty()) std::memmove(block(rank).data(), mine.data(), mine.size());
  for (std::size_t i = 0; i + 1 < world; ++i) {
    const auto part = static_cast<std::uint32_t>(1 + i);
    if (!exchange.send(exchange.left(), part, block(rank + i))) return false;
    if (!exchange.receive(exchange.right(), part, block(rank + i + 1))) return false;
  }
  return true;
}

}  // namespace simulated
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
