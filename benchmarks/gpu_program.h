// What the programs for a GPU have in common: opening it, and running what is registered.
//
// Exit codes: 77 where there is no CUDA device, 65 for a wrong result, 1 for other failures before
// anything is measured. What fails after that has ERROR OCCURRED in its row.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "reducer/base/status.h"
#include "reducer/device/cuda/cuda_device.h"

namespace lockstep::benchmarks {

// Shows `options`, this program's own, and Google Benchmark's, and ends the program, if --help is
// among the arguments: no GPU is needed for that.
void show_help(int argc, char** argv, const char* options);

// The machine's first GPU; or null, after a line on standard error, and the exit code in `code`.
std::unique_ptr<CudaDevice> open_gpu(int& code);

// Runs what register_all() registers with Google Benchmark, unless `checked` says that results are
// wrong (kCorrupted) or cannot be had. Returns the exit code.
int run_checked(const Status& checked, const std::string& device,
                const std::function<void()>& register_all, int argc, char** argv);

}  // namespace lockstep::benchmarks
