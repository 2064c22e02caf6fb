#include "reducer/comm/shared_collectives.h"

#include <algorithm>
#include <cstring>

#include "reducer/base/check.h"
#include "reducer/comm/reduce_functions.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// If the elements of all ranks together have no more bytes, every rank adds all of them itself,
// which saves a round. With more of them the additions cost more than the round.
constexpr std::size_t kSmallBytes = 32 << 10;
// A rank adds so many bytes of all ranks before it goes on, so that the sum stays in its first
// cache.
constexpr std::size_t kBlockBytes = 16 << 10;

std::size_t bytes_of(const Collective& collective) {
  return static_cast<std::size_t>(collective.count) * size_of(collective.dtype);
}

// Calls piece(offset, bytes) for pieces of at most `longest` bytes, which are whole elements.
template <class Piece>
bool in_pieces(std::size_t bytes, std::size_t longest, const Piece& piece) {
  for (std::size_t at = 0; at < bytes; at += longest)
    if (!piece(at, std::min(longest, bytes - at))) return false;
  return true;
}

}  // namespace

std::uint64_t ring_chunk_bytes(std::uint64_t count, std::uint64_t width, std::uint64_t ranks,
                               std::uint64_t max_segment_bytes) {
  const std::uint64_t bytes = count * width;
  const auto round_up = [](std::uint64_t value, std::uint64_t unit) {
    return (value + unit - 1) / unit * unit;
  };
  const std::uint64_t longest = width * std::max<std::uint64_t>(1, max_segment_bytes / width);
  const std::uint64_t segments =
      round_up(std::max((bytes + longest - 1) / longest, 2 * ranks), ranks);
  const std::uint64_t chunk = segments / ranks * round_up((bytes + segments - 1) / segments, width);
  LOCKSTEP_CHECK_LE(bytes, chunk * ranks);  // The chunks cover the data.
  return chunk;
}

std::size_t SharedCollective::least_place_bytes(int ranks) {
  return kHeaderBytes + static_cast<std::size_t>(ranks) * SharedRounds::kAlignment;
}

SharedCollective::SharedCollective(SharedRounds& rounds, Waiter& waiter,
                                   std::span<const std::byte> header,
                                   std::uint64_t max_segment_bytes)
    : rounds_(rounds), waiter_(waiter), header_(header), max_segment_bytes_(max_segment_bytes) {
  LOCKSTEP_CHECK_LE(header.size(), kHeaderBytes);
  LOCKSTEP_CHECK_LE(least_place_bytes(rounds.ranks()), rounds.place_bytes());
}

// Every rank compares with every other, the next one first.
bool SharedCollective::exchange() {
  if (!has_agreed_) std::copy(header_.begin(), header_.end(), rounds_.place());
  switch (rounds_.exchange(waiter_)) {
    case SharedRounds::End::kDone:
      break;
    case SharedRounds::End::kInterrupted:
      end_ = End::kInterrupted;
      return false;
    case SharedRounds::End::kLost:
      end_ = End::kLost;
      return false;
  }
  if (has_agreed_) return true;
  for (int step = 1; step < rounds_.ranks(); ++step) {
    const int peer = (rounds_.rank() + step) % rounds_.ranks();
    if (std::equal(header_.begin(), header_.end(), rounds_.place_of(peer))) continue;
    different_ = peer;
    end_ = End::kMismatch;
    return false;
  }
  has_agreed_ = true;
  waiter_.phase.store(Waiter::Phase::kPayload, std::memory_order_relaxed);
  return true;
}

SharedCollective::End SharedCollective::agree() {
  exchange();
  return end_;
}

// Adds the bytes from `first_byte` of the whole data on; source_of(rank) is where those of a rank
// lie, and `sum` is none of these places.
template <class SourceOf>
void SharedCollective::add(const Collective& collective, std::uint64_t first_byte,
                           std::size_t bytes, const SourceOf& source_of, std::byte* sum) const {
  const std::size_t width = size_of(collective.dtype);
  const auto ranks = static_cast<std::uint64_t>(rounds_.ranks());
  const bool is_ring = collective.reduction == Reduction::kNative;
  const std::uint64_t chunk_bytes =
      is_ring ? ring_chunk_bytes(collective.count, width, ranks, max_segment_bytes_) : 0;
  const auto plain = sum_function(collective.dtype);
  const auto scaled = collective.factor == 1.0 ? nullptr : scaled_sum_function(collective.dtype);
  for (std::size_t at = 0; at < bytes;) {
    const std::uint64_t place = first_byte + at;
    const std::uint64_t chunk = is_ring ? place / chunk_bytes : 0;
    std::size_t part = std::min(kBlockBytes, bytes - at);
    if (is_ring) part = std::min<std::uint64_t>(part, (chunk + 1) * chunk_bytes - place);
    const auto operand = [&](std::uint64_t k) {
      const std::uint64_t rank = is_ring ? (chunk + 2 * ranks - 1 - k) % ranks : k;
      return source_of(static_cast<int>(rank)) + at;
    };
    for (std::uint64_t k = 1; k < ranks; ++k) {
      const std::byte* const left = k == 1 ? operand(0) : sum + at;
      const Scaled what = k == 1 ? Scaled::kBoth : Scaled::kIncoming;
      if (scaled != nullptr)
        scaled(sum + at, left, operand(k), part / width, collective.factor, what);
      else
        plain(sum + at, left, operand(k), part / width);
    }
    at += part;
  }
}

