// Symbols reads the symbol table of a shared library's file: the local functions and tables as well
// as those that it exports. The loader keeps no such names, so the file is read.
//
// Threads: any, each with an object of its own. Failure: kInvalidArgument, in one line, for a file
// that cannot be read, is no 64-bit ELF file of this machine, or has no symbol table (strip removes
// it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reducer/base/status.h"

namespace lockstep::played {

struct Symbol {
  std::string name;
  std::uint64_t address = 0;  // from the library's load address
  std::uint64_t bytes = 0;
  bool is_function = false;
  bool is_local = false;
};

class Symbols {
 public:
  static Result<Symbols> read(const std::string& file);

  // Null if there is none of that name.
  const Symbol* find(const std::string& name) const;
  const std::vector<Symbol>& all() const { return all_; }
  // The machine code (.text), from the library's load address.
  std::uint64_t code_begin() const { return code_begin_; }
  std::uint64_t code_end() const { return code_end_; }

 private:
  std::vector<Symbol> all_;
  std::uint64_t code_begin_ = 0;
  std::uint64_t code_end_ = 0;
};

}  // namespace lockstep::played
