// Claim: what a kernel does, block by block and thread by thread, is what HostDevice does, bit by
// bit, whatever the sizes, dtypes, strides and alignments. Method: random cases
// (test_kernel_cases.h) over the kernels' own code, run on the host (test_emulation.h). A failure
// means a wrong index, a wrong alignment or a wrong rounding in kernel_bodies.h, or a wrong plan in
// launch_plan.cc. Replay: RapidCheck prints the case and, with RC_PARAMS, its seed. What a host
// cannot show, a GPU's own conversions and instructions, is for cuda_device_test.cc and
// kernel_code_test.sh.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "reducer/device/cuda/test_emulation.h"
#include "reducer/device/cuda/test_kernel_cases.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
namespace {

// Counts what it does.
class CountingDevice final : public EmulatedDevice {
 public:
  std::map<std::string, int> seen;

 protected:
  void execute(LaunchPlan& plan) override {
    EmulatedDevice::execute(plan);
    const EmulatedFar far(plan);
    const kernels::ManySegments& argument = plan.argument(far.place());
    const kernels::Table& table = argument.table;
    ++seen[table.far_segments != nullptr           ? "far"
           : table.near_bytes > kernels::kFewBytes ? "many"
                                                   : "few"];
    for (std::uint32_t i = 0; i < table.segments; ++i) {
      kernels::Segment segment;
      const auto* from = reinterpret_cast<const std::byte*>(table.far_segments);
      std::memcpy(&segment, (from ? from : argument.near) + i * sizeof(segment), sizeof(segment));
      if (segment.form == kernels::Form::kDense) ++seen["dense"];
      if (segment.form == kernels::Form::kStrided) ++seen["strided"];
      if (segment.form != kernels::Form::kPacked) continue;
      ++seen["packed"];
      if (segment.head != 0) ++seen["with a head"];
      if ((segment.elements - segment.head) % 8 != 0) ++seen["with a tail"];
    }
  }
};

template <class DeviceType = CountingDevice>
class EmulatedSubject final : public KernelSubject {
 public:
  Device& device() override { return device_; }
  void write(const Storage& to, const std::vector<std::byte>& bytes) override {
    if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
  }
  std::vector<std::byte> read(const Storage& from) override {
    return {from.data(), from.data() + from.bytes()};
  }
  void reduce_in_rank_order(const Tensor& from, const Tensor& to, double factor) override {
    device_.reduce_in_rank_order({}, from, to, factor);
  }
  DeviceType& emulated() { return device_; }

 private:
  DeviceType device_;
};

KernelCase any_case() {
  return draw_case([](std::uint64_t below) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, below));
  });
}

// One property for each operation of Device.
#define LOCKSTEP_AS_ON_THE_HOST(Name, expect)                     \
  RC_GTEST_PROP(KernelEmulation, Name##HasTheBitsOfTheHost, ()) { \
    EmulatedSubject<> subject;                                    \
    const KernelCase value = any_case();                          \
    RC_LOG() << value;                                            \
    RC_ASSERT(expect(subject, value) == "");                      \
  }
LOCKSTEP_AS_ON_THE_HOST(Gather, expect_gather)
LOCKSTEP_AS_ON_THE_HOST(GatherInPlace, expect_gather_in_place)
LOCKSTEP_AS_ON_THE_HOST(Scatter, expect_scatter)
LOCKSTEP_AS_ON_THE_HOST(Copy, expect_copy)
LOCKSTEP_AS_ON_THE_HOST(Add, expect_add)
LOCKSTEP_AS_ON_THE_HOST(Convert, expect_convert)
LOCKSTEP_AS_ON_THE_HOST(Fold, expect_fold)
#undef LOCKSTEP_AS_ON_THE_HOST

