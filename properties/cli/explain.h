// `lockstep explain-bits`: says which computation makes the bits of an array, from what each rank
// contributed (explain/explain_bits.h). Returns the program's exit code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::properties {

struct ExplainOptions {
  std::string result;              // a file of numpy.save(), as all of them
  std::vector<std::string> ranks;  // in the order of the ranks
  std::string before;              // the result of the pass before; empty: not known
  std::uint64_t divisor = 0;       // 0: the number of ranks
  std::uint64_t offset = 0;        // of the array in the buffer that was reduced, in elements
  std::uint64_t count = 0;         // of elements in that buffer; 0: the array is the whole buffer
  std::uint64_t nccl_chunk = 0;    // of NCCL's ring, in bytes; 0: 2 MiB
};

CLI::App* add_explain_bits(CLI::App& app, ExplainOptions& options);

// 0 if the bits are an average in one of the declared orders, 65 if they are that of a known
// mistake, 2 if nothing explains all of them, 1 if the arrays cannot be read or do not fit.
int run_explain_bits(const ExplainOptions& options);

}  // namespace lockstep::properties
