// The part of nccl_group.cc that checks payloads: what is sent by a group over NCCL arrives,
// whatever its kind, dtype, size and place, and no change on the way of a verified collective
// goes unnoticed.
//
// Threads: any rank's own fiber.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "properties/components/nccl_group_steps.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {
namespace group_check {

// A collective whose contents are known.
struct Payload {
  Op op = Op::kAllReduceSum;
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kNative;
  std::size_t count = 1;
  int root = 0;
  bool is_on_gpu = false;
  bool is_verified = false;

  std::size_t bytes() const { return count * size_of(dtype); }
  // Numbers from 1 to 5, so that the sum of a few of them is exact in each dtype.
  static int number(int rank, std::size_t at) {
    return 1 + static_cast<int>((static_cast<std::size_t>(rank) * 3 + at * 2) % 5);
  }
  // What a number of elements are in memory.
  std::vector<std::byte> encoded(const std::function<int(std::size_t)>& number_at) const;
  std::vector<std::byte> sent(int rank) const {
    return encoded([rank](std::size_t at) { return number(rank, at); });
  }
  std::vector<std::byte> result(int size) const {
    if (op == Op::kBroadcast) return sent(root);
    if (op == Op::kAllReduceSum)
      return encoded([size](std::size_t at) {
        int sum = 0;
        for (int rank = 0; rank < size; ++rank) sum += number(rank, at);
        return sum;
      });
    std::vector<std::byte> all;
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<std::byte> one = sent(rank);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
};

// The bits of a small positive number whose significand has `digits` bits.
inline std::uint16_t as_half(int number, int digits, int bias) {
  int exponent = 0;
  while (number >> (exponent + 1) != 0) ++exponent;
  const int significand = ((number << digits) >> exponent) & ((1 << digits) - 1);
  return static_cast<std::uint16_t>(((exponent + bias) << digits) | significand);
}

inline std::vector<std::byte> Payload::encoded(
    const std::function<int(std::size_t)>& number_at) const {
  std::vector<std::byte> all(bytes());
  const auto put = [&](std::size_t at, auto value) {
    std::memcpy(all.data() + at * sizeof value, &value, sizeof value);
  };
  for (std::size_t at = 0; at < count; ++at) {
    const int number = number_at(at);
    switch (dtype) {
      case DType::kFloat64:
        put(at, static_cast<double>(number));
        break;
      case DType::kFloat32:
        put(at, static_cast<float>(number));
        break;
      case DType::kFloat16:
        put(at, as_half(number, 10, 15));
        break;
      case DType::kBFloat16:
        put(at, as_half(number, 7, 127));
        break;
      case DType::kInt32:
        put(at, number);
        break;
      case DType::kByte:
        put(at, static_cast<std::uint8_t>(number));
        break;
      case DType::kComplex64:
        put(at, std::array<float, 2>{static_cast<float>(number), -1});
        break;
    }
  }
  return all;
}

class GroupPayloads : public GroupSteps {
 public:
  using GroupSteps::GroupSteps;

 protected:
  Payload drawn_payload() {
    constexpr std::array<DType, 7> kTypes{DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                          DType::kBFloat16, DType::kInt32,   DType::kByte,
                                          DType::kComplex64};
    constexpr std::array<Op, 3> kOps{Op::kAllReduceSum, Op::kBroadcast, Op::kAllGather};
    const auto size = static_cast<std::uint32_t>(of_.size);
    Payload payload;
    payload.op = kOps[chance_.below(3)];
    payload.dtype = kTypes[chance_.below(payload.op == Op::kAllReduceSum ? 5 : 7)];
    payload.reduction = chance_.percent(50) ? Reduction::kRankOrdered : Reduction::kNative;
    const std::array<std::uint32_t, 5> counts{0, 1, chance_.below(2 * size + 2), 2 * size,
                                              chance_.below(70)};
    payload.count = counts[chance_.below(5)];
    if (is_header(payload.bytes())) ++payload.count;
    payload.root = static_cast<int>(chance_.below(size));
    payload.is_on_gpu = chance_.percent(50);
    payload.is_verified = chance_.percent(50);
    return payload;
  }

