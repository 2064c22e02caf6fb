// Measures the reducer itself without a network: two ranks, of which this process simulates the
// other one, with gradients that are always equal, so that a sum is a doubling.
//
//  HookOfSmallParameters      one hook of a parameter of few elements, including its copy; the copy
//                             alone is measured beside it, in the same run (counters hook_ns,
//                             copy_ns, and own_ns, their difference)
//  BackwardAndReduce          a whole backward of 1,000 parameters of 64 elements: engine, hooks,
//                             sums, finalization; beside it the same backward without a reducer
//  ColdPass                   a pass of 1,000 parameters of 64 elements whose memory is not in the
//                             cache, in a process with a second thread: hook_ns is a hook, and
//                             rest_ns the rest of the backward divided by the parameters. Beside it
//                             the same parameters with a hook that does nothing
//  LaunchAndFinalizeOfBucket  the cost of one bucket besides its members' hooks (bucket_ns)
//
// The times are processor time of the one thread that does all the work.
#include <benchmark/benchmark.h>

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "reducer/comm/mirror_peer_group.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace lockstep {
namespace {

// Returns the processor time of this thread, which does all the work, so that other programs do not
// count.
double cpu_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// A model of `count` parameters, all used by one node.
struct Model {
  Model(std::int64_t count, std::int64_t elements) {
    for (std::int64_t i = 0; i < count; ++i) {
      parameters.push_back(make_ref<Parameter>("p" + std::to_string(i), device, DType::kFloat32,
                                               Shape::row_major({elements}), true,
                                               engine.next_sequence()));
      Tensor zeros = *Tensor::empty(device, DType::kFloat32, Shape::row_major({elements}));
      device.fill_zero({}, zeros.data(), zeros.storage()->bytes());
      parameters.back()->set_grad(zeros);
    }
    gradient.push_back(*Tensor::empty(device, DType::kFloat32, Shape::row_major({elements})));
    device.fill_zero({}, gradient[0].data(), gradient[0].storage()->bytes());
  }

  void reduce(bool dynamic, std::uint64_t bucket_bytes, bool views = false) {
    ReducerOptions options;
    options.find_unused_parameters = dynamic;
    options.gradient_as_bucket_view = views;
    options.bucket_limits = {bucket_bytes};
    auto made =
        DataParallel::create(parameters, engine, options,
                             {std::make_shared<MirrorPeerGroup>(), std::make_shared<HashStore>()});
    parallel = std::move(*made);
  }

  // Runs a forward whose output is `node`. It is synced if there is a reducer.
  Status forward(const Ref<Node>& node) {
    outputs.clear();
    const auto module = [&](std::vector<Edge>& edges) {
      edges.push_back({node, 0});
      return Status();
    };
    return parallel ? parallel->forward(module, outputs) : module(outputs);
  }
  Status backward() { return engine.backward(outputs, gradient, false); }

  HostDevice device;
  Engine engine{0};
  std::vector<Ref<Parameter>> parameters;
  std::vector<Tensor> gradient;
  std::unique_ptr<DataParallel> parallel;
  std::vector<Edge> outputs;
};

void check(const Status& status, benchmark::State& state) {
  if (!status.ok()) state.SkipWithError(status.to_string().c_str());
}

class FanNode final : public Node {
 public:
  explicit FanNode(Model& model) : Node(model.engine.next_sequence(), 1, 0) {
    for (const auto& parameter : model.parameters) edges_.push_back({parameter, 0});
  }
  Status apply(std::span<const Tensor> in, std::span<Tensor> out, const BackwardContext&) override {
    for (Tensor& o : out) o = in[0];
    return {};
  }
};

// Runs and times the hooks of all parameters in a row. The gradients do not change, because nothing
// arrives at the accumulators. The last hook, which launches the bucket, is omitted.
class HookNode final : public Node {
 public:
  HookNode(Model& model, double& nanoseconds)
      : Node(model.engine.next_sequence(), 1, 0), model_(model), nanoseconds_(nanoseconds) {}
  Status apply(std::span<const Tensor>, std::span<Tensor>, const BackwardContext& here) override {
    const Tensor nothing;
    const auto all = std::span(model_.parameters);
    const double start = cpu_nanoseconds();
    for (std::size_t i = all.size() - 1; i > 0; --i)
      if (Status status = all[i]->apply({&nothing, 1}, {}, here); !status.ok()) return status;
    nanoseconds_ = (cpu_nanoseconds() - start);
    return all.front()->apply({&nothing, 1}, {}, here);
  }

