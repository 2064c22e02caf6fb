// Parameters whose memory is not in the order of their dimensions: channels-last ones, which are
// ordinary (B5), and those with holes or expanded, which are refused on every rank.
#include <gtest/gtest.h>

#include "reducer/hooks/builtin_hooks.h"
#include "reducer/hooks/power_sgd_hook.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

constexpr int kStridedRanks = 2;
constexpr int kPasses = 3;
constexpr std::int64_t kImages = 2;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kHeight = 4;
constexpr std::int64_t kWidth = 5;

Shape row_major() { return Shape::row_major({kImages, kChannels, kHeight, kWidth}); }

Shape channels_last() {
  Shape shape = row_major();
  shape.strides = {kChannels * kHeight * kWidth, 1, kWidth * kChannels, kChannels};
  return shape;
}

// Calls `call` with the offset in memory of each element, in the order of the dimensions.
template <class Call>
void each_element(const Shape& shape, const Call& call) {
  for (std::int64_t n = 0; n < kImages; ++n)
    for (std::int64_t c = 0; c < kChannels; ++c)
      for (std::int64_t h = 0; h < kHeight; ++h)
        for (std::int64_t w = 0; w < kWidth; ++w)
          call(static_cast<std::size_t>(n * shape.strides[0] + c * shape.strides[1] +
                                        h * shape.strides[2] + w * shape.strides[3]));
}

Values in_order(const Tensor& tensor) {
  Values values;
  each_element(tensor.shape(), [&](std::size_t at) {
    values.push_back(element(tensor.dtype(), tensor.data(), at));
  });
  return values;
}

// Every rank and pass has other values.
Tensor gradient_for(TestRank& rank, const Shape& shape, int r, int pass) {
  Tensor gradient = *Tensor::empty(rank.devices[0], DType::kFloat32, shape);
  int number = 0;
  each_element(shape, [&](std::size_t at) {
    const int value = (++number * 7 + r * 13 + pass * 5) % 31 - 15;
    set_element(DType::kFloat32, gradient.data(), at, 0.1 * value);
  });
  return gradient;
}

struct StridesSetting {
  const char* name;
  bool views = false;
  bool replicas = false;
  std::shared_ptr<CommunicationHook> (*hook)() = nullptr;
};

const StridesSetting kStridesSettings[] = {
    {"copying"},
    {"views", true},
    {"replicas", false, true},
    {"replicas, views", true, true},
    {"fp16", false, false, make_fp16_compress_hook},
    {"bf16, views", true, false, make_bf16_compress_hook},
};

// Returns the gradients of each rank after each pass. The gradient accumulates over two passes.
std::vector<std::vector<Values>> trained(const StridesSetting& setting, const Shape& parameter,
                                         const Shape& arriving) {
  const auto memberships = local_memberships(kStridedRanks);
  std::vector<std::vector<Values>> results(kStridedRanks);
  on_ranks(kStridedRanks, [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    TestRank rank;
    rank.add("small");
    const Ref<Parameter> p = rank.add("p", {DType::kFloat32, parameter});
    ReducerOptions options = quick_options(false, {1u << 20});
    options.gradient_as_bucket_view = setting.views;
    if (setting.hook != nullptr) options.hook = setting.hook();
    const Ref<Parameter> copy = make_ref<Parameter>("copy of p", rank.devices[0], DType::kFloat32,
                                                    parameter, true, rank.engine.next_sequence());
    if (setting.replicas) options.replicas.push_back({{Ref<Parameter>(), copy}, {}});
    ASSERT_TRUE(rank.create(memberships[i], options).ok());
    for (int pass = 0; pass < kPasses; ++pass) {
      if (pass != 1) rank.undefine_grads();
      std::vector<Ref<Parameter>> used = rank.parameters;
      std::vector<Tensor> gradients = {rank.tensor({1, 2}), gradient_for(rank, arriving, r, pass)};
      if (setting.replicas) {
        used.push_back(copy);
        gradients.push_back(gradient_for(rank, arriving, r, pass + 10));
      }
      const Status status = rank.engine.backward(rank.forward_of(used), gradients, false);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(p->grad().shape().same_strides(parameter));
      results[i].push_back(in_order(p->grad()));
    }
  });
  return results;
}

