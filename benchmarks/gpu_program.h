// What the benchmark programs for a GPU share: they open the GPU and run the registered benchmarks.
//
// Exit codes: 77 if the machine has no CUDA device, 65 for a wrong result, 1 for any other failure
// before a measurement. A benchmark that fails later has ERROR OCCURRED in its row.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "reducer/base/status.h"
#include "reducer/device/cuda/cuda_device.h"

namespace lockstep::benchmarks {

// If --help is among the arguments, prints `options` (this program's own) and the options of Google
// Benchmark, and exits. This needs no GPU.
void show_help(int argc, char** argv, const char* options);

// Returns the machine's first GPU. Without one, prints a line on standard error, sets `code` to the
// exit code and returns null.
std::unique_ptr<CudaDevice> open_gpu(int& code);

// Runs the benchmarks that register_all() registers with Google Benchmark. It runs none if
// `checked` says that results are wrong (kCorrupted) or cannot be computed. Returns the exit code.
int run_checked(const Status& checked, const std::string& device,
                const std::function<void()>& register_all, int argc, char** argv);

}  // namespace lockstep::benchmarks
