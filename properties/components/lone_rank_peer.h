// The surroundings of a rank that trains alone (lone_rank.cc): the other rank of its group, its
// host memory, a node and a hook of its user, and the one failure that is drawn for a step.
//
// Threads: the one that trains.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reducer/base/check.h"
#include "reducer/comm/store.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"
#include "reducer/tensor/sparse.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace lone_rank {

using Doing = FlightRecord::Doing;
using Floats = std::vector<float>;

constexpr std::uint32_t kSteps = 7;
constexpr int kRanks = 2;
constexpr float kOfPeer = 8;  // what the peer adds to each element of a sum, scaled
constexpr std::uint32_t kMostParameters = 5;
constexpr std::size_t kJoinEvents = 3;
constexpr std::size_t kJoinFlags = kJoinEvents + 2;  // behind the events and the options
constexpr std::size_t kJoinNumbers = kJoinFlags + kRanks;
constexpr std::size_t kBytesOfRank = 16;  // by which the ranks of two groups are compared
constexpr std::int64_t kExtraElements = 64;
constexpr const char* kHookName = "forgetful";
constexpr const char* kHookText = "this hook gives up";
constexpr int kStrangeRank = 1;
constexpr std::int64_t kStrangeSequence = 7;

// How a communication hook fails: its first half, or with its result.
enum class HookFlaw : std::uint8_t {
  kError,
  kThrows,
  kThrowsNumber,
  kThrowsNoMemory,
  kUndefined,
  kOtherDtype,
  kOtherSize,
  kHoles,
  kOtherDevice,
  kCount
};
inline bool is_of_result(HookFlaw flaw) { return flaw >= HookFlaw::kUndefined; }

// What goes wrong in a step, if anything does, and when.
struct Mishap {
  enum class Kind : std::uint8_t {
    kNone,
    kMemory,      // a request for memory is refused
    kRefused,     // the group has no memory for a collective, and goes on
    kEndsBefore,  // the group ends before a collective
    kEndsIn,      // the group ends in a collective
    kHook,        // the communication hook fails
    kStrangers,   // the second group has other processes
  };
  Kind kind = Kind::kNone;
  std::uint32_t left = 0;  // occasions until it happens
  bool is_on = false;      // while a call of the reducer or the engine runs
  bool has_happened = false;
  HookFlaw hook_flaw = HookFlaw::kError;
  Collective collective;  // in which it happened
  std::int64_t sequence = kNone;

  bool happens(Kind which) {
    if (kind != which || !is_on || left == 0 || --left > 0) return false;
    return has_happened = true;
  }
};

class HostOfRank final : public HostDevice {
 public:
  explicit HostOfRank(Mishap& mishap) : HostDevice(0, FreshMemory::kNaN), mishap_(mishap) {}
  Result<Ref<Storage>> allocate(std::size_t bytes) override {
    if (mishap_.happens(Mishap::Kind::kMemory)) return failed(out_of_memory());
    return HostDevice::allocate(bytes);
  }
  ~HostOfRank() override {
    for (const auto& [data, bytes] : early_) HostDevice::release(data, bytes);
  }
  HostOfRank(const HostOfRank&) = delete;
  HostOfRank& operator=(const HostOfRank&) = delete;

  // While it is watched, what is released stays, as the group works on it.
  void watch(bool is_watched) { is_watched_ = is_watched; }
  bool has_released_early() const { return !early_.empty(); }
  void release(std::byte* data, std::size_t bytes) override {
    if (is_watched_)
      early_.emplace_back(data, bytes);
    else
      HostDevice::release(data, bytes);
  }

 private:
  Mishap& mishap_;
  bool is_watched_ = false;
  std::vector<std::pair<std::byte*, std::size_t>> early_;
};

// What the peer does in the passes that this rank reduces or shadows.
struct Peer {
  std::vector<bool> uses;  // by parameter that is reduced
  std::vector<UnevenInputs::Event>
      next;  // what it starts when this rank is out of inputs; reversed
};

// A collective runs when somebody is about to wait, who asks for the group's progress.
class PeerGroup final : public ProcessGroup {
 public:
  PeerGroup(Mishap& mishap, Peer& peer, bool is_second)
      : mishap_(mishap), peer_(peer), is_second_(is_second) {}
  ~PeerGroup() override { abort(Status(Code::kAborted, "the group is gone")); }
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  int rank() const override { return 0; }
  int size() const override { return kRanks; }
  bool can_reduce(DType) const override { return true; }
  bool can_verify() const override { return true; }
  platform::Duration timeout() const override { return std::chrono::seconds(5); }
  Status health() const override { return cause_; }
  std::uint64_t progress() const override {
    run_all();
    return 0;
  }
  std::uint32_t started() const { return static_cast<std::uint32_t>(next_); }
  bool has_ended() const { return !cause_.ok(); }

