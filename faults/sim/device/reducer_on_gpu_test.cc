// The reducer on a simulated GPU: what it refuses there, and that its hooks wait for no GPU (F8).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string_view>
#include <utility>

#include "faults/sim/device/sim_device.h"
#include "faults/sim/job_for_test.h"
#include "reducer/comm/staged_group.h"
#include "reducer/comm/store.h"
#include "reducer/data_parallel.h"
#include "reducer/hooks/power_sgd_hook.h"

namespace lockstep::simulated {
namespace {

using simulation::End;
using testing::HasSubstr;
using namespace std::chrono_literals;

// Passes its gradient on, and looks at the clock.
class ClockNode final : public Node {
 public:
  ClockNode(Engine& engine, Edge edge, int worker) : Node(engine.next_sequence(), 1, worker) {
    edges_ = {std::move(edge)};
  }
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    outgoing[0] = incoming[0];
    ran_at = simulation::Scheduler::running()->now();
    launched = reducer->launched_in_pass();
    return {};
  }
  const Reducer* reducer = nullptr;
  Duration ran_at{-1};
  std::int64_t launched = -1;  // buckets, by then
};

// Passes its gradient on to two others.
class ForkNode final : public Node {
 public:
  ForkNode(Engine& engine, Edge one, Edge other, int worker)
      : Node(engine.next_sequence(), 1, worker) {
    edges_ = {std::move(one), std::move(other)};
  }
  Status apply(std::span<const Tensor> incoming, std::span<Tensor> outgoing,
               const BackwardContext&) override {
    outgoing[0] = outgoing[1] = incoming[0];
    return {};
  }
};

// A rank with a model of three parameters on a GPU, one behind the other: what came before has its
// gradient, and its hook is over, when a clock runs.
struct TrainingRank {
  TrainingRank(Job& job, std::uint32_t number, DeviceOptions options)
      : gpu(std::move(options)), engine(gpu.index()), rank(number), job_(job) {}

  std::shared_ptr<ProcessGroup> host_group() const {
    return SimProcessGroup::join(job_.network, 1, job_.members, rank, job_.options);
  }
  std::shared_ptr<ProcessGroup> gpu_group() {
    return std::move(*StagedGroup::create(host_group(), gpu));
  }

  Status create(std::shared_ptr<ProcessGroup> group, std::shared_ptr<Store> store,
                ReducerOptions options = {}) {
    options.bucket_limits = {1};  // a bucket for each
    auto made = DataParallel::create({last, middle, first}, engine, std::move(options),
                                     {std::move(group), std::move(store)});
    if (!made) return made.error();
    parallel = std::move(*made);
    for (const Ref<ClockNode>& clock : {after_first, after_middle})
      clock->reducer = &parallel->reducer();
    return {};
  }

  Status step() {
    std::vector<Edge> outputs;
    const auto module = [this](std::vector<Edge>& made) {
      made = {{root, 0}};
      return Status();
    };
    LOCKSTEP_RETURN_IF_ERROR(parallel->forward(module, outputs));
    const Tensor gradient = *Tensor::empty(gpu, DType::kFloat32, Shape::row_major({4}));
    gpu.fill_zero(gpu.current_stream(), gradient.data(), 16);
    return engine.backward(outputs, std::vector<Tensor>{gradient}, false);
  }

  Ref<Parameter> parameter(const char* name) {
    return make_ref<Parameter>(name, gpu, DType::kFloat32, Shape::row_major({4}), true,
                               engine.next_sequence());
  }

  SimDevice gpu;
  Engine engine;
  const std::uint32_t rank;
  // The engine takes a parameter whose gradient is there before other nodes.
  Ref<Parameter> last = parameter("last");
  Ref<ClockNode> after_middle = make_ref<ClockNode>(engine, Edge{last, 0}, gpu.index());
  Ref<Parameter> middle = parameter("middle");
  Ref<ForkNode> fork =
      make_ref<ForkNode>(engine, Edge{middle, 0}, Edge{after_middle, 0}, gpu.index());
  Ref<ClockNode> after_first = make_ref<ClockNode>(engine, Edge{fork, 0}, gpu.index());
  Ref<Parameter> first = parameter("first");
  Ref<ForkNode> root =
      make_ref<ForkNode>(engine, Edge{first, 0}, Edge{after_first, 0}, gpu.index());
  std::unique_ptr<DataParallel> parallel;

 private:
  Job& job_;
};

using Body = std::function<void(TrainingRank&, const std::shared_ptr<Store>&)>;

void on_ranks(std::uint32_t ranks, const DeviceOptions& options, const Body& body) {
  Job job(ranks);
  const auto store = std::make_shared<HashStore>();
  const auto outcome = job.run([&](std::uint32_t rank, SimProcessGroup&) {
    TrainingRank on(job, rank, options);
    body(on, store);
  });
  ASSERT_EQ(outcome.end, End::kFinished) << outcome.wait_graph;
}

// The GPU takes an hour for each copy into a bucket. Each bucket is under way, and the backward
// goes on in the same moment; only its end waits, for all three.
TEST(ReducerOnGpu, F8NoHostWaitsWhenABucketIsSent) {
  DeviceOptions options;
  options.duration = [](const Stream&, std::string_view operation, std::size_t) {
    return operation == "pack_bucket" ? Duration(1h) : Duration(0);
  };
  on_ranks(2, options, [](TrainingRank& on, const std::shared_ptr<Store>& store) {
    ASSERT_TRUE(on.create(on.gpu_group(), store).ok());
    simulation::Scheduler& scheduler = *simulation::Scheduler::running();
    const Duration began = scheduler.now();
    ASSERT_TRUE(on.step().ok());
    EXPECT_EQ(on.after_first->launched, 1);
    EXPECT_EQ(on.after_middle->launched, 2);
    for (const Ref<ClockNode>& clock : {on.after_first, on.after_middle}) {
      EXPECT_GE(clock->ran_at - began, 0h);
      EXPECT_LT(clock->ran_at - began, 1h);
    }
    EXPECT_GE(scheduler.now() - began, 3h);
  });
}

TEST(ReducerOnGpu, AGroupThatCannotReachTheGpuIsRefusedAtConstruction) {
  on_ranks(2, {}, [](TrainingRank& on, const std::shared_ptr<Store>& store) {
    const Status status = on.create(on.host_group(), store);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.to_string(), HasSubstr("cannot work on memory of device 1, where last is"));
  });
}

TEST(ReducerOnGpu, S4AHookForTheHostIsRefusedAtConstruction) {
  on_ranks(2, {}, [](TrainingRank& on, const std::shared_ptr<Store>& store) {
    ReducerOptions options;
    options.hook = make_power_sgd_hook({});
    const Status status = on.create(on.gpu_group(), store, std::move(options));
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.to_string(), HasSubstr("does not work on device 1, where parameter last"));
  });
}

}  // namespace
}  // namespace lockstep::simulated