// The same without shrinking, so more of them; and all forms of segments occur.
TEST(KernelEmulation, AThousandCasesHaveTheBitsOfTheHost) {
  EmulatedSubject<> subject;
  std::mt19937_64 random(1);
  int pieces = 0;
  for (int i = 0; i < 1000; ++i) {
    const KernelCase value = draw_case([&](std::uint64_t below) { return random() % below; });
    pieces += static_cast<int>(value.pieces.size());
    ASSERT_EQ(expect_gather(subject, value), "") << value;
    ASSERT_EQ(expect_gather_in_place(subject, value), "") << value;
    ASSERT_EQ(expect_scatter(subject, value), "") << value;
    ASSERT_EQ(expect_copy(subject, value), "") << value;
    ASSERT_EQ(expect_add(subject, value), "") << value;
    ASSERT_EQ(expect_convert(subject, value), "") << value;
    ASSERT_EQ(expect_fold(subject, value), "") << value;
  }
  EXPECT_GT(pieces, 2000);
  for (const char* form : {"packed", "with a head", "with a tail", "dense", "strided"})
    EXPECT_GT(subject.emulated().seen[form], 100) << form;
}

// Positive controls: kernels with a mistake that a compiler or a hurried hand makes.

// A product and a sum that are rounded once, together.
template <class Format>
struct ContractedFold : kernels::Fold<Format> {
  using To = typename Format::Memory;
  template <int N>
  static void fold(const kernels::Table& table, kernels::Pack<To, N>& out,
                   const kernels::Pack<To, N>& in) {
    const auto factor = static_cast<typename Format::Compute>(table.factor);
    for (int i = 0; i < N; ++i)
      out.at[i] = Format::store(std::fma(Format::load(in.at[i]), factor, Format::load(out.at[i])));
  }
};

// Bits that do not fit are cut off.
struct CutBFloat16 : kernels::BFloat16 {
  static Memory store(float value) {
    return static_cast<Memory>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
};

struct FlushedFloat32 : kernels::Float32 {
  static Memory store(float value) { return std::fabs(value) < 0x1p-126f ? 0.0f * value : value; }
};

// Rounds a double to a float before it is rounded to 16 bits.
struct TwiceRoundedFloat16 : kernels::Float16 {
  static Memory store(double value) { return float_to_half(static_cast<float>(value)); }
};

class WrongDevice final : public EmulatedDevice {
 public:
  enum class Mistake { kContracted, kCut, kFlushed, kTwiceRounded, kLeftOut };
  static inline Mistake mistake = Mistake::kContracted;

 protected:
  void execute(LaunchPlan& plan) override {
    using kernels::Kind;
    const kernels::Operation op = plan.operation();
    if (plan.empty()) return;
    if (mistake == Mistake::kContracted && op.kind == Kind::kFold && op.to == DType::kFloat32)
      return as<ContractedFold<kernels::Float32>>(plan);
    if (mistake == Mistake::kCut && op.kind == Kind::kScale && op.to == DType::kBFloat16)
      return as<kernels::Scale<CutBFloat16>>(plan);
    if (mistake == Mistake::kFlushed && op.kind == Kind::kAdd && op.to == DType::kFloat32)
      return as<kernels::Add<FlushedFloat32>>(plan);
    if (mistake == Mistake::kTwiceRounded && op.kind == Kind::kConvert &&
        op.from == DType::kFloat64 && op.to == DType::kFloat16)
      return as<kernels::Convert<kernels::Float64, TwiceRoundedFloat16>>(plan);
    if (mistake == Mistake::kLeftOut && plan.blocks() > 1) return leave_out(plan);
    EmulatedDevice::execute(plan);
  }

