// Claim: a steady training step allocates nothing but its graph's nodes. This program has an
// operator new of its own that counts, for all threads, while a test asks it to; the host device
// allocates through it, too. (The test is a program of its own, because each program can have only
// one operator new.)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "reducer/comm/mirror_peer_group.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"
#include "reducer/hooks/builtin_hooks.h"

namespace {

std::atomic<bool> is_counting{false};
std::atomic<int> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  if (is_counting.load()) allocations.fetch_add(1);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* counted_or_throw(std::size_t bytes, std::size_t alignment) {
  void* memory = counted(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted_or_throw(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace lockstep {
namespace {

// Counts the allocations in its scope.
class Counting {
 public:
  Counting() {
    allocations = 0;
    is_counting = true;
  }
  ~Counting() { is_counting = false; }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
  int so_far() const { return allocations.load(); }
};

// Passes its gradient on to all of its edges.
class FanNode final : public Node {
 public:
  FanNode(Engine& engine, std::vector<Edge> edges) : Node(engine.next_sequence(), 1, 0) {
    edges_ = std::move(edges);
  }
  Status apply(std::span<const Tensor> in, std::span<Tensor> out, const BackwardContext&) override {
    for (Tensor& o : out) o = in[0];
    return {};
  }
};

struct Setting {
  const char* name;
  bool dynamic;
  int outputs;  // The outputs of a forward, each with its share of the parameters.
  int unused;   // The unused parameters, in dynamic and static mode.
  std::shared_ptr<CommunicationHook> (*hook)() = nullptr;
  bool is_static = false;
  bool views = false;
  Schedule schedule = Schedule::kOverlapped;
};

class Allocation : public ::testing::TestWithParam<Setting> {
 protected:
  static constexpr int kParameters = 24;
  static constexpr int kElements = 64;

  void SetUp() override {
    for (int i = 0; i < kParameters; ++i) {
      HostDevice& device = devices_[static_cast<std::size_t>(i) % 2];
      parameters_.push_back(make_ref<Parameter>("p" + std::to_string(i), device, DType::kFloat32,
                                                Shape::row_major({kElements}), true,
                                                engine_.next_sequence()));
    }
    ReducerOptions options;
    options.find_unused_parameters = GetParam().dynamic;
    options.bucket_limits = {1000};  // A bucket has four parameters.
    options.static_graph = GetParam().is_static;
    options.gradient_as_bucket_view = GetParam().views;
    options.schedule = GetParam().schedule;
    if (GetParam().hook) options.hook = GetParam().hook();
    for (const char* name : {"b0", "b1"}) {  // Each synced forward broadcasts them.
      Tensor value = *Tensor::empty(devices_[0], DType::kFloat32, Shape::row_major({kElements}));
      devices_[0].fill_zero({}, value.data(), kElements * sizeof(float));
      options.buffers.push_back(make_ref<Buffer>(name, std::move(value)));
    }
    Membership membership{std::make_shared<MirrorPeerGroup>(), std::make_shared<HashStore>()};
    auto made = DataParallel::create(parameters_, engine_, options, std::move(membership));
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    parallel_ = std::move(*made);
    const int outputs = GetParam().outputs;
    for (int i = 0; i < outputs; ++i) {
      gradients_.push_back(
          *Tensor::empty(devices_[0], DType::kFloat32, Shape::row_major({kElements})));
      devices_[0].fill_zero({}, gradients_.back().data(), kElements * sizeof(float));
    }
    outputs_.reserve(static_cast<std::size_t>(outputs));
  }

  // Builds the graph of the test itself, which is not counted: a node with few edges for each four
  // parameters, all of them below the output whose share they are.
  Status build(std::vector<Edge>& edges) {
    is_counting = false;
    const int used = kParameters - GetParam().unused;
    const int share = (used + GetParam().outputs - 1) / GetParam().outputs;
    for (int from = 0; from < used; from += share) {
      std::vector<Edge> below;
      for (int i = from; i < std::min(from + share, used); i += 4) {
        std::vector<Edge> few;
        for (int k = i; k < std::min({i + 4, from + share, used}); ++k)
          few.push_back({parameters_[static_cast<std::size_t>(k)], 0});
        below.push_back({Ref<Node>(new FanNode(engine_, std::move(few))), 0});
      }
      edges.push_back({Ref<Node>(new FanNode(engine_, std::move(below))), 0});
    }
    is_counting = true;
    return {};
  }

  void step(int& in_forward, int& in_backward) {
    for (const auto& p : parameters_) p->fill_grad_with_zeros();
    outputs_.clear();
    Status status;
    const DataParallel::Module module = [this](std::vector<Edge>& edges) { return build(edges); };
    {
      const Counting counting;
      status = parallel_->forward(module, outputs_);
      in_forward = counting.so_far();
    }
    ASSERT_TRUE(status.ok()) << status.to_string();
    {
      const Counting counting;
      status = engine_.backward(outputs_, gradients_, false);
      in_backward = counting.so_far();
    }
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  std::array<HostDevice, 2> devices_{HostDevice(0, FreshMemory::kNaN),
                                     HostDevice(1, FreshMemory::kNaN)};
  Engine engine_{1};
  std::vector<Ref<Parameter>> parameters_;
  std::unique_ptr<DataParallel> parallel_;
  std::vector<Tensor> gradients_;
  std::vector<Edge> outputs_;
};

TEST(AllocationCount, TheCounterCounts) {
  const Counting counting;
  HostDevice device;
  { const std::vector<int> some(10); }
  EXPECT_EQ(counting.so_far(), 1);
  { const Tensor tensor = *Tensor::empty(device, DType::kFloat32, Shape::row_major({3})); }
  EXPECT_EQ(counting.so_far(), 3);  // The memory, and the Storage that owns it.
}

TEST_P(Allocation, FromTheThirdPassOnTheReducerAllocatesNothingButNodes) {
  for (int pass = 0; pass < 6; ++pass) {
    int in_forward = 0;
    int in_backward = 0;
    ASSERT_NO_FATAL_FAILURE(step(in_forward, in_backward));
    if (pass < 2) continue;
    EXPECT_EQ(in_backward, 0) << "pass " << pass;
    // A PassOutput and its list of edges: one for each output, or in dynamic mode one for all.
    const int nodes = GetParam().dynamic ? 1 : GetParam().outputs;
    EXPECT_EQ(in_forward, 2 * nodes) << "pass " << pass;
  }
}

TEST_P(Allocation, LocalPassesInBetweenAllocateNothingAtAll) {
  for (int pass = 0; pass < 6; ++pass) {
    int in_forward = 0;
    int in_backward = 0;
    int in_local = 0;
    {
      const DataParallel::NoSync no_sync(*parallel_);
      ASSERT_NO_FATAL_FAILURE(step(in_forward, in_backward));
      in_local = in_forward + in_backward;
    }
    ASSERT_NO_FATAL_FAILURE(step(in_forward, in_backward));
    if (pass < 2) continue;
    EXPECT_EQ(in_local, 0) << "pass " << pass;
    EXPECT_EQ(in_backward, 0) << "pass " << pass;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, Allocation,
    ::testing::Values(Setting{"Plain", false, 1, 0}, Setting{"PlainManyOutputs", false, 6, 0},
                      Setting{"Dynamic", true, 1, 0}, Setting{"DynamicManyOutputs", true, 6, 0},
                      Setting{"DynamicUnused", true, 1, 8},
                      Setting{"Hook", false, 1, 0, make_all_reduce_hook},
                      Setting{"HookThatCompresses", false, 1, 0, make_fp16_compress_hook},
                      Setting{"Static", false, 1, 0, nullptr, true},
                      Setting{"StaticUnused", false, 1, 8, nullptr, true},
                      Setting{"Views", false, 1, 0, nullptr, false, true},
                      Setting{"StaticViews", false, 6, 0, nullptr, true, true},
                      Setting{"AfterBackward", false, 1, 0, nullptr, false, false,
                              Schedule::kAfterBackward}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lockstep