  // Runs it, and returns how it has ended. Where that is well, the result is right, and nothing
  // beside it has changed (G10).
  Status carry_out(NcclProcessGroup& group, const Payload& payload) {
    constexpr std::byte kGuard{0x5a};
    constexpr std::size_t kGuards = 8;
    const bool is_gather = payload.op == Op::kAllGather;
    const std::vector<std::byte> right = payload.result(group.size());
    std::vector<std::byte> data = payload.sent(group.rank());
    data.resize(data.size() + kGuards, kGuard);
    std::vector<std::byte> gathered(is_gather ? right.size() + kGuards : kGuards, kGuard);
    Started started;
    Collective& it = started.collective;
    it.dtype = payload.dtype;
    it.reduction = payload.reduction;
    it.verify = payload.is_verified;
    it.root = payload.root;
    it.data = data.data();
    it.gathered = gathered.data();
    Ref<Storage> on_gpu;
    Ref<Storage> gathered_on_gpu;
    if (payload.is_on_gpu) {
      on_gpu = *gpu_.allocate(data.size());
      gathered_on_gpu = *gpu_.allocate(gathered.size());
      write(gpu_, data, on_gpu->data(), Deadline::in(kNever)).ignore();
      write(gpu_, gathered, gathered_on_gpu->data(), Deadline::in(kNever)).ignore();
      it.device = &gpu_;
      it.data = on_gpu->data();
      it.gathered = gathered_on_gpu->data();
      it.ready = gpu_.record(gpu_.current_stream());
    }
    started.start(group, payload.op, payload.count);
    Status status = end_of(group, started);
    if (!status.ok()) return status;
    if (payload.is_on_gpu) {
      read(gpu_, on_gpu->data(), data, Deadline::in(kNever)).ignore();
      read(gpu_, gathered_on_gpu->data(), gathered, Deadline::in(kNever)).ignore();
    }
    std::vector<std::byte> wanted = is_gather ? payload.sent(group.rank()) : right;
    wanted.resize(wanted.size() + kGuards, kGuard);
    std::vector<std::byte> wanted_gathered = is_gather ? right : std::vector<std::byte>();
    wanted_gathered.resize(wanted_gathered.size() + kGuards, kGuard);
    expect(
        data == wanted && gathered == wanted_gathered,
        fmt::format("has a wrong result of '{} of {} {}{}{}'", name_of(payload.op), payload.count,
                    lockstep::name_of(payload.dtype), payload.is_on_gpu ? " on the GPU" : "",
                    payload.is_verified ? ", verified" : ""));
    return status;
  }

  // A group that was made smaller, or of all ranks: then it is as good as that of another run.
  std::unique_ptr<NcclProcessGroup> another_group(bool is_smaller, const char* name) {
    options_.name = name_ + "/" + name;
    auto group = connected();
    if (group == nullptr || !is_smaller) return group;
    const int last = of_.size - 1;
    if (of_.rank == last) {
      meet(name);
      end_idle(std::move(group));
      return {};
    }
    options_.name += "/smaller";
    auto smaller = NcclProcessGroup::shrink(*group, {last}, store_, options_);
    meet(name);
    if (!expect(smaller.has_value(), "cannot make a smaller group",
                smaller ? Status() : smaller.error()))
      return {};
    end_idle(std::move(group));
    return std::move(*smaller);
  }

  // What is sent arrives, whatever its kind, dtype, size and place. Of a verified collective, a
  // byte that changes on the way of one rank's payload is noticed by the rank that receives it, and
  // so is an earlier payload of this group or of another one (F3).
  void payloads_are_checked() {
    const bool is_smaller = of_.size > 2 && draw_ % 2 == 0;
    const bool replays = is_smaller || draw_ % 4 == 1;
    const bool is_of_other_group = is_smaller || draw_ < 6;
    const int sender = is_smaller ? culprit_ % (of_.size - 1) : culprit_;
    const std::array<Payload, 2> first{drawn_payload(), drawn_payload()};
    Payload last = drawn_payload();
    last.is_verified = true;
    last.count = chance_.percent(30) ? 1 : std::max<std::size_t>(last.count, 1);
    if (is_smaller) last.root %= of_.size - 1;
    const int size = is_smaller ? of_.size - 1 : of_.size;
    const int sends = (size - 1) * (last.op == Op::kAllGather ? 1 : 2);
    const bool is_sender = of_.rank == sender;
    Tampering& tampering = here().tampering;
    tampering.number = static_cast<int>(chance_.below(static_cast<std::uint32_t>(sends)));
    tampering.place = chance_.word();
    tampering.change = std::byte(1 + chance_.below(255));

    auto group = another_group(is_smaller, "first");
    if (group != nullptr && !is_smaller)
      for (const Payload& payload : first) {
        const Status status = carry_out(*group, payload);
        expect(status.ok(), "cannot carry out a collective", status);
      }
    if (group != nullptr && replays) {
      if (is_sender) tampering.kind = Tampering::Kind::kRecords;
      const Status status = carry_out(*group, last);
      expect(status.ok(), "cannot carry out a verified collective", status);
    }
    tampering.kind = Tampering::Kind::kNone;
    meet("carried out");
    if (replays && is_of_other_group) {
      if (group != nullptr) end_idle(std::move(group));
      group = another_group(is_smaller, "second");
      // Its collectives have the numbers that those of the first one had.
      if (group != nullptr && !is_smaller)
        for (const Payload& payload : first)
          expect(carry_out(*group, payload).ok(), "cannot carry out a collective");
    }
    tampering.sends = 0;
    here().destroyed = here().aborted = 0;
    if (is_sender) tampering.kind = replays ? Tampering::Kind::kReplays : Tampering::Kind::kFlips;
    Status status;
    if (group != nullptr) status = carry_out(*group, last);
    const auto receivers = meet("received", std::to_string(tampering.receiver));
    tampering.kind = Tampering::Kind::kNone;
    if (group == nullptr) return static_cast<void>(meet("failed"));
    // Others may have received everything by then, or not.
    const int receiver = std::atoi(receivers[static_cast<std::size_t>(sender)].c_str());
    expect(receiver != kNone, "does not send each rank its part of a verified payload");
    if (of_.rank == receiver || !status.ok())
      expect_told(status, {Code::kCorrupted, receiver, sender, "is not what was to be sent", true});
    end_failed(std::move(group));
  }
};

}  // namespace group_check
}  // namespace LOCKSTEP_NS
}  // namespace lockstep
