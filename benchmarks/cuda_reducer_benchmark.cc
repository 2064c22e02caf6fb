// Measures the reducer on a GPU without a network: one rank, whose collectives complete at once, so
// that a step includes nothing but the reducer.
//
//  Step/WORKLOAD/MODE   one backward that adds to every parameter's existing gradient: without a
//                       reducer, with one that copies, and with gradients that are views of
//                       buckets; `ms` lasts until the GPU is done, `host_ms` until the call returns
//  Hook                 one hook of 1,000 parameters of 64 float32 in one bucket, on its thread
//  Bucket               the host's time for launching and finalizing one more bucket of a step:
//                       1,000 parameters in 1,000 buckets, and in one
//
// The times are medians over the iterations. Before any timing a step's gradients are compared with
// the expected ones. --on-host runs everything in the host's memory, to try this program out.
//
// --sockets: two ranks instead of one, as processes that share the GPU. NCCL treats each as a
// machine of its own and sends through sockets of the loopback device. Only Step is measured, on
// rank 0, and each mode also in a group whose ranks do not agree on their collectives beforehand,
// as PyTorch's do not (NcclOptions::agree is off). LOCKSTEP_NCCL=FILE names the library; otherwise
// the loader finds it. Together with --on-host, Gloo reduces in the host's memory, in a single
// group. Exit code: see gpu_program.h.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/contender.h"
#include "benchmarks/gpu_program.h"
#include "benchmarks/ranks.h"
#include "benchmarks/workload.h"
#include "reducer/comm/gloo/file_store.h"
#include "reducer/comm/mirror_peer_group.h"
#include "reducer/comm/nccl/nccl_process_group.h"
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

// The group of two ranks; without a group there is one rank.
struct Ranks {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  std::shared_ptr<ProcessGroup> group;
  std::shared_ptr<ProcessGroup> without_agreement;  // null over Gloo
  int models = 0;  // the number of models so far, equal on every rank
};
Ranks ranks;

// Returns the membership through which a model's reducer reaches the other ranks.
Membership place_of_a_model(bool agrees) {
  if (ranks.group == nullptr)
    return {std::make_shared<MirrorPeerGroup>(1), std::make_shared<HashStore>()};
  const std::string name = "model " + std::to_string(ranks.models++);
  return {agrees ? ranks.group : ranks.without_agreement,
          std::make_shared<PrefixStore>(name, ranks.store)};
}

struct Mode {
  const char* name;
  bool reduces = true;
  bool has_views = false;
  bool agrees = true;
};
constexpr Mode kNone{"no_reducer", false};
constexpr Mode kCopying{"copying"};

std::vector<Mode> modes() {
  std::vector<Mode> all = {kNone, kCopying, {"view", true, true}};
  if (ranks.without_agreement == nullptr) return all;
  all.push_back({"copying_without_agreement", true, false, false});
  all.push_back({"view_without_agreement", true, true, false});
  return all;
}

// A model on the device, and the gradients that arrive at its parameters in each backward.
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

  Status reduce(const Mode& mode, std::vector<std::uint64_t> limits) {
    if (!mode.reduces) return {};
    ReducerOptions options;
    options.gradient_as_bucket_view = mode.has_views;
    if (!limits.empty()) options.bucket_limits = std::move(limits);
    auto made = DataParallel::create(parameters, engine, options, place_of_a_model(mode.agrees));
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

// Runs and times the hooks of all parameters but the last one, which launches the bucket.
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

void measure_step(benchmark::State& state, const Workload& workload, const Mode& mode) {
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
  check(model.reduce(kCopying, {std::uint64_t{1} << 40}), state);
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
  check(one.reduce(kCopying, {std::uint64_t{1} << 40}), state);
  check(many.reduce(kCopying, {1}), state);
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

// Returns the value of rank `rank` for each element of parameter `i`; the average is exact.
float value_of(std::size_t i, int rank) {
  return static_cast<float>(i + 1) + (rank == 0 ? 0.0f : 2.0f);
}

// Checks that two steps add up, with each kind of reducer.
Status check_results() {
  const std::vector<std::int64_t> sizes = {1000, 3, 70'000, 64, 1};
  for (const Mode& mode : modes()) {
    Model model(sizes);
    LOCKSTEP_RETURN_IF_ERROR(model.reduce(mode, {64, 4096}));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::vector<float> values(static_cast<std::size_t>(sizes[i]), value_of(i, ranks.rank));
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
      const float average = (value_of(i, 0) + value_of(i, ranks.size - 1)) / 2;
      const float wanted = 2 * (mode.reduces ? average : value_of(i, ranks.rank));
      if (!std::all_of(values.begin(), values.end(), [&](float value) { return value == wanted; }))
        return Status(Code::kCorrupted, std::string(mode.name) + ": a gradient is wrong");
    }
  }
  return {};
}

void register_all() {
  const auto add = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)
        ->UseManualTime()
        ->Iterations(ranks.group == nullptr ? 50 : 20)  // the same on every rank
        ->Unit(benchmark::kMicrosecond);
  };
  for (const Workload& workload : workloads())
    for (const Mode& mode : modes())
      add("Step/" + workload.name + "/" + mode.name,
          [workload, mode](benchmark::State& state) { measure_step(state, workload, mode); });
  if (ranks.group != nullptr) return;
  add("Hook", measure_hook);
  add("Bucket", measure_bucket);
}

