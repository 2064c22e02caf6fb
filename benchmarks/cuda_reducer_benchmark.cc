// What the reducer costs on a card, without a network: one rank, whose collectives are over at
// once, so that nothing but the reducer is added to a step.
//
//   Step/WORKLOAD/MODE   one backward that gives every parameter its gradient, which is added to
//                        the one that is there: without a reducer, with one that copies, and with
//                        gradients that are views of buckets. Until the card is done (`ms`), and
//                        until the call returns (`host_ms`)
//   Hook                 one hook of 1,000 parameters of 64 float32 in one bucket, on its thread
//   Bucket               what launching and finalizing one more bucket of a step takes of the host:
//                        1,000 parameters in 1,000 buckets, and in one
//
// Times are medians over the iterations. Before anything is timed a step's gradients are compared
// with what they must be. --on-host runs all of it on the host's memory, to try this program out.
// Exit code: see card_program.h.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/card_program.h"
#include "benchmarks/workload.h"
#include "reducer/data_parallel.h"
#include "reducer/device/host/host_device.h"

namespace lockstep::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

Device* device = nullptr;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

platform::Deadline soon() { return platform::Deadline::in(std::chrono::seconds(60)); }

Status finish() { return device->synchronize(device->record(device->current_stream()), soon()); }

// A group of one rank: all is there already.
class AloneGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool can_reduce(DType) const override { return true; }
  bool can_reach(const Device&) const override { return true; }
  void abort(const Status&) override {}
  platform::Duration timeout() const override { return std::chrono::seconds(30); }
  Status start(const Collective& c, Work& work) override {
    work.begin(sequence_++);
    if (c.op == Op::kAllGather) std::memcpy(c.gathered, c.data, c.count);  // of the host
    work.complete(Status());
    return {};
  }

 private:
  std::int64_t sequence_ = 0;
};

enum class Mode { kNone, kCopying, kView };

const char* name_of(Mode mode) {
  return mode == Mode::kNone ? "no_reducer" : mode == Mode::kCopying ? "copying" : "view";
}

// A model on the device, and what arrives at its parameters in each backward.
struct Model {
  explicit Model(const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t elements : sizes) {
      const Shape shape = Shape::row_major({elements});
      parameters.push_back(make_ref<Parameter>("p" + std::to_string(parameters.size()), *device,
                                               DType::kFloat32, shape, true,
                                               engine.next_sequence()));
      arriving.push_back(*Tensor::empty(*device, DType::kFloat32, shape));
      Tensor zeros = *Tensor::empty(*device, DType::kFloat32, shape);
      for (const Tensor* tensor : {&arriving.back(), &zeros})
        device->fill_zero(device->current_stream(), tensor->data(), tensor->storage()->bytes());
      parameters.back()->set_grad(zeros);
    }
    root.push_back(*Tensor::empty(*device, DType::kFloat32, Shape::row_major({1})));
    device->fill_zero(device->current_stream(), root[0].data(), root[0].storage()->bytes());
  }

  Status reduce(Mode mode, std::vector<std::uint64_t> limits) {
    if (mode == Mode::kNone) return {};
    ReducerOptions options;
    options.gradient_as_bucket_view = mode == Mode::kView;
    if (!limits.empty()) options.bucket_limits = std::move(limits);
    auto made =
        DataParallel::create(parameters, engine, options,
                             {std::make_shared<AloneGroup>(), std::make_shared<HashStore>()});
    if (!made) return made.error();
    parallel = std::move(*made);
    return {};
  }

  Status step(const Ref<Node>& node) {
    outputs.clear();
    const auto module = [&](std::vector<Edge>& edges) {
      edges.push_back({node, 0});
      return Status();
    };
    LOCKSTEP_RETURN_IF_ERROR(parallel ? parallel->forward(module, outputs) : module(outputs));
    return engine.backward(outputs, root, false);
  }

  Engine engine{device->index()};
  std::vector<Ref<Parameter>> parameters;
  std::vector<Tensor> arriving;
  std::vector<Tensor> root;
  std::unique_ptr<DataParallel> parallel;
  std::vector<Edge> outputs;
};

class ArrivingNode final : public Node {
 public:
  explicit ArrivingNode(Model& model)
      : Node(model.engine.next_sequence(), 1, device->index()), model_(model) {
    for (const auto& parameter : model.parameters) edges_.push_back({parameter, 0});
  }
  Status apply(std::span<const Tensor>, std::span<Tensor> out, const BackwardContext&) override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = model_.arriving[i];
    return {};
  }

 private:
  Model& model_;
};

double cpu_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Runs the hooks of all parameters but the last, which launches the bucket, and takes the time.
class HookNode final : public Node {
 public:
  HookNode(Model& model, double& us)
      : Node(model.engine.next_sequence(), 1, device->index()), model_(model), us_(us) {}
  Status apply(std::span<const Tensor>, std::span<Tensor>, const BackwardContext& here) override {
    const Tensor nothing;
    const auto all = std::span(model_.parameters);
    const double start = cpu_microseconds();
    for (const auto& parameter : all.first(all.size() - 1))
      LOCKSTEP_RETURN_IF_ERROR(parameter->apply({&nothing, 1}, {}, here));
    us_ = cpu_microseconds() - start;
    return all.back()->apply({&nothing, 1}, {}, here);
  }

