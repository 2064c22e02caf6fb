// This component checks that a rank accepts only the right frames of a verified collective
// (reducer/comm/verified.h). Collectives are of each kind, and of sizes that the ranks cannot
// share evenly. Those whose frames are right must succeed with the right bytes; where one frame
// takes the place of another, or a byte changes, the rank must notice, and name its sender (F3).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "properties/components/checks.h"
#include "reducer/comm/seal.h"
#include "reducer/comm/verified.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace {

constexpr std::uint32_t kMostCollectives = 2;
constexpr std::uint32_t kMostElements = 24;

// A verified collective of ranks whose data this check knows. A sum adds bytes, modulo 256: what a
// group adds is its own affair, and not that of the frames.
struct Exchanged {
  Op op = Op::kAllGather;
  int root = 0;
  int size = 2;
  std::size_t width = 1;  // bytes of an element
  std::size_t bytes = 0;  // of one rank's data
  CollectiveId id;

  bool is_gather() const { return op == Op::kAllGather; }
  // Each rank handles the same number of elements, as far as there are any (verified.h).
  std::size_t begin_of(int rank) const {
    const auto ranks = static_cast<std::size_t>(size);
    const std::size_t elements = (bytes / width + ranks - 1) / ranks;
    return std::min(static_cast<std::size_t>(rank) * elements * width, bytes);
  }
  static std::byte value(int rank, std::size_t at) {
    return std::byte(static_cast<unsigned>(rank * 31) + static_cast<unsigned>(at * 7) + 1);
  }
  std::byte result(std::size_t at) const {
    if (op == Op::kBroadcast) return value(root, at);
    unsigned sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += static_cast<unsigned>(value(rank, at));
    return std::byte(sum);
  }
  std::uint32_t steps() const { return is_gather() ? 1 : 2; }
  // What one rank sends another one in one of the exchanges.
  std::vector<std::byte> sent(int from, int to, std::uint32_t step) const {
    const bool is_whole = is_gather();
    const bool is_silent = op == Op::kBroadcast && step == 0 && from != root;
    const int piece = step == 0 ? to : from;
    const std::size_t begin = is_whole ? 0 : begin_of(piece);
    const std::size_t end = is_silent ? begin : is_whole ? bytes : begin_of(piece + 1);
    std::vector<std::byte> all;
    for (std::size_t at = begin; at < end; ++at)
      all.push_back(step == 0 ? value(from, at) : result(at));
    return all;
  }
  Seal seal_of(int from, int to, std::uint32_t step) const {
    Seal seal;
    seal.group = id.group;
    seal.sequence = id.sequence;
    seal.bytes = sent(from, to, step).size();
    seal.from = from;
    seal.to = to;
    seal.step = step;
    return seal;
  }
  std::vector<std::byte> frame(const Seal& seal, const std::vector<std::byte>& payload,
                               std::size_t frame_bytes) const {
    std::vector<std::byte> all(frame_bytes);
    std::copy(payload.begin(), payload.end(), all.begin() + kSealBytes);
    put_seal(seal, all.data(), frame_bytes);
    return all;
  }
};

// Something that happens to one frame on its way to the rank.
struct Accident {
  int sender = kNone;
  std::uint32_t step = 0;
  std::function<void(Seal&)> seal;                     // another frame takes its place
  std::function<void(std::vector<std::byte>&)> bytes;  // its bytes change
};