std::unique_ptr<Device> open_device(bool is_on_host, std::string& name, int& code) {
  if (is_on_host) {
    name = "the host";
    return std::make_unique<HostDevice>(0);
  }
  std::unique_ptr<CudaDevice> gpu = open_gpu(code);
  if (gpu != nullptr) name = gpu->name();
  return gpu;
}

int run_alone(bool is_on_host, int argc, char** argv) {
  std::string name;
  int code = 0;
  const std::unique_ptr<Device> own = open_device(is_on_host, name, code);
  if (own == nullptr) return code;
  device = own.get();
  return run_checked(check_results(), name, register_all, argc, argv);
}

// For NCCL each rank is a machine of its own; otherwise it refuses two ranks on one GPU.
void set_nccl_variables(int rank) {
  const std::pair<const char*, std::string> variables[] = {
      {"NCCL_HOSTID", "benchmark-" + std::to_string(::getppid()) + "-" + std::to_string(rank)},
      {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_NET", "Socket"},
      {"NCCL_NET_PLUGIN", "none"},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_MNNVL_ENABLE", "0"},
      {"NCCL_CUMEM_HOST_ENABLE", "0"},
      {"NCCL_RUNTIME_CONNECT", "0"},
      {"NCCL_RAS_ENABLE", "0"},
      {"CUDA_MODULE_LOADING", "EAGER"},
  };
  for (const auto& [variable, value] : variables) ::setenv(variable, value.c_str(), 1);
}

Status meet_by_nccl(const std::string& folder) {
  const char* const named = std::getenv("LOCKSTEP_NCCL");
  const Result<NcclApi> api = load_nccl(named != nullptr ? named : kNcclDefaultLibrary);
  if (!api) return api.error();
  benchmark::AddCustomContext("nccl", nccl_version_text(api->version));
  ranks.store = std::make_shared<FileStore>(folder);
  const auto connect = [&](bool agrees) {
    NcclOptions options;
    options.timeout = std::chrono::seconds(60);
    options.name = agrees ? "agreeing" : "not agreeing";
    options.agree = agrees;
    return NcclProcessGroup::connect(*api, *device, ranks.store, ranks.rank, ranks.size, options);
  };
  auto agreeing = connect(true);
  if (!agreeing) return agreeing.error();
  auto other = connect(false);
  if (!other) return other.error();
  ranks.group = std::move(*agreeing);
  ranks.without_agreement = std::move(*other);
  return {};
}

Status meet_by_gloo(const std::string& folder) {
  Result<Place> place = take_place(ranks.rank, ranks.size, folder);
  if (!place) return place.error();
  ranks.store = place->store;
  ranks.group = place->group;
  return {};
}

// Runs one of the two ranks. Only rank 0 writes what it has measured.
int run_rank(int rank, bool is_on_host, const std::string& folder, std::vector<char*> arguments) {
  ranks.rank = rank;
  ranks.size = 2;
  if (!is_on_host) set_nccl_variables(rank);
  std::string name;
  int code = 0;
  const std::unique_ptr<Device> own = open_device(is_on_host, name, code);
  if (own == nullptr) return code;
  device = own.get();
  const Status met = is_on_host ? meet_by_gloo(folder) : meet_by_nccl(folder);
  if (rank != 0) {
    std::erase_if(arguments, [](const char* each) {
      return std::string_view(each).starts_with("--benchmark_out");
    });
    if (std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
  }
  const int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  code = run_checked(met.ok() ? check_results() : met, name, register_all, count, arguments.data());
  ranks.group.reset();  // before the device is destroyed
  ranks.without_agreement.reset();
  return code;
}

// This process must not use CUDA before it forks, so another process looks for the GPU.
int run_ranks_on_one_gpu(bool is_on_host, int argc, char** argv) {
  catch_signals();
  const SharedMemory memory(sizeof(int));
  int& code = *reinterpret_cast<int*>(memory.data());
  const auto noted = [&code](int its) {
    if (its != 0) code = its;
    std::fflush(nullptr);
    return its;
  };
  std::string name;
  const auto probe = [&](int) {
    int its = 0;
    return open_device(is_on_host, name, its) == nullptr ? noted(its) : 0;
  };
  if (const int ended = run_ranks(1, probe); ended != 0) return code != 0 ? code : ended;
  std::string folder = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "no folder can be made like %s: set TMPDIR\n", folder.c_str());
    return 1;
  }
  const int ended = run_ranks(2, [&](int rank) {
    return noted(run_rank(rank, is_on_host, folder, {argv, argv + argc}));
  });
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return ended != 0 && code != 0 ? code : ended;
}

int main(int argc, char** argv) {
  show_help(argc, argv,
            "cuda_reducer_benchmark [--on-host] [--sockets] [Google Benchmark's options]\n");
  const auto take = [&](std::string_view option) {
    char** const end = argv + argc;
    char** const found = std::find(argv + 1, end, option);
    if (found == end) return false;
    std::copy(found + 1, end, found);
    --argc;
    return true;
  };
  const bool is_on_host = take("--on-host");
  const bool are_two = take("--sockets");
  return are_two ? run_ranks_on_one_gpu(is_on_host, argc, argv) : run_alone(is_on_host, argc, argv);
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) { return lockstep::benchmarks::main(argc, argv); }
