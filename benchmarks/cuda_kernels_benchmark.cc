// Measures the kernels of CudaDevice on a GPU: packing gradients into a bucket, scaled or unscaled,
// and unpacking them, beside one plain copy from device to device of as many bytes. The same loop
// measures them in turn.
//
//  resnet50      the shapes of ResNet-50: 161 parameters, 25.6 M float32
//  small_1000    1,000 parameters of 64 float32
//  one_tensor    one parameter of 100 M float32
//  misaligned    the same, not aligned as its position in the bucket is
//  channels_last one gradient of 64 x 256 x 56 x 56 float32, channels last; row-major in the bucket
//  transposed    one gradient of 8192 x 8192, with its dimensions transposed
//
// The times are the GPU's (CUDA events around several calls), as medians over the iterations; the
// data rotates through more memory than a cache holds. Counters: `us` per call; `GBps` of bytes
// read and written; `copy_us` of the plain copy; `of_copy`, the bandwidth as a fraction of the
// copy's; `host_us`, the time of the call in its thread, in which nothing waited for the GPU. Only
// the result is judged: before any timing it is compared with the host's bits. Exit code: see
// gpu_program.h.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/gpu_program.h"
#include "benchmarks/workload.h"
#include "reducer/device/cuda/cuda_device.h"

