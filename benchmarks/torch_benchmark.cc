// Measures our reducer beside PyTorch's, in one run of the same processes, over the same Gloo
// library. A step contains only the reduction. torch_suite.h says what is measured, README.md what
// is counted, and program.h has the exit codes. This is a program of its own, so that nothing else
// links libtorch.
#include <memory>

#include "benchmarks/torch_suite.h"

int main(int argc, char** argv) {
  using namespace lockstep::benchmarks;
  return run_program(argc, argv,
                     "Our reducer beside PyTorch's over Gloo, in real processes on this machine.",
                     torch_suite_parts(),
                     [](const Choice& choice) { return std::make_unique<TorchSuite>(choice); });
}