TEST(ReducerStrides, B5ChannelsLastHasTheBitsOfRowMajor) {
  ASSERT_FALSE(channels_last().same_strides(row_major()));
  for (const StridesSetting& setting : kStridesSettings) {
    SCOPED_TRACE(setting.name);
    const auto expected = trained(setting, row_major(), row_major());
    ASSERT_EQ(expected[0].size(), std::size_t{kPasses});
    EXPECT_EQ(expected[0], expected[1]);
    EXPECT_NE(expected[0][0], expected[0][2]);
    EXPECT_EQ(trained(setting, channels_last(), channels_last()), expected);
    // A gradient may arrive in this order, too.
    EXPECT_EQ(trained(setting, channels_last(), row_major()), expected);
  }
}

// PowerSGD takes a parameter as a matrix in the order of its memory, so the row-major parameter has
// that order here.
TEST(ReducerStrides, S4PowerSgdFollowsTheMemory) {
  const auto results_of = [](const Shape& shape) {
    const auto memberships = local_memberships(kStridedRanks);
    std::vector<std::vector<Values>> results(kStridedRanks);
    on_ranks(kStridedRanks, [&](int r) {
      const auto i = static_cast<std::size_t>(r);
      TestRank rank;
      const Ref<Parameter> p = rank.add("p", {DType::kFloat32, shape});
      ReducerOptions options = quick_options(false);
      options.hook = make_power_sgd_hook({1, 1});
      ASSERT_TRUE(rank.create(memberships[i], options).ok());
      for (int pass = 0; pass < kPasses; ++pass) {
        rank.undefine_grads();
        Tensor gradient = gradient_for(rank, channels_last(), r, pass);
        gradient = Tensor(gradient.storage(), 0, DType::kFloat32, shape);
        const std::vector<Tensor> gradients = {gradient};
        const Status status =
            rank.engine.backward(rank.forward_of(rank.parameters), gradients, false);
        ASSERT_TRUE(status.ok()) << status.to_string();
        results[i].push_back(values_of(p->grad()));
      }
      const auto& started = static_cast<LocalGroup&>(*memberships[i].group).started;
      // This is Q, so the parameter was compressed.
      EXPECT_EQ(started.back().collective.count, 60u);
    });
    return results;
  };
  const auto expected = results_of(Shape::row_major({kImages, kHeight, kWidth, kChannels}));
  ASSERT_EQ(expected[0].size(), std::size_t{kPasses});
  EXPECT_EQ(results_of(channels_last()), expected);
}

TEST(ReducerStrides, B5HolesAndExpandedParametersAreRefusedByNameOnEveryRank) {
  Shape holes = Shape::row_major({2, 2});
  holes.strides = {4, 1};
  Shape expanded = Shape::row_major({2});
  expanded.strides[0] = 0;
  struct Odd {
    DType dtype;
    bool is_frozen;  // If it is frozen, its value is what cannot be sent.
  };
  for (const Shape& shape : {holes, expanded}) {
    for (const Odd& kind :
         {Odd{DType::kFloat32, false}, Odd{DType::kFloat16, false}, Odd{DType::kFloat32, true}}) {
      const auto memberships = local_memberships(kStridedRanks);
      on_ranks(kStridedRanks, [&](int r) {
        const Membership& membership = memberships[static_cast<std::size_t>(r)];
        TestRank rank;
        const auto single = rank.add("single");
        const auto half = rank.add("half", {DType::kFloat16});
        const auto odd = rank.add("odd", {kind.dtype, shape, !kind.is_frozen});
        if (kind.is_frozen)
          odd->set_value(Tensor(rank.tensor(Values(8)).storage(), 0, kind.dtype, shape));
        const Status status = rank.create(membership, quick_options(false));
        ASSERT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
        EXPECT_NE(status.to_string().find("parameter odd is expanded, or has holes"),
                  std::string::npos)
            << status.to_string();
        // The refusal, and its reason. The rest is what the error advises: the group can still be
        // used.
        EXPECT_EQ(static_cast<LocalGroup&>(*membership.group).started.size(), 2u);
        ReducerOptions options = quick_options(false);
        options.ignored = {"odd"};
        ASSERT_TRUE(rank.create(membership, options).ok());
        const std::vector<Tensor> gradients = {rank.tensor({2, 4}),
                                               rank.tensor({2, 4}, DType::kFloat16)};
        const Status trained =
            rank.engine.backward(rank.forward_of({single, half}), gradients, false);
        ASSERT_TRUE(trained.ok()) << trained.to_string();
        EXPECT_EQ(values_of(single->grad()), (Values{2, 4}));
        EXPECT_EQ(values_of(half->grad()), (Values{2, 4}));
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
