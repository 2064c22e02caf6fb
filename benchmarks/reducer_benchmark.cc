// What a step costs of which nothing but the reduction of gradients is left: over real Gloo, in
// real processes, beside the floors that it stands on. See suite.h for what is measured, README.md
// for what is counted, program.h for exit codes.
#include <memory>

#include "benchmarks/suite.h"

int main(int argc, char** argv) {
  using namespace lockstep::benchmarks;
  return run_program(
      argc, argv, "What reducing gradients costs over Gloo, in real processes on this machine.",
      suite_parts(), [](const Choice& choice) { return std::make_unique<Suite>(choice); });
}