  Status start(const Collective& collective, Work& work) override {
    if (!cause_.ok()) return cause_of(collective, next_);
    if (mishap_.happens(Mishap::Kind::kRefused)) {
      note(collective);
      return Status(Code::kOutOfMemory, "the group has no memory");
    }
    if (mishap_.happens(Mishap::Kind::kEndsBefore)) {
      note(collective);
      end_in(collective, next_);
      return cause_;
    }
    const bool fails = mishap_.happens(Mishap::Kind::kEndsIn);
    if (fails) note(collective);
    work.begin(next_++);
    pending_.push_back({collective, &work, fails});
    return {};
  }

  void abort(const Status& cause) override {
    if (cause_.ok()) cause_ = cause_of_abort(cause, rank());
    for (const Pending& each : std::exchange(pending_, {}))
      each.work->complete(cause_of(each.collective, each.work->sequence()));
  }

 private:
  struct Pending {
    Collective collective;
    Work* work = nullptr;
    bool fails = false;
  };

  void note(const Collective& collective) const {
    mishap_.collective = collective;
    mishap_.sequence = next_;
  }
  void end_in(const Collective& collective, std::int64_t sequence) const {
    cause_ = Status(Code::kTransport, "the network is gone");
    note_collective(cause_.failure(), collective, sequence);
  }
  Status cause_of(const Collective& collective, std::int64_t sequence) const {
    Status status = cause_;
    note_collective(status.failure(), collective, sequence);
    return status;
  }

  void run_all() const {
    for (const Pending& each : std::exchange(pending_, {})) {
      if (each.fails) end_in(each.collective, each.work->sequence());
      if (cause_.ok()) run(each.collective);
      each.work->complete(cause_.ok() ? Status()
                                      : cause_of(each.collective, each.work->sequence()));
    }
  }

  void run(const Collective& collective) const {
    if (collective.op == Op::kAllGather) return gather(collective);
    if (collective.op != Op::kAllReduceSum)
      return;  // This rank is the root, or the peer has the same.
    if (collective.dtype == DType::kInt32) return add_integers(collective);
    auto* const data = reinterpret_cast<float*>(collective.data);
    for (std::uint64_t i = 0; i < collective.count; ++i) data[i] += kOfPeer;
  }

  void gather(const Collective& collective) const {
    const std::size_t bytes = collective.count * size_of(collective.dtype);
    if (bytes == 0) return;
    for (std::size_t r = 0; r < kRanks; ++r)
      std::memcpy(collective.gathered + r * bytes, collective.data, bytes);
    const bool compares_ranks = is_second_ && collective.bucket == kNone && bytes == kBytesOfRank;
    if (compares_ranks && mishap_.kind == Mishap::Kind::kStrangers && mishap_.left > 0)
      collective.gathered[bytes] ^= std::byte{1};
  }

  void add_integers(const Collective& collective) const {
    auto* const data = reinterpret_cast<std::int32_t*>(collective.data);
    if (collective.count != kJoinNumbers) {
      for (std::size_t i = 0; i < collective.count; ++i) data[i] += peer_.uses[i] ? 1 : 0;
      return;
    }
    for (std::size_t i = kJoinEvents; i < kJoinFlags; ++i) data[i] *= kRanks;  // the same options
    if (data[kJoinFlags] != 0) {
      for (std::size_t i = 0; i < kJoinEvents; ++i) data[i] *= kRanks;
      data[kJoinFlags + 1] = 1;
    } else if (!peer_.next.empty()) {
      ++data[static_cast<std::size_t>(peer_.next.back())];
      data[kJoinFlags + 1] = 1;
      peer_.next.pop_back();
    }
  }

  Mishap& mishap_;
  Peer& peer_;
  const bool is_second_;
  std::int64_t next_ = 0;
  mutable std::vector<Pending> pending_;
  mutable Status cause_;
};

class UserNode final : public Node {
 public:
  UserNode(Engine& engine, std::vector<Edge> edges, bool throws)
      : Node(engine.next_sequence(), 1, 0), throws_(throws) {
    edges_ = std::move(edges);
  }
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    if (throws_) throw std::runtime_error("a node of the lone rank");
    if (!outgoing.empty()) outgoing[0] = incoming[0];
    return {};
  }

 private:
  const bool throws_;
};