// The peers of one rank. They compare what the rank sends them with what it has to send.
class Peers final : public FrameExchange {
 public:
  Peers(int rank, const Exchanged& what, Accident accident)
      : rank_(rank), what_(what), accident_(std::move(accident)) {}
  int rank() const override { return rank_; }
  int size() const override { return what_.size; }
  bool exchange(std::byte* out, std::byte* in, std::size_t frame_bytes) override {
    if (step_ >= what_.steps()) wrong_ = "it exchanges frames once too often";
    for (int peer = 0; peer < what_.size; ++peer) {
      if (peer == rank_) continue;
      const std::size_t at = static_cast<std::size_t>(peer) * frame_bytes;
      judge_sent(peer, out + at, frame_bytes);
      Seal seal = what_.seal_of(peer, rank_, step_);
      const bool is_hit = peer == accident_.sender && step_ == accident_.step;
      if (is_hit && accident_.seal) accident_.seal(seal);
      std::vector<std::byte> frame = what_.frame(seal, what_.sent(peer, rank_, step_), frame_bytes);
      if (is_hit && accident_.bytes) accident_.bytes(frame);
      std::memcpy(in + at, frame.data(), frame_bytes);
    }
    ++step_;
    return true;
  }
  void add_in_order(const Collective&, const std::byte* parts, std::size_t stride,
                    std::size_t bytes, std::byte* sum) override {
    for (std::size_t at = 0; at < bytes; ++at) {
      unsigned total = 0;
      for (int rank = 0; rank < what_.size; ++rank)
        total += static_cast<unsigned>(parts[static_cast<std::size_t>(rank) * stride + at]);
      sum[at] = std::byte(total);
    }
  }
  const std::string& wrong() const { return wrong_; }

 private:
  void judge_sent(int peer, const std::byte* frame, std::size_t frame_bytes) {
    const std::vector<std::byte> right = what_.sent(rank_, peer, step_);
    if (kSealBytes + right.size() > frame_bytes || frame_bytes % kSealBytes != 0)
      wrong_ = fmt::format("it sends frames of {} bytes", frame_bytes);
    else if (!flaw_of(what_.seal_of(rank_, peer, step_), frame, frame_bytes).empty() ||
             !std::equal(right.begin(), right.end(), frame + kSealBytes))
      wrong_ = fmt::format("it sends rank {} something else in exchange {}", peer, step_);
  }

  const int rank_;
  const Exchanged& what_;
  const Accident accident_;
  std::uint32_t step_ = 0;
  std::string wrong_;
};

class FrameCase {
 public:
  // Collectives of other sizes have used the memory before.
  FrameCase(Choices& choices, FrameMemory& memory) : chance_(choices), memory_(memory) {
    constexpr Op kOps[] = {Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather};
    constexpr DType kTypes[] = {DType::kByte, DType::kFloat16, DType::kFloat32, DType::kFloat64};
    what_.op = kOps[draw(3)];
    what_.size = 2 + draw(4);
    what_.root = draw(what_.size);
    dtype_ = kTypes[draw(4)];
    what_.width = size_of(dtype_);
    what_.bytes = (1 + chance_.below(kMostElements)) * what_.width;
    what_.id = {chance_.below(5), draw(5)};
    rank_ = draw(what_.size);
    sender_ = (rank_ + 1 + draw(what_.size - 1)) % what_.size;
    step_ = chance_.below(what_.steps());
  }

  std::string judge() {
    Flaw flaw;
    if (!run({}, flaw)) return "it refuses frames that are right: " + flaw.what;
    if (!wrong_.empty()) return wrong_;
    if (std::string wrong = try_other_frames(); !wrong.empty()) return wrong;
    return try_damage();
  }

 private:
  int draw(int limit) { return static_cast<int>(chance_.below(static_cast<std::uint32_t>(limit))); }

  // A whole frame that belongs to another rank, exchange, collective or group.
  std::string try_other_frames() {
    const int other = (sender_ + 1) % what_.size;
    const std::vector<std::pair<const char*, std::function<void(Seal&)>>> changes = {
        {" of another group", [](Seal& seal) { ++seal.group; }},
        {"", [](Seal& seal) { ++seal.sequence; }},
        {"", [](Seal& seal) { seal.bytes = seal.bytes > 0 ? seal.bytes - 1 : 1; }},
        {"", [](Seal& seal) { ++seal.step; }},
        {"", [other](Seal& seal) { seal.from = other; }},
        {"", [other](Seal& seal) { seal.to = seal.to == other ? other + 1 : other; }},
    };
    for (const auto& [words, change] : changes) {
      Flaw flaw;
      const Accident accident{sender_, step_, change, {}};
      if (run(accident, flaw)) return "it takes a frame for another one";
      if (flaw.sender != sender_)
        return "it takes rank " + std::to_string(flaw.sender) + " for the sender of a wrong frame";
      const bool says_group = flaw.what.find(" of another group") != std::string::npos;
      if (says_group != (*words != '\0'))
        return "it is wrong about the group that a frame belongs to: " + flaw.what;
    }
    return {};
  }

