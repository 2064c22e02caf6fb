// The durable form of a Case: JSON with `"schema": 1`. Fields have the names of the structs, enums
// are words, and a field at its default is left out, so that a minimal case is a few lines. An
// optional `"about"` holds free text.
//
// Reading is strict: an unknown field, a wrong type, a list over its limit or a number outside of
// its limits is refused with one line that names the file, the field and what to do. What is read
// is normalized: indices, which may be any number, are taken modulo what they index. Writing is
// atomic: a new file beside the old one, synced to disk, then renamed over it. When that fails
// nothing is left.
//
// Threads: any; two writers of one path each write a whole file, and one of them stays.
// Failure: kInvalidArgument with the line in failure().detail.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "properties/case/case.h"
#include "reducer/base/status.h"

namespace lockstep::properties {

constexpr int kCaseSchema = 1;                     // the newest schema, and the one that is written
constexpr std::size_t kMaxCaseBytes = 16u << 20u;  // of a file that is read

std::string to_json(const Case& value, std::string_view about = {});

// `source` names the text in errors; `about`, when given, gets the free text.
Result<Case> from_json(std::string_view text, const std::string& source,
                       std::string* about = nullptr);

Result<Case> read_case(const std::string& path, std::string* about = nullptr);
Status write_case(const std::string& path, const Case& value, std::string_view about = {});

// All of a file; one that is larger, or never ends, is refused. Pipes are read to their end.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes);

// The same atomic way as a case for other small files (reports).
Status write_file(const std::string& path, std::string_view text);

}  // namespace lockstep::properties
