#include "benchmarks/card_program.h"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <utility>

namespace lockstep::benchmarks {

std::unique_ptr<CudaDevice> open_card(int& code) {
  Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::open(0);
  if (opened) return std::move(*opened);
  std::fprintf(stderr, "no CUDA device: %s\n", opened.error().to_string().c_str());
  code = opened.error().code() == Code::kInvalidArgument ? 77 : 1;
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
