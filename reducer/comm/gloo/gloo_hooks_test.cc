// What hooks send (S4), counted beneath Gloo, in the sends of its all-reduces.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "reducer/comm/gloo/device.h"
#include "reducer/comm/gloo/forwarding_transport.h"
#include "reducer/comm/gloo/group_test_util.h"
#include "reducer/hooks/builtin_hooks.h"
#include "reducer/test_ranks.h"

namespace lockstep::testing {
namespace {

constexpr std::int64_t kElements =
    std::int64_t{12} * 1024;  // Two or three ranks divide them evenly.
constexpr int kPasses = 3;

// Each reducer has a hook of its own.
using MakeHook = std::function<std::shared_ptr<CommunicationHook>()>;
std::shared_ptr<CommunicationHook> none() { return nullptr; }

// Returns the payload bytes that all ranks send in all-reduces of `kPasses` passes.
std::uint64_t bytes_sent(int ranks, DType dtype, const MakeHook& make_hook) {
  std::atomic<std::uint64_t> bytes{0};
  auto device = shared_device("127.0.0.1");
  EXPECT_TRUE(device.has_value());
  GlooContextOptions connection = tested_connection();
  connection.device =
      std::make_shared<ForwardingDevice>(std::move(*device), [&](const ForwardedSend& send) {
        if (send.part_of == ForwardedSend::kAllReduce) bytes += send.bytes;
      });
  const auto store = std::make_shared<HashStore>();
  on_ranks(ranks, [&](int r) {
    GlooOptions options;
    auto group = GlooProcessGroup::connect(store, r, ranks, options, connection);
    ASSERT_TRUE(group.has_value()) << group.error().to_string();
    const std::shared_ptr<ProcessGroup> shared(std::move(*group));
    {
      TestRank rank;
      rank.add("p", {dtype, Shape::row_major({kElements})});
      ReducerOptions reducing = quick_options(false);
      reducing.hook = make_hook();
      const Status made =
          rank.create({shared, std::make_shared<PrefixStore>("reducer", store)}, reducing);
      ASSERT_TRUE(made.ok()) << made.to_string();
      const Values values(static_cast<std::size_t>(kElements), r + 1.0);
      for (int pass = 0; pass < kPasses; ++pass) {
        rank.undefine_grads();
        const std::vector<Tensor> gradients{rank.tensor(values, dtype)};
        ASSERT_TRUE(rank.engine.backward(rank.forward_of(rank.parameters), gradients, false).ok());
        EXPECT_EQ(values_of(rank.parameters[0]->grad())[kElements - 1], (ranks + 1) / 2.0);
      }
    }
    ASSERT_TRUE(store->set("done" + std::to_string(r), "").has_value());
    for (int other = 0; other < ranks; ++other)  // No rank leaves before all are done.
      ASSERT_TRUE(
          store->get("done" + std::to_string(other), platform::Deadline::never()).has_value());
  });
  return bytes;
}

// A ring sends each element 2 (n - 1) times, over all ranks.
TEST(GlooHooks, S4CompressionHalvesTheBytesThatAreSent) {
  for (const int ranks : {2, 3}) {
    const auto full =
        static_cast<std::uint64_t>(std::int64_t{2} * (ranks - 1) * kElements * 4 * kPasses);
    const DType dtype = DType::kFloat32;
    EXPECT_EQ(bytes_sent(ranks, dtype, none), full);
    EXPECT_EQ(bytes_sent(ranks, dtype, make_all_reduce_hook), full);
    EXPECT_EQ(bytes_sent(ranks, dtype, make_fp16_compress_hook), full / 2);
    EXPECT_EQ(bytes_sent(ranks, dtype, make_bf16_compress_hook), full / 2);
  }
}

TEST(GlooHooks, S4OtherWidthsAreWhatTheyAre) {
  const auto one = static_cast<std::uint64_t>(2 * kElements * kPasses);
  EXPECT_EQ(bytes_sent(2, DType::kFloat64, make_bf16_compress_hook), 2 * one);
  EXPECT_EQ(bytes_sent(2, DType::kFloat16, make_fp16_compress_hook), 2 * one);
  EXPECT_EQ(bytes_sent(2, DType::kFloat64, none), 8 * one);
}

}  // namespace
}  // namespace lockstep::testing
