// Measures a step that contains only the reduction of gradients: over real Gloo, in real processes,
// beside its lower bounds. suite.h says what is measured, README.md what is counted, and program.h
// has the exit codes.
#include <memory>

#include "benchmarks/suite.h"

int main(int argc, char** argv) {
  using namespace lockstep::benchmarks;
  return run_program(
      argc, argv, "What reducing gradients costs over Gloo, in real processes on this machine.",
      suite_parts(), [](const Choice& choice) { return std::make_unique<Suite>(choice); });
}
