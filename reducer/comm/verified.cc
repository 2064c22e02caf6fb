#include "reducer/comm/verified.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reducer/base/check.h"
#include "reducer/comm/seal.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

// The alignment of frames, so that elements are aligned as they are in buckets.
constexpr std::size_t kAlignment = 64;

class VerifiedRun {
 public:
  VerifiedRun(const Collective& collective, const CollectiveId& id, FrameExchange& exchange,
              FrameMemory& memory, Flaw& flaw)
      : collective_(collective),
        id_(id),
        exchange_(exchange),
        memory_(memory),
        flaw_(flaw),
        rank_(static_cast<std::size_t>(exchange.rank())),
        world_(static_cast<std::size_t>(exchange.size())),
        bytes_(static_cast<std::size_t>(collective.count) * size_of(collective.dtype)) {
    const std::size_t width = size_of(collective.dtype);
    LOCKSTEP_CHECK_LT(rank_, world_);
    share_ = (bytes_ / width + world_ - 1) / world_ * width;
    LOCKSTEP_CHECK_EQ(begin_of(world_), bytes_);  // The pieces are the whole.
  }

  bool all_reduce();
  bool broadcast();
  bool all_gather();

 private:
  std::size_t begin_of(std::size_t rank) const { return std::min(rank * share_, bytes_); }
  std::size_t share_of(std::size_t rank) const { return begin_of(rank + 1) - begin_of(rank); }
  std::byte* came_from(std::size_t rank) const {
    return memory_.in.data() + rank * frame_bytes_ + kSealBytes;
  }
  template <class Do>
  void for_peers(Do act) const {
    for (std::size_t r = 0; r < world_; ++r)
      if (r != rank_) act(r);
  }
  void make_frames(std::size_t payload_bytes);
  void put(std::size_t to, const std::byte* payload, std::size_t bytes);
  template <class BytesFrom>
  bool exchange(BytesFrom bytes_from);
  bool hand_on_own_share();
  Seal seal_of(std::size_t from, std::size_t to, std::size_t bytes) const;

  const Collective& collective_;
  const CollectiveId& id_;
  FrameExchange& exchange_;
  FrameMemory& memory_;
  Flaw& flaw_;
  const std::size_t rank_;
  const std::size_t world_;
  const std::size_t bytes_;
  std::size_t share_ = 0;
  std::size_t frame_bytes_ = 0;
  std::uint32_t step_ = 0;
};

