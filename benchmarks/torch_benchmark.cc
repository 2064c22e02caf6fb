// Our reducer beside PyTorch's, in one run of the same processes, over the same library of Gloo: a
// step of which nothing but the reduction is left. See torch_suite.h for what is measured,
// README.md for what is counted, program.h for exit codes. A program of its own, so that nothing
// else links libtorch.
#include <memory>

#include "benchmarks/torch_suite.h"

int main(int argc, char** argv) {
  using namespace lockstep::benchmarks;
  return run_program(argc, argv,
                     "Our reducer beside PyTorch's over Gloo, in real processes on this machine.",
                     torch_suite_parts(),
                     [](const Choice& choice) { return std::make_unique<TorchSuite>(choice); });
}