// Sums each bucket's mean, and beside it a tensor that it lets go of at once. Some results are
// copies of the buckets.
class ForgetfulHook final : public CommunicationHook {
 public:
  ForgetfulHook(HostOfRank& host, HostDevice& other, Mishap& mishap, std::string& flaw)
      : host_(host), other_(other), mishap_(mishap), flaw_(flaw) {}
  std::string name() const override { return kHookName; }
  Status start(HookBucket& bucket) override {
    if (!is_of_result(mishap_.hook_flaw) && mishap_.happens(Mishap::Kind::kHook)) return fail();
    if (bucket.all_reduce(Tensor()).code() != Code::kInvalidArgument && flaw_.empty())
      flaw_ = "the sum of no tensor is not refused";
    const Tensor& flat = bucket.flat();
    const Transfer in_place{&flat, flat.data(), &flat.shape()};
    host_.pack_bucket(host_.current_stream(), {&in_place, 1}, bucket.factor());
    LOCKSTEP_RETURN_IF_ERROR(sum_and_forget(bucket));
    return bucket.all_reduce(flat);
  }
  Result<Tensor> finish(HookBucket& bucket) override {
    if (is_of_result(mishap_.hook_flaw) && mishap_.happens(Mishap::Kind::kHook))
      return wrong_result(bucket.flat());
    return bucket.index() % 2 == 0 ? bucket.flat() : copy_of(bucket.flat());
  }

 private:
  // As if a collective of another group had failed.
  Status fail() const {
    if (mishap_.hook_flaw == HookFlaw::kThrows) throw std::runtime_error(kHookText);
    if (mishap_.hook_flaw == HookFlaw::kThrowsNumber) throw kStrangeRank;
    if (mishap_.hook_flaw == HookFlaw::kThrowsNoMemory) throw std::bad_alloc();
    Failure failure;
    failure.code = Code::kTransport;
    failure.rank = failure.suspect = kStrangeRank;
    failure.sequence = kStrangeSequence;
    failure.collective = name_of(Op::kBroadcast);
    failure.detail = kHookText;
    return failure;
  }
  Result<Tensor> wrong_result(const Tensor& flat) {
    const std::int64_t elements = flat.elements();
    switch (mishap_.hook_flaw) {
      case HookFlaw::kOtherDtype:
        return Tensor::empty(host_, DType::kInt32, flat.shape());
      case HookFlaw::kOtherDevice:
        return Tensor::empty(other_, flat.dtype(), flat.shape());
      case HookFlaw::kHoles:
        if (elements > 1) {
          Result<Tensor> wide =
              Tensor::empty(host_, flat.dtype(), Shape::row_major({2 * elements}));
          if (!wide) return wide;
          Shape every_second = flat.shape();
          every_second.strides[0] = 2;
          return Tensor(wide->storage(), 0, flat.dtype(), every_second);
        }
        [[fallthrough]];
      case HookFlaw::kOtherSize:
        return Tensor::empty(host_, flat.dtype(), Shape::row_major({elements + 1}));
      default:
        return Tensor();
    }
  }
  // It does not begin where its memory does.
  Result<Tensor> copy_of(const Tensor& flat) {
    Result<Tensor> more =
        Tensor::empty(host_, flat.dtype(), Shape::row_major({flat.elements() + 1}));
    if (!more) return more;
    const Tensor copy(more->storage(), 1, flat.dtype(), flat.shape());
    host_.copy(host_.current_stream(), flat, copy);
    return copy;
  }
  Status sum_and_forget(HookBucket& bucket) {
    {
      Result<Tensor> extra =
          Tensor::empty(host_, DType::kFloat32, Shape::row_major({kExtraElements}));
      if (!extra) return extra.error();
      const auto elements = static_cast<std::size_t>(extra->elements());
      host_.fill_zero(host_.current_stream(), extra->data(), elements * size_of(extra->dtype()));
      LOCKSTEP_RETURN_IF_ERROR(bucket.all_reduce(*extra));
      host_.watch(true);
    }
    host_.watch(false);
    if (host_.has_released_early() && flaw_.empty())
      flaw_ = "the memory of a hook's sum is gone before the sum is complete";
    return {};
  }

  HostOfRank& host_;
  HostDevice& other_;
  Mishap& mishap_;
  std::string& flaw_;
};

}  // namespace lone_rank
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