 private:
  template <class Op>
  static void as(LaunchPlan& plan) {
    const EmulatedFar far(plan);
    emulate_as<Op>(plan.argument(far.place()), plan.blocks());
  }
  static void leave_out(LaunchPlan& plan) {  // the last block
    const EmulatedFar far(plan);
    const kernels::ManySegments& argument = plan.argument(far.place());
    kernels::with_operation(plan.operation(),
                            [&]<class Op>(Op) { emulate_as<Op>(argument, plan.blocks() - 1); });
  }
};

// How many of some cases tell that the device is wrong.
template <class Expect>
int found(WrongDevice::Mistake mistake, DType dtype, DType other, Expect expect) {
  WrongDevice::mistake = mistake;
  EmulatedSubject<WrongDevice> subject;
  std::mt19937_64 random(5);
  int found = 0;
  for (int i = 0; i < 40; ++i) {
    KernelCase value = draw_case([&](std::uint64_t below) { return random() % below; });
    value.dtype = dtype;
    value.other = other;
    value.factor = 1.0 / 3;
    if (expect(subject, value) != "") ++found;
  }
  return found;
}

TEST(KernelEmulation, AContractedProductAndSumIsFound) {
  EXPECT_GT(found(WrongDevice::Mistake::kContracted, DType::kFloat32, DType::kFloat32, expect_fold),
            10);
}
TEST(KernelEmulation, BitsThatAreCutOffAreFound) {
  EXPECT_GT(found(WrongDevice::Mistake::kCut, DType::kBFloat16, DType::kBFloat16, expect_gather),
            10);
}
TEST(KernelEmulation, FlushedSubnormalsAreFound) {
  EXPECT_GT(found(WrongDevice::Mistake::kFlushed, DType::kFloat32, DType::kFloat32, expect_add),
            10);
}
TEST(KernelEmulation, RoundingTwiceIsFound) {
  EXPECT_GT(
      found(WrongDevice::Mistake::kTwiceRounded, DType::kFloat64, DType::kFloat16, expect_convert),
      0);
}
TEST(KernelEmulation, ABlockThatIsLeftOutIsFound) {
  EXPECT_GT(found(WrongDevice::Mistake::kLeftOut, DType::kFloat32, DType::kFloat32, expect_copy),
            0);
}

// The conversions of the two 16-bit formats, all of their values.
TEST(KernelEmulation, EverySixteenBitValueIsScaledAsOnTheHost) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    EmulatedDevice device;
    HostDevice host;
    const Shape shape = Shape::row_major({65536});
    const Tensor from = *Tensor::empty(host, dtype, shape);
    const Tensor expected = *Tensor::empty(host, dtype, shape);
    const Tensor got = *Tensor::empty(device, dtype, shape);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      std::memcpy(from.data() + 2 * i, &bits, 2);
    }
    host.convert({}, from, expected, 1.0 / 3);
    device.convert({}, from, got, 1.0 / 3);
    EXPECT_EQ(std::memcmp(expected.data(), got.data(), 2 * 65536), 0) << name_of(dtype);
  }
}

std::vector<Tensor> many(Device& device, std::int64_t count, std::int64_t elements) {
  std::vector<Tensor> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(*Tensor::empty(device, DType::kFloat32, Shape::row_major({elements})));
  return out;
}

// The plan of a gather of that many gradients.
void plan_many(LaunchPlan& plan, EmulatedDevice& device, std::int64_t count) {
  const std::vector<Tensor> gradients = many(device, count, 64);
  const Tensor bucket = *Tensor::empty(device, DType::kFloat32, Shape::row_major({count * 64}));
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    transfers.push_back({&gradients[i], bucket.data() + i * 256, &gradients[i].shape()});
  plan_gather(plan, transfers, 0.25);
  EXPECT_EQ(plan.segment_count(), gradients.size());
  EXPECT_EQ(plan.blocks(), gradients.size());
}

TEST(LaunchPlan, AThousandParametersTravelInTheArgument) {
  EmulatedDevice device;
  LaunchPlan plan;
  for (const std::int64_t count : {1, 124, 125, 161, 1000, 1022}) {
    plan_many(plan, device, count);
    EXPECT_EQ(plan.far_bytes(), 0u) << count;
    EXPECT_EQ(plan.argument(nullptr).table.near_bytes, 32u * static_cast<std::uint32_t>(count));
  }
  plan_many(plan, device, 1023);
  EXPECT_EQ(plan.far_bytes(), 1023u * 32u);
}

// What has no kernel for many segments.
TEST(LaunchPlan, AnOperationThatTakesFewHasItsSegmentsFarSooner) {
  EmulatedDevice device;
  const std::vector<Tensor> tensors = many(device, 125, 4);
  LaunchPlan plan;
  plan.clear({kernels::Kind::kAdd, DType::kFloat32, DType::kFloat32}, 1.0);
  for (std::size_t i = 0; i < 124; ++i)
    plan.append_dense(tensors[0].data(), tensors[i + 1].data(), 4);
  EXPECT_EQ(plan.far_bytes(), 0u);
  plan.append_dense(tensors[1].data(), tensors[0].data(), 4);
  EXPECT_EQ(plan.far_bytes(), 125u * 32u);
}