bool SharedCollective::all_reduce_small(const Collective& collective) {
  const std::size_t bytes = bytes_of(collective);
  std::memcpy(place(), collective.data, bytes);
  if (!exchange()) return false;
  add(
      collective, 0, bytes, [this](int rank) { return place_of(rank); }, collective.data);
  return true;
}

bool SharedCollective::all_reduce(const Collective& collective) {
  const auto ranks = static_cast<std::size_t>(rounds_.ranks());
  const auto self = static_cast<std::size_t>(rounds_.rank());
  const std::size_t all = bytes_of(collective);
  if (all * ranks <= kSmallBytes && all <= room()) return all_reduce_small(collective);
  return in_pieces(all, room(), [&](std::size_t first, std::size_t bytes) {
    std::byte* const data = collective.data + first;
    // The parts of the ranks begin at cache lines.
    const std::size_t lines =
        (bytes + SharedRounds::kAlignment - 1) / SharedRounds::kAlignment / ranks + 1;
    const auto begin = [&](std::size_t rank) {
      return std::min(rank * lines * SharedRounds::kAlignment, bytes);
    };
    const std::size_t own = begin(self);
    const std::size_t own_bytes = begin(self + 1) - own;
    std::memcpy(place(), data, own);
    std::memcpy(place() + own + own_bytes, data + own + own_bytes, bytes - own - own_bytes);
    if (!exchange()) return false;
    std::byte* const sum = place() + own;
    const auto source_of = [&](int rank) {
      return rank == rounds_.rank() ? data + own : place_of(rank) + own;
    };
    add(collective, first + own, own_bytes, source_of, sum);
    std::memcpy(data + own, sum, own_bytes);
    if (!exchange()) return false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t at = begin(rank);
      if (rank != self)
        std::memcpy(data + at, place_of(static_cast<int>(rank)) + at, begin(rank + 1) - at);
    }
    return true;
  });
}

bool SharedCollective::broadcast(const Collective& collective) {
  const bool is_root = rounds_.rank() == collective.root;
  return in_pieces(bytes_of(collective), room(), [&](std::size_t at, std::size_t bytes) {
    if (is_root) std::memcpy(place(), collective.data + at, bytes);
    if (!exchange()) return false;
    if (!is_root) std::memcpy(collective.data + at, place_of(collective.root), bytes);
    return true;
  });
}

// The contribution may already lie in its place in the result.
bool SharedCollective::all_gather(const Collective& collective) {
  const std::size_t all = bytes_of(collective);
  std::byte* const own = collective.gathered + static_cast<std::size_t>(rounds_.rank()) * all;
  if (own != collective.data) std::memmove(own, collective.data, all);
  return in_pieces(all, room(), [&](std::size_t at, std::size_t bytes) {
    std::memcpy(place(), own + at, bytes);
    if (!exchange()) return false;
    for (int rank = 0; rank < rounds_.ranks(); ++rank)
      if (rank != rounds_.rank())
        std::memcpy(collective.gathered + static_cast<std::size_t>(rank) * all + at, place_of(rank),
                    bytes);
    return true;
  });
}

// Exchanges frames: in each round a rank publishes a piece of its frame for each other rank.
class SharedCollective::Frames final : public FrameExchange {
 public:
  explicit Frames(SharedCollective& shared) : shared_(shared) {}
  int rank() const override { return shared_.rounds_.rank(); }
  int size() const override { return shared_.rounds_.ranks(); }

  bool exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) override {
    const auto ranks = static_cast<std::size_t>(size());
    const auto self = static_cast<std::size_t>(rank());
    const std::size_t longest = shared_.room() / ranks;
    return in_pieces(frame_bytes, longest, [&](std::size_t at, std::size_t bytes) {
      for (std::size_t to = 0; to < ranks; ++to)
        if (to != self)
          std::memcpy(shared_.place() + to * longest, out + to * frame_bytes + at, bytes);
      if (!shared_.exchange()) return false;
      for (std::size_t from = 0; from < ranks; ++from)
        if (from != self)
          std::memcpy(in + from * frame_bytes + at,
                      shared_.place_of(static_cast<int>(from)) + self * longest, bytes);
      return true;
    });
  }

  void add_in_order(const Collective& collective, const std::byte* parts, std::size_t stride,
                    std::size_t bytes, std::byte* sum) override {
    const auto ranks = static_cast<std::uint64_t>(size());
    lockstep::add_in_order(collective, parts, stride, bytes, ranks, sum);
  }

 private:
  SharedCollective& shared_;
};

SharedCollective::End SharedCollective::run(const Collective& collective, const CollectiveId& id,
                                            FrameMemory& memory) {
  if (collective.count == 0) return agree();
  if (collective.verify) {
    Frames frames(*this);
    if (!run_verified(collective, id, frames, memory, flaw_) && end_ == End::kDone)
      end_ = End::kCorrupted;
    return end_;
  }
  switch (collective.op) {
    case Op::kAllReduceSum:
      all_reduce(collective);
      break;
    case Op::kBroadcast:
      broadcast(collective);
      break;
    case Op::kAllGather:
      all_gather(collective);
      break;
  }
  return end_;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