  // One byte changes, or nothing has arrived.
  std::string try_damage() {
    const std::uint32_t where = chance_.word();
    const auto change = std::byte(1 + chance_.below(255));
    const bool is_empty = chance_.percent(20);
    Accident accident{sender_, step_, {}, {}};
    accident.bytes = [&](std::vector<std::byte>& frame) {
      if (is_empty) return std::fill(frame.begin(), frame.end(), std::byte(0));
      frame[where % frame.size()] ^= change;
    };
    Flaw flaw;
    if (run(accident, flaw)) return "it takes a frame of which a byte has changed";
    if (flaw.sender != sender_)
      return "it takes rank " + std::to_string(flaw.sender) + " for the sender of a damaged frame";
    if (flaw.what.find("bytes were changed, moved or lost") == std::string::npos)
      return "it takes a damaged frame for another one: " + flaw.what;
    return judge_failure(flaw);
  }

  // The rank that has found it is certain, and suspects the sender.
  std::string judge_failure(const Flaw& flaw) const {
    const Failure failure = corrupted(flaw, rank_);
    const bool is_right = failure.code == Code::kCorrupted && failure.rank == rank_ &&
                          failure.suspect == sender_ && failure.definite &&
                          failure.detail.find(flaw.what) != std::string::npos;
    return is_right ? "" : "its error is: " + failure.to_string();
  }

  // Whether all goes well; if so, memory has the result, and nothing beside it.
  bool run(Accident accident, Flaw& flaw) {
    constexpr std::size_t kGuard = 16;
    constexpr std::byte kUntouched{0xa5};
    const bool is_gather = what_.is_gather();
    const auto ranks = static_cast<std::size_t>(what_.size);
    std::vector<std::byte> data(what_.bytes + kGuard, kUntouched);
    std::vector<std::byte> gathered((is_gather ? ranks * what_.bytes : 0) + kGuard, kUntouched);
    for (std::size_t at = 0; at < what_.bytes; ++at) data[at] = Exchanged::value(rank_, at);
    Collective collective;
    collective.op = what_.op;
    collective.dtype = dtype_;
    collective.count = what_.bytes / what_.width;
    collective.root = what_.root;
    collective.data = data.data();
    collective.gathered = gathered.data();
    collective.verify = true;
    Peers peers(rank_, what_, std::move(accident));
    if (!run_verified(collective, what_.id, peers, memory_, flaw)) return false;
    if (!peers.wrong().empty()) wrong_ = peers.wrong();
    for (std::size_t at = 0; at < data.size(); ++at) {
      const bool is_inside = at < what_.bytes;
      const std::byte right = !is_inside  ? kUntouched
                              : is_gather ? Exchanged::value(rank_, at)
                                          : what_.result(at);
      if (data[at] != right) wrong_ = fmt::format("byte {} of its data is wrong", at);
    }
    for (std::size_t at = 0; at < gathered.size(); ++at) {
      const bool is_inside = at + kGuard < gathered.size();
      const auto from = static_cast<int>(at / what_.bytes);
      const std::byte right = is_inside ? Exchanged::value(from, at % what_.bytes) : kUntouched;
      if (gathered[at] != right) wrong_ = fmt::format("byte {} of what it gathers is wrong", at);
    }
    return true;
  }

  Choices& chance_;
  FrameMemory& memory_;
  Exchanged what_;
  DType dtype_ = DType::kByte;
  int rank_ = 0;
  int sender_ = 0;
  std::uint32_t step_ = 0;
  std::string wrong_;
};

}  // namespace

std::string check_frames(Choices& choices) {
  FrameMemory memory;
  for (std::uint32_t left = choices.between(1, kMostCollectives); left > 0; --left)
    if (std::string flaw = FrameCase(choices, memory).judge(); !flaw.empty()) return flaw;
  return {};
}

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
