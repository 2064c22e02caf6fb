// Reads and writes a Case as JSON with `"schema": 4`. Fields have the names of the structs, enums
// are words, and a field with its default value is omitted, so that a minimal case has a few lines.
// An optional `"about"` holds free text, and an optional `"found_with"` how the case was run when
// it failed. A file of schema 1 is read as schema_1.h says; up to schema 2 the options of PyTorch
// stood among those of the program.
//
// Reading is strict: an unknown field, a wrong type, a list over its limit or a number outside of
// its limits is refused with one line that names the file, the field and what to do. The case is
// normalized after reading: indices, which may be any number, are taken modulo what they index.
// Writing is atomic: a new file is written beside the old one, synced to disk, and renamed over it.
// If that fails, nothing is left behind.
//
// Threads: any. If two writers write one path, each writes a whole file, and one of the files
// remains.
// Failure: kInvalidArgument with the line in failure().detail.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "properties/case/case.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

constexpr int kCaseSchema = 4;                     // the newest schema, and the one that is written
constexpr std::size_t kMaxCaseBytes = 16u << 20u;  // of a file that is read

// How a case was run when it failed, in the words of the command line: what `replay`, `shrink` and
// `fixed` take where the user names nothing else. Empty: what these take without such a record.
struct FoundWith {
  std::string subject;
  std::string lane;
  std::string against;
  std::string contract;
  std::string values;
  std::string nccl;
  bool operator==(const FoundWith& other) const = default;
};

std::string to_json(const Case& value, std::string_view about = {}, const FoundWith& found = {});

// `source` names the text in errors. `about`, if given, receives the free text.
// `rewritten`, if given, gets a line for each field that stands in the text and means something
// else in its place, or nothing, so that the case runs otherwise than it is written.
Result<Case> from_json(std::string_view text, const std::string& source,
                       std::string* about = nullptr, std::vector<std::string>* rewritten = nullptr);

Result<FoundWith> found_with_of(std::string_view text, const std::string& source);

Result<Case> read_case(const std::string& path, std::string* about = nullptr,
                       std::vector<std::string>* rewritten = nullptr);
// Reads the record alone; an empty one where the file has none.
Result<FoundWith> read_found_with(const std::string& path);
Status write_case(const std::string& path, const Case& value, std::string_view about = {},
                  const FoundWith& found = {});

// Reads a whole file. A file that is larger, or that never ends, is refused. Pipes are read to
// their end.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes);

// Writes other small files (reports) in the same atomic way.
Status write_file(const std::string& path, std::string_view text);

// Returns an error if write_file() could not write to `path` now: it makes a file beside it, and
// removes that again. A disk that becomes full later is not foreseen.
Status check_can_write(const std::string& path);

}  // namespace lockstep::properties