namespace lockstep::benchmarks {
namespace {

constexpr std::size_t kRotated = std::size_t{512}
                                 << 20;  // bytes of a side that a loop goes through
constexpr std::size_t kMostSets = 512;   // of the smallest case: 128 MB per side; a cache has 60 MB
constexpr std::int64_t kHundredMillion = 100'000'000;

CudaDevice* device = nullptr;

enum class What { kGather, kGatherScaled, kScatter };

// The gradients of one set, and their bucket. They are slices of one storage, because the smallest
// case has half a million of them. Each is aligned as if it were an allocation of its own, as a
// user's are.
struct Set {
  std::vector<Tensor> gradients;
  std::vector<Shape> orders;
  Tensor bucket;
  std::vector<Transfer> transfers;
};

Tensor filled(std::int64_t elements) {
  const Tensor tensor = *Tensor::empty(*device, DType::kFloat32, Shape::row_major({elements}));
  device->fill_zero(device->current_stream(), tensor.data(), tensor.storage()->bytes());
  return tensor;
}

std::int64_t rounded_up(std::int64_t elements, std::int64_t to) {
  return (elements + to - 1) / to * to;
}

// The subject of a benchmark: 1-dimensional parameters, or one with strides.
struct Case {
  std::string name;
  std::vector<std::int64_t> parameters;  // elements
  std::int64_t offset = 0;               // of each gradient in its memory
  Shape gradient = {};                   // the shape of the only parameter, if it has dimensions
};

Case strided(std::string name, std::initializer_list<std::int64_t> sizes,
             std::initializer_list<std::int64_t> strides) {
  Shape shape = Shape::row_major(sizes);
  std::copy(strides.begin(), strides.end(), shape.strides.begin());
  return {std::move(name), {shape.elements()}, 0, shape};
}

std::unique_ptr<Set> make_set(const Case& one) {
  const std::vector<std::int64_t>& parameters = one.parameters;
  auto set = std::make_unique<Set>();
  constexpr std::int64_t kAligned = 64;  // elements: 256 bytes, as CudaDevice aligns
  std::int64_t places = 0;
  std::int64_t all = 0;
  for (const std::int64_t elements : parameters) {
    places += rounded_up(elements, 16);
    all += rounded_up(one.offset + elements, kAligned);
  }
  set->bucket = filled(places);
  const Tensor storage = filled(all);
  std::int64_t begin = 0;
  for (const std::int64_t elements : parameters) {
    const bool is_flat = one.gradient.dims == 0;
    set->gradients.emplace_back(storage.storage(), begin + one.offset, DType::kFloat32,
                                is_flat ? Shape::row_major({elements}) : one.gradient);
    begin += rounded_up(one.offset + elements, kAligned);
    const auto dims = static_cast<std::size_t>(one.gradient.dims);
    set->orders.push_back(is_flat ? Shape::row_major({elements})
                                  : Shape::row_major(std::span(one.gradient.sizes).first(dims)));
  }
  std::int64_t place = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    set->transfers.push_back({&set->gradients[i], set->bucket.data() + 4 * place, &set->orders[i]});
    place += rounded_up(parameters[i], 16);
  }
  return set;
}

void run(What what, const Set& set) {
  const Stream stream = device->current_stream();
  if (what == What::kScatter)
    device->unpack_bucket(stream, set.transfers);
  else
    device->pack_bucket(stream, set.transfers, what == What::kGather ? 1.0 : 0.5);
}

// Measures the GPU's time of the operations that `work` submits, in microseconds.
class Stopwatch {
 public:
  Stopwatch() {
    note(cudaEventCreate(&begin_));
    note(cudaEventCreate(&end_));
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  template <class Work>
  double microseconds(Work work) {
    auto* const stream = static_cast<CUstream_st*>(device->native(device->current_stream()));
    note(cudaEventRecord(begin_, stream));
    work();
    note(cudaEventRecord(end_, stream));
    note(cudaEventSynchronize(end_));
    float milliseconds = 0;
    note(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e3;
  }

  bool failed() const { return has_failed_; }

 private:
  void note(cudaError_t error) { has_failed_ = has_failed_ || error != cudaSuccess; }

  bool has_failed_ = false;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

Status finish() {
  return device->synchronize(device->record(device->current_stream()),
                             platform::Deadline::in(std::chrono::seconds(60)));
}

// Calls each set once, and returns the host's time in microseconds.
double run_all(What what, const std::vector<std::unique_ptr<Set>>& sets) {
  const auto start = std::chrono::steady_clock::now();
  for (const auto& set : sets) run(what, *set);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

void measure(benchmark::State& state, What what, const Case& one) {
  std::int64_t elements = 0;
  for (const std::int64_t count : one.parameters) elements += count;
  const auto bytes = static_cast<std::size_t>(elements) * 4;
  const std::size_t count = std::clamp<std::size_t>(kRotated / bytes, 2, kMostSets);
  std::vector<std::unique_ptr<Set>> sets;
  for (std::size_t i = 0; i < count; ++i) sets.push_back(make_set(one));
  const Tensor plain_from = filled(elements * static_cast<std::int64_t>(count));
  const Tensor plain_to = filled(elements * static_cast<std::int64_t>(count));
  for (const auto& set : sets) run(what, *set);
  if (const Status status = finish(); !status.ok())
    return state.SkipWithError(status.to_string().c_str());

  Stopwatch watch;
  std::vector<double> ours;
  std::vector<double> plain;
  std::vector<double> host;
  int error = cudaSuccess;
  auto* const stream = static_cast<CUstream_st*>(device->native(device->current_stream()));
  for (auto _ : state) {
    const double all = watch.microseconds([&] { host.push_back(run_all(what, sets)); });
    plain.push_back(watch.microseconds([&] {
      for (std::size_t i = 0; i < count && error == cudaSuccess; ++i)
        error = cudaMemcpyAsync(plain_to.data() + i * bytes, plain_from.data() + i * bytes, bytes,
                                cudaMemcpyDeviceToDevice, stream);
    }));
    ours.push_back(all);
    state.SetIterationTime(all * 1e-6 / static_cast<double>(count));
  }
  if (const Status status = finish(); !status.ok())
    return state.SkipWithError(status.to_string().c_str());
  if (error != cudaSuccess || watch.failed())
    return state.SkipWithError("the plain copy, or CUDA's clock, failed");
  const double per_call = median(ours) / static_cast<double>(count);
  const double per_copy = median(plain) / static_cast<double>(count);
  state.counters["us"] = per_call;
  state.counters["host_us"] = median(host) / static_cast<double>(count);
  state.counters["copy_us"] = per_copy;
  state.counters["GBps"] = 2e-3 * static_cast<double>(bytes) / per_call;
  state.counters["of_copy"] = per_copy / per_call;
}

// Whether a small model has the same result as on the host. The tests check far more.
bool is_right() {
  const Values values(2, 0);
  const std::vector<std::int64_t> sizes = {1000, 3, 70'000, 0, 64, 1};
  const std::unique_ptr<Set> set = make_set({"right", sizes, 1, {}});
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(sizes[i]) * 4;
    std::vector<float> in(static_cast<std::size_t>(sizes[i]));
    values.fill(1, 0, sizes[i], in.data());
    const PinnedMemory there = *device->allocate_pinned(bytes);
    const PinnedMemory gathered = *device->allocate_pinned(bytes);
    const PinnedMemory back = *device->allocate_pinned(bytes);
    const Tensor& gradient = set->gradients[i];
    const Stream stream = device->current_stream();
    if (bytes != 0) std::memcpy(there.data(), in.data(), bytes);
    device->upload(stream, there, 0, gradient.data(), bytes);
    device->pack_bucket(stream, {&set->transfers[i], 1}, 1.0 / 3);
    device->download(stream, set->transfers[i].slot, gathered, 0, bytes);
    device->unpack_bucket(stream, {&set->transfers[i], 1});
    device->download(stream, gradient.data(), back, 0, bytes);
    if (!finish().ok()) return false;
    for (float& value : in) value *= static_cast<float>(1.0 / 3);
    if (bytes == 0) continue;
    if (std::memcmp(in.data(), gathered.data(), bytes) != 0) return false;
    if (std::memcmp(in.data(), back.data(), bytes) != 0) return false;
  }
  return true;
}

void register_all() {
  std::vector<Case> cases;
  for (const Workload& workload : workloads())
    if (workload.name == "resnet50" || workload.name == "small_1000")
      cases.push_back({workload.name, workload.parameters, 0, {}});
  cases.push_back({"one_tensor", {kHundredMillion}, 0, {}});
  cases.push_back({"misaligned", {kHundredMillion}, 1, {}});
  cases.push_back(strided("channels_last", {64, 256, 56, 56}, {256 * 3136, 1, 256 * 56, 256}));
  cases.push_back(strided("transposed", {8192, 8192}, {1, 8192}));
  const std::pair<What, std::string> kinds[] = {{What::kGather, "gather"},
                                                {What::kGatherScaled, "gather_scaled"},
                                                {What::kScatter, "scatter"}};
  for (const auto& [what, kind] : kinds)
    for (const Case& one : cases)
      benchmark::RegisterBenchmark(
          (kind + "/" + one.name).c_str(),
          [what = what, one](benchmark::State& state) { measure(state, what, one); })
          ->UseManualTime()
          ->Iterations(30)
          ->Unit(benchmark::kMicrosecond);
}

int main(int argc, char** argv) {
  show_help(argc, argv, "cuda_kernels_benchmark [Google Benchmark's options]\n");
  int code = 0;
  const std::unique_ptr<CudaDevice> own = open_gpu(code);
  if (own == nullptr) return code;
  device = own.get();
  const Status checked =
      is_right() ? Status() : Status(Code::kCorrupted, "what was gathered or scattered is wrong");
  return run_checked(checked, own->name(), register_all, argc, argv);
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) { return lockstep::benchmarks::main(argc, argv); }
