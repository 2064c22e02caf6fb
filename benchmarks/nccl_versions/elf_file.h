// ElfFile: what a shared library says about itself without being loaded: its exported functions,
// the addresses of its local functions, and the texts in its read-only data.
//
// Threads: a value. Failure: one line that names the file and says what is wrong with it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::benchmarks {

struct ElfFile {
  std::set<std::string> exported_functions;
  // By the name as the linker has it. Empty for a library that was stripped of its symbols.
  std::map<std::string, std::uint64_t> functions;
  std::vector<std::string> texts;  // those that end with a zero byte
};

// Refuses a file that is no shared library, is torn, or is for other machines than this one.
Result<ElfFile> read_elf_file(const std::string& path);

}  // namespace lockstep::benchmarks