template <class Op>
void expect_kernels_for(kernels::Kind kind) {
  EXPECT_TRUE(Op::kTakesMany || !kernels::takes_many(kind));
}

// Else a launch would have no kernel.
TEST(LaunchPlan, WhatTakesManyHasAKernelForIt) {
  using kernels::Kind;
  for (const Kind kind : {Kind::kMove, Kind::kScale, Kind::kAdd, Kind::kConvert, Kind::kFold})
    for (const DType from : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16})
      for (const DType to : {DType::kFloat64, from})
        kernels::with_operation({kind, from, to},
                                [&]<class Op>(Op) { expect_kernels_for<Op>(kind); });
}

kernels::Form form_of(LaunchPlan& plan) {
  kernels::Segment segment;
  std::memcpy(&segment, plan.argument(nullptr).near, sizeof(segment));
  return segment.form;
}

TEST(LaunchPlan, WhatIsDenseInOneOrderOnBothSidesIsMovedInPacks) {
  EmulatedDevice device;
  Shape channels_last = Shape::row_major({8, 4, 5, 6});
  channels_last.strides = {120, 1, 24, 4};
  const Tensor a = *Tensor::empty(device, DType::kFloat32, channels_last);
  const Tensor b = *Tensor::empty(device, DType::kFloat32, channels_last);
  LaunchPlan plan;
  plan_copy(plan, a, b);
  EXPECT_EQ(form_of(plan), kernels::Form::kPacked);
  const Tensor c = *Tensor::empty(device, DType::kFloat32, Shape::row_major({8, 4, 5, 6}));
  plan_copy(plan, a, c);
  EXPECT_EQ(form_of(plan), kernels::Form::kStrided);
}

TEST(LaunchPlan, AddressesThatAreNotAlignedAlikeAreReadOneByOne) {
  EmulatedDevice device;
  const Tensor all = *Tensor::empty(device, DType::kFloat32, Shape::row_major({2000}));
  const Shape shape = Shape::row_major({500});
  const Tensor from(all.storage(), 3, DType::kFloat32, shape);
  LaunchPlan plan;
  plan_copy(plan, from, Tensor(all.storage(), 1003, DType::kFloat32, shape));
  EXPECT_EQ(form_of(plan), kernels::Form::kPacked);
  plan_copy(plan, from, Tensor(all.storage(), 1004, DType::kFloat32, shape));
  EXPECT_EQ(form_of(plan), kernels::Form::kDense);
}

TEST(LaunchPlan, NothingToDoIsNoLaunch) {
  EmulatedDevice device;
  LaunchPlan plan;
  plan_gather(plan, {}, 0.5);
  EXPECT_TRUE(plan.empty());
  const std::vector<Tensor> none = many(device, 2, 0);
  plan_add(plan, none[0], none[1]);
  EXPECT_TRUE(plan.empty());
  plan_fold(plan, none[0], none[1], 0.5);
  EXPECT_TRUE(plan.empty());
}

// Tables for either argument, and for none, with layouts in them, do the same.
TEST(KernelEmulation, ManyTransposedParametersHaveTheBitsOfTheHost) {
  EmulatedSubject<> subject;
  for (const std::int64_t count : {10, 300, 1100}) {
    KernelCase value;
    value.factor = 1.0 / 3;
    for (std::int64_t i = 0; i < count; ++i)
      value.pieces.push_back(
          {{2 + i % 7, 3, 5 + i % 3}, static_cast<std::uint32_t>(i % 6), 0, 1, 0, i % 2});
    EXPECT_EQ(expect_gather(subject, value), "") << count;
    EXPECT_EQ(expect_scatter(subject, value), "") << count;
  }
  for (const char* where : {"few", "many", "far"})
    EXPECT_EQ(subject.emulated().seen[where], 2) << where;
}

}  // namespace
}  // namespace lockstep
