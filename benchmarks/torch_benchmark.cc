// Measures our reducer beside PyTorch's, in one run of the same processes. A step contains only the
// reduction. torch_suite.h says what is measured, README.md what is counted, and program.h has the
// exit codes.
#include <filesystem>
#include <memory>

#include "benchmarks/torch_suite.h"

// The module for the system's PyTorch lies beside the program.
constexpr const char* kTorchModule = "torch_side.so";

int main(int argc, char** argv) {
  using namespace lockstep::benchmarks;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return run_program(
      argc, argv, "Our reducer beside PyTorch's over Gloo, in real processes on this machine.",
      torch_suite_parts(),
      [](const Choice& choice) { return std::make_unique<TorchSuite>(choice); },
      program.parent_path() / kTorchModule);
}