void VerifiedRun::make_frames(std::size_t payload_bytes) {
  LOCKSTEP_CHECK_LE(payload_bytes, bytes_);
  frame_bytes_ = kSealBytes + (payload_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t all = world_ * frame_bytes_;
  if (memory_.out.size() < all) memory_.out.resize(all);
  if (memory_.in.size() < all) memory_.in.resize(all);
}

Seal VerifiedRun::seal_of(std::size_t from, std::size_t to, std::size_t bytes) const {
  LOCKSTEP_CHECK_LT(from, world_);
  LOCKSTEP_CHECK_LT(to, world_);
  LOCKSTEP_CHECK(from != to);  // A rank's own frame is not sent.
  Seal seal;
  seal.group = id_.group;
  seal.sequence = id_.sequence;
  seal.bytes = bytes;
  seal.from = static_cast<std::int32_t>(from);
  seal.to = static_cast<std::int32_t>(to);
  seal.step = step_;
  return seal;
}

void VerifiedRun::put(std::size_t to, const std::byte* payload, std::size_t bytes) {
  std::byte* const frame = memory_.out.data() + to * frame_bytes_;
  LOCKSTEP_CHECK_LE(kSealBytes + bytes, frame_bytes_);
  if (bytes > 0) std::memcpy(frame + kSealBytes, payload, bytes);
  std::memset(frame + kSealBytes + bytes, 0, frame_bytes_ - kSealBytes - bytes);
  put_seal(seal_of(rank_, to, bytes), frame, frame_bytes_);
}

// Sends the frames, and checks every received frame before any of them is used.
template <class BytesFrom>
bool VerifiedRun::exchange(BytesFrom bytes_from) {
  LOCKSTEP_CHECK_LT(step_, 2u);  // A collective has one exchange or two.
  if (!exchange_.exchange(memory_.out.data(), memory_.in.data(), frame_bytes_)) return false;
  for (std::size_t r = 0; r < world_; ++r) {
    if (r == rank_) continue;
    const std::byte* const frame = memory_.in.data() + r * frame_bytes_;
    std::string what = flaw_of(seal_of(r, rank_, bytes_from(r)), frame, frame_bytes_);
    if (what.empty()) continue;
    flaw_.sender = static_cast<int>(r);
    flaw_.what = std::move(what);
    return false;
  }
  ++step_;
  return true;
}

// The last step of both kinds: each rank has the result of its piece, and all ranks get it.
bool VerifiedRun::hand_on_own_share() {
  LOCKSTEP_CHECK_EQ(step_, 1u);
  for_peers([&](std::size_t r) { put(r, collective_.data + begin_of(rank_), share_of(rank_)); });
  if (!exchange([this](std::size_t r) { return share_of(r); })) return false;
  for_peers([&](std::size_t r) {
    if (share_of(r) > 0) std::memcpy(collective_.data + begin_of(r), came_from(r), share_of(r));
  });
  return true;
}

bool VerifiedRun::all_reduce() {
  LOCKSTEP_CHECK_EQ(step_, 0u);
  make_frames(share_);
  for_peers([&](std::size_t r) { put(r, collective_.data + begin_of(r), share_of(r)); });
  if (!exchange([this](std::size_t) { return share_of(rank_); })) return false;
  if (const std::size_t bytes = share_of(rank_); bytes > 0) {
    std::byte* const own = collective_.data + begin_of(rank_);
    std::memcpy(came_from(rank_), own, bytes);
    exchange_.add_in_order(collective_, came_from(0), frame_bytes_, bytes, own);
  }
  return hand_on_own_share();
}

bool VerifiedRun::broadcast() {
  LOCKSTEP_CHECK_EQ(step_, 0u);
  make_frames(share_);
  const auto root = static_cast<std::size_t>(collective_.root);
  const bool is_root = rank_ == root;
  LOCKSTEP_CHECK_LT(root, world_);
  for_peers(
      [&](std::size_t r) { put(r, collective_.data + begin_of(r), is_root ? share_of(r) : 0); });
  const auto bytes_from = [&](std::size_t r) { return r == root ? share_of(rank_) : 0; };
  if (!exchange(bytes_from)) return false;
  if (!is_root && share_of(rank_) > 0)
    std::memcpy(collective_.data + begin_of(rank_), came_from(root), share_of(rank_));
  return hand_on_own_share();
}

bool VerifiedRun::all_gather() {
  LOCKSTEP_CHECK(collective_.gathered != nullptr);
  make_frames(bytes_);
  for_peers([&](std::size_t r) { put(r, collective_.data, bytes_); });
  if (!exchange([this](std::size_t) { return bytes_; })) return false;
  std::byte* const own = collective_.gathered + rank_ * bytes_;
  if (own != collective_.data) std::memmove(own, collective_.data, bytes_);
  for_peers(
      [&](std::size_t r) { std::memcpy(collective_.gathered + r * bytes_, came_from(r), bytes_); });
  return true;
}

}  // namespace

bool run_verified(const Collective& collective, const CollectiveId& id, FrameExchange& exchange,
                  FrameMemory& memory, Flaw& flaw) {
  LOCKSTEP_CHECK_LT(0u, collective.count);
  LOCKSTEP_CHECK_LT(1, exchange.size());
  LOCKSTEP_CHECK(collective.data != nullptr);
  LOCKSTEP_CHECK_EQ(flaw.sender, kNone);  // A flaw of before would be taken for one of this run.
  VerifiedRun run(collective, id, exchange, memory, flaw);
  switch (collective.op) {
    case Op::kAllReduceSum:
      return run.all_reduce();
    case Op::kBroadcast:
      return run.broadcast();
    case Op::kAllGather:
      return run.all_gather();
  }
  return false;
}

Failure corrupted(const Flaw& flaw, int rank) {
  LOCKSTEP_CHECK(flaw.sender != kNone);
  Failure failure;
  failure.code = Code::kCorrupted;
  failure.rank = rank;
  failure.suspect = flaw.sender;
  failure.definite = true;
  failure.detail = "what rank " + std::to_string(rank) + " received from rank " +
                   std::to_string(flaw.sender) + " is not what was to be sent: " + flaw.what;
  return failure;
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
