// What an nccl.h declares: its functions, and the fields of its structures. The sizes, offsets and
// defaults of the fields are the compiler's, from a small program that is made for that header.
//
// Threads: any. Failure: one line that says what is wrong with the header, or why it does not
// compile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::benchmarks {

struct HeaderField {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::optional<std::int64_t> initial;  // from the header's initializer, where there is one
};

struct HeaderStructure {
  std::string name;
  std::uint64_t size = 0;
  std::vector<HeaderField> fields;
};

struct HeaderLayout {
  int version = 0;
  std::vector<std::string> functions;
  std::vector<HeaderStructure> structures;
};

// Finds functions and structures in the text of a header. Sizes, offsets and defaults are still 0.
HeaderLayout find_declarations(const std::string& header);
// The program that prints version, sizes, offsets and defaults of these declarations.
std::string layout_program(const HeaderLayout& declared);
// Fills in what that program printed.
Status read_layout(const std::string& printed, HeaderLayout& layout);

// Does all of this: `include` is the folder of nccl.h, `stubs` has the headers of CUDA that it
// includes.
Result<HeaderLayout> measure_header(const std::string& include, const std::string& stubs);

}  // namespace lockstep::benchmarks