 private:
  Model& model_;
  double& nanoseconds_;
};

// Measures only the copies of the hooks: one call per parameter, to addresses 64 bytes apart.
double time_copies(Model& model, Storage& bucket, std::int64_t elements) {
  const std::size_t stride = (static_cast<std::size_t>(elements) * 4 + 63) / 64 * 64;
  const auto all = std::span(model.parameters);
  std::byte* place = bucket.data();
  const double start = cpu_nanoseconds();
  for (const auto& parameter : all.first(all.size() - 1)) {
    const Transfer transfer{&parameter->grad(), place, &parameter->shape()};
    model.device.pack_bucket({}, {&transfer, 1}, 0.5);
    place += stride;
  }
  return (cpu_nanoseconds() - start);
}

void HookOfSmallParameters(benchmark::State& state) {
  constexpr std::int64_t kCount = 1000;
  const std::int64_t elements = state.range(0);
  Model model(kCount, elements);
  model.reduce(false, std::uint64_t{1} << 40);
  const Ref<Storage> bucket =
      *model.device.allocate(kCount * (static_cast<std::size_t>(elements) * 4 + 64));
  double hooks = 0;
  double copies = 0;
  for (auto _ : state) {
    double nanoseconds = 0;
    check(model.forward(make_ref<HookNode>(model, nanoseconds)), state);
    check(model.backward(), state);
    state.SetIterationTime(nanoseconds * 1e-9);
    hooks += nanoseconds;
    copies += time_copies(model, *bucket, elements);
  }
  const double count = static_cast<double>(state.iterations()) * (kCount - 1);
  state.counters["hook_ns"] = hooks / count;
  state.counters["copy_ns"] = copies / count;
  state.counters["own_ns"] = (hooks - copies) / count;
}
BENCHMARK(HookOfSmallParameters)
    ->ArgName("elements")
    ->Arg(1)
    ->Arg(16)
    ->Arg(64)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

enum Mode : std::int64_t { kNoReducer, kPlain, kDynamic };

void BackwardAndReduce(benchmark::State& state) {
  constexpr std::int64_t kCount = 1000;
  Model model(kCount, 64);
  if (state.range(0) != kNoReducer) model.reduce(state.range(0) == kDynamic, 64u << 10);
  for (auto _ : state) {  // the graph is built outside of the timed section
    check(model.forward(make_ref<FanNode>(model)), state);
    const double start = cpu_nanoseconds();
    check(model.backward(), state);
    state.SetIterationTime((cpu_nanoseconds() - start) * 1e-9);
  }
  const double passes = static_cast<double>(state.iterations());
  state.counters["per_parameter"] = benchmark::Counter(
      passes * kCount, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BackwardAndReduce)
    ->ArgName("no_reducer0_plain1_dynamic2")
    ->Arg(kNoReducer)
    ->Arg(kPlain)
    ->Arg(kDynamic)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

class EmptyHook final : public GradientHook {
 public:
  Status gradient_ready(Parameter&, std::size_t, GraphTask&) override { return {}; }
};

// Memory of others, which takes the place of ours in the cache and in the TLB.
class OtherMemory {
 public:
  void use() {
    for (std::size_t i = 0; i < bytes_.size(); i += 64) ++bytes_[i];
    benchmark::DoNotOptimize(bytes_.data());
  }

 private:
  std::vector<unsigned char> bytes_ = std::vector<unsigned char>(std::size_t{16} << 20);
};

// While it lives the process has two threads, so that mutexes cost what they cost in training.
class SecondThread {
 public:
  SecondThread() : thread_("second", [this] { wait(); }) {}
  ~SecondThread() {
    {
      const platform::MutexLock lock(mutex_);
      is_over_ = true;
      over_.notify_all();
    }
    thread_.join();
  }
  SecondThread(const SecondThread&) = delete;
  SecondThread& operator=(const SecondThread&) = delete;

 private:
  void wait() {
    const platform::MutexLock lock(mutex_);
    over_.wait(mutex_, platform::Deadline::never(),
               [this]() LOCKSTEP_REQUIRES(mutex_) { return is_over_; });
  }

  platform::Mutex mutex_{"second thread"};
  platform::CondVar over_{"second thread"};
  bool is_over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  platform::Thread thread_;
};

enum Reducing : std::int64_t { kNothing, kCopying, kViews };

void ColdPass(benchmark::State& state) {
  constexpr std::int64_t kCount = 1000;
  Model model(kCount, 64);
  EmptyHook nothing;
  if (state.range(0) == kNothing)
    for (const auto& parameter : model.parameters) parameter->add_hook(&nothing, 0);
  else
    model.reduce(false, std::uint64_t{1} << 40, state.range(0) == kViews);
  OtherMemory others;
  const SecondThread second;
  double hooks = 0;
  double all = 0;
  for (auto _ : state) {
    double nanoseconds = 0;
    check(model.forward(make_ref<HookNode>(model, nanoseconds)), state);
    others.use();
    const double start = cpu_nanoseconds();
    check(model.backward(), state);
    all += cpu_nanoseconds() - start;
    state.SetIterationTime(nanoseconds * 1e-9);
    hooks += nanoseconds;
  }
  const double count = static_cast<double>(state.iterations()) * (kCount - 1);
  state.counters["hook_ns"] = hooks / count;
  state.counters["rest_ns"] = (all - hooks) / count;
}
BENCHMARK(ColdPass)
    ->ArgName("nothing0_copying1_views2")
    ->Arg(kNothing)
    ->Arg(kCopying)
    ->Arg(kViews)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// 1,000 parameters of one element, in one bucket or in 1,000. The difference is the cost of
// launching, waiting for, and finalizing buckets.
void LaunchAndFinalizeOfBucket(benchmark::State& state) {
  constexpr std::int64_t kCount = 1000;
  Model one(kCount, 1);
  Model many(kCount, 1);
  one.reduce(false, std::uint64_t{1} << 40);
  many.reduce(false, 1);
  const auto time_of = [&](Model& model) {
    check(model.forward(make_ref<FanNode>(model)), state);
    const double start = cpu_nanoseconds();
    check(model.backward(), state);
    return (cpu_nanoseconds() - start);
  };
  double total = 0;
  for (auto _ : state) {
    const double few = time_of(one);
    const double all = time_of(many);
    total += all - few;
    state.SetIterationTime(all * 1e-9);
  }
  state.counters["bucket_ns"] = total / (static_cast<double>(state.iterations()) * (kCount - 1));
}
BENCHMARK(LaunchAndFinalizeOfBucket)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
