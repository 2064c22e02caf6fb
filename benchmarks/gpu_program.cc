#include "benchmarks/gpu_program.h"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <string_view>
#include <utility>

namespace lockstep::benchmarks {

void show_help(int argc, char** argv, const char* options) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--help") continue;
    std::fputs(options, stdout);
    std::fflush(stdout);
    benchmark::Initialize(&argc, argv);  // exits here
  }
}

std::unique_ptr<CudaDevice> open_gpu(int& code) {
  Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
  if (opened) return std::move(*opened);
  const bool is_absent = opened.error().code() == Code::kInvalidArgument;
  const std::string why = opened.error().failure().detail;
  if (is_absent)
    std::fprintf(stderr, "skipped: no CUDA device (%s)\n", why.c_str());
  else
    std::fprintf(stderr, "the CUDA device cannot be opened: %s\n", why.c_str());
  code = is_absent ? 77 : 1;
  return nullptr;
}

int run_checked(const Status& checked, const std::string& device,
                const std::function<void()>& register_all, int argc, char** argv) {
  if (!checked.ok()) {
    std::fprintf(stderr, "%s: %s\n", device.c_str(), checked.to_string().c_str());
    return checked.code() == Code::kCorrupted ? 65 : 1;
  }
  benchmark::AddCustomContext("device", device);
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace lockstep::benchmarks