 private:
  Model& model_;
  double& us_;
};

void check(const Status& status, benchmark::State& state) {
  if (!status.ok()) state.SkipWithError(status.to_string().c_str());
}

void measure_step(benchmark::State& state, const Workload& workload, Mode mode) {
  Model model(workload.parameters);
  check(model.reduce(mode, {}), state);
  for (int i = 0; i < 3; ++i) check(model.step(make_ref<ArrivingNode>(model)), state);
  check(finish(), state);
  std::vector<double> whole;
  std::vector<double> host;
  for (auto _ : state) {
    const auto start = Clock::now();
    check(model.step(make_ref<ArrivingNode>(model)), state);
    host.push_back(microseconds_since(start));
    check(finish(), state);
    whole.push_back(microseconds_since(start));
    state.SetIterationTime(whole.back() * 1e-6);
  }
  state.counters["ms"] = median(whole) * 1e-3;
  state.counters["host_ms"] = median(host) * 1e-3;
}

void measure_hook(benchmark::State& state) {
  const std::vector<std::int64_t> sizes(1000, 64);
  Model model(sizes);
  check(model.reduce(Mode::kCopying, {std::uint64_t{1} << 40}), state);
  std::vector<double> hooks;
  for (auto _ : state) {
    double us = 0;
    check(model.step(make_ref<HookNode>(model, us)), state);
    check(finish(), state);
    hooks.push_back(us / static_cast<double>(sizes.size() - 1));
    state.SetIterationTime(us * 1e-6);
  }
  state.counters["hook_us"] = median(hooks);
}

void measure_bucket(benchmark::State& state) {
  const std::vector<std::int64_t> sizes(1000, 64);
  Model one(sizes);
  Model many(sizes);
  check(one.reduce(Mode::kCopying, {std::uint64_t{1} << 40}), state);
  check(many.reduce(Mode::kCopying, {1}), state);
  const auto time_of = [&](Model& model) {
    const auto start = Clock::now();
    check(model.step(make_ref<ArrivingNode>(model)), state);
    const double us = microseconds_since(start);
    check(finish(), state);
    return us;
  };
  std::vector<double> buckets;
  for (auto _ : state) {
    const double few = time_of(one);
    const double all = time_of(many);
    buckets.push_back((all - few) / static_cast<double>(sizes.size() - 1));
    state.SetIterationTime(all * 1e-6);
  }
  state.counters["bucket_us"] = median(buckets);
}

// Two steps add up, with each kind of reducer.
Status check_results() {
  const std::vector<std::int64_t> sizes = {1000, 3, 70'000, 64, 1};
  for (const Mode mode : {Mode::kNone, Mode::kCopying, Mode::kView}) {
    Model model(sizes);
    LOCKSTEP_RETURN_IF_ERROR(model.reduce(mode, {64, 4096}));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::vector<float> values(static_cast<std::size_t>(sizes[i]),
                                      static_cast<float>(i) + 1);
      LOCKSTEP_RETURN_IF_ERROR(
          write(*device, std::as_bytes(std::span(values)), model.arriving[i].data(), soon()));
    }
    for (int step = 0; step < 2; ++step)
      LOCKSTEP_RETURN_IF_ERROR(model.step(make_ref<ArrivingNode>(model)));
    LOCKSTEP_RETURN_IF_ERROR(finish());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::vector<float> values(static_cast<std::size_t>(sizes[i]));
      const Tensor gradient = model.parameters[i]->grad();
      LOCKSTEP_RETURN_IF_ERROR(
          read(*device, gradient.data(), std::as_writable_bytes(std::span(values)), soon()));
      const float wanted = 2 * (static_cast<float>(i) + 1);
      if (!std::all_of(values.begin(), values.end(), [&](float value) { return value == wanted; }))
        return Status(Code::kCorrupted, std::string(name_of(mode)) + ": a gradient is wrong");
    }
  }
  return {};
}

void register_all() {
  const auto add = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)
        ->UseManualTime()
        ->Iterations(50)
        ->Unit(benchmark::kMicrosecond);
  };
  for (const Workload& workload : workloads())
    for (const Mode mode : {Mode::kNone, Mode::kCopying, Mode::kView})
      add("Step/" + workload.name + "/" + name_of(mode),
          [workload, mode](benchmark::State& state) { measure_step(state, workload, mode); });
  add("Hook", measure_hook);
  add("Bucket", measure_bucket);
}

int main(int argc, char** argv) {
  std::unique_ptr<Device> own;
  std::string name = "the host";
  if (argc > 1 && std::string_view(argv[1]) == "--on-host") {
    own = std::make_unique<HostDevice>(0);
    argv[1] = argv[0];
    ++argv;
    --argc;
  } else {
    int code = 0;
    std::unique_ptr<CudaDevice> card = open_card(code);
    if (card == nullptr) return code;
    name = card->name();
    own = std::move(card);
  }
  device = own.get();
  return run_checked(check_results(), name, register_all, argc, argv);
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) { return lockstep::benchmarks::main(argc, argv); }
