#include "properties/lane/frame_check.h"

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "properties/generate/random.h"
#include "reducer/comm/seal.h"
#include "reducer/comm/verified.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::uint32_t kFrameCases = 4;  // of each key
constexpr std::uint32_t kMostBytes = 200;

// The peers of one rank in an all-gather, each of which sends bytes with its own number.
class Peers final : public FrameExchange {
 public:
  Peers(int rank, int size, const CollectiveId& id, std::size_t bytes)
      : rank_(rank), size_(size), id_(id), bytes_(bytes) {}
  // Replaces the frame that a rank sends by a changed one.
  void change(int rank, std::function<void(Seal&)> to) {
    changed_ = rank;
    change_ = std::move(to);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool exchange(std::byte*, std::byte* in, std::size_t frame_bytes) override {
    for (int from = 0; from < size_; ++from) {
      Seal seal;
      seal.group = id_.group;
      seal.sequence = id_.sequence;
      seal.bytes = bytes_;
      seal.from = from;
      seal.to = rank_;
      if (from == changed_) change_(seal);
      std::byte* const frame = in + static_cast<std::size_t>(from) * frame_bytes;
      std::memset(frame, 0, frame_bytes);
      std::memset(frame + kSealBytes, seal.from, seal.bytes);
      put_seal(seal, frame, frame_bytes);
    }
    return true;
  }
  void add_in_order(const Collective&, const std::byte*, std::size_t, std::size_t,
                    std::byte*) override {}

 private:
  const int rank_;
  const int size_;
  const CollectiveId id_;
  const std::size_t bytes_;
  int changed_ = kNone;
  std::function<void(Seal&)> change_;
};

class FrameCase {
 public:
  FrameCase(std::uint32_t key, std::uint32_t number) : chance_(key, number, "frames") {
    size_ = 2 + draw(4);
    rank_ = draw(size_);
    sender_ = (rank_ + 1 + draw(size_ - 1)) % size_;
    bytes_ = 1 + chance_.below(kMostBytes);
    id_ = {chance_.below(5), draw(5)};
  }

  std::string judge() {
    if (Flaw flaw; !run({}, flaw)) return "it refuses frames that are right: " + flaw.what;
    const int other = (sender_ + 1) % size_;
    const std::vector<std::pair<const char*, std::function<void(Seal&)>>> changes = {
        {" of another group", [](Seal& seal) { ++seal.group; }},
        {"", [](Seal& seal) { ++seal.sequence; }},
        {"", [](Seal& seal) { --seal.bytes; }},
        {"", [](Seal& seal) { ++seal.step; }},
        {"", [other](Seal& seal) { seal.from = other; }},
        {"", [other](Seal& seal) { seal.to = seal.to == other ? other + 1 : other; }},
    };
    for (const auto& [words, change] : changes) {
      Flaw flaw;
      if (run(change, flaw)) return "it takes a frame for another one";
      if (flaw.sender != sender_)
        return "it takes rank " + std::to_string(flaw.sender) + " for the sender of a wrong frame";
      const bool says_group = flaw.what.find(" of another group") != std::string::npos;
      if (says_group != (*words != '\0'))
        return "it is wrong about the group that a frame belongs to: " + flaw.what;
    }
    return {};
  }

 private:
  int draw(int limit) { return static_cast<int>(chance_.below(static_cast<std::uint32_t>(limit))); }
  bool run(std::function<void(Seal&)> change, Flaw& flaw) const {
    const auto all = static_cast<std::size_t>(size_) * bytes_;
    std::vector<std::byte> own(bytes_, std::byte(rank_));
    std::vector<std::byte> gathered(all);
    Collective collective;
    collective.op = Op::kAllGather;
    collective.dtype = DType::kByte;
    collective.count = bytes_;
    collective.data = own.data();
    collective.gathered = gathered.data();
    collective.verify = true;
    Peers peers(rank_, size_, id_, bytes_);
    const bool is_right = change == nullptr;
    if (!is_right) peers.change(sender_, std::move(change));
    FrameMemory memory;
    if (!run_verified(collective, id_, peers, memory, flaw)) return false;
    for (std::size_t i = 0; is_right && i < all; ++i)
      if (gathered[i] != std::byte(i / bytes_)) return false;
    return true;
  }

  properties::Random chance_;
  int size_ = 0;
  int rank_ = 0;
  int sender_ = 0;
  std::size_t bytes_ = 0;
  CollectiveId id_;
};

}  // namespace

std::string wrongly_received(std::uint32_t key) {
  for (std::uint32_t number = 0; number < kFrameCases; ++number)
    if (const std::string flaw = FrameCase(key, number).judge(); !flaw.empty())
      return "of the frames of a verified collective: " + flaw;
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
