#include "properties/subject/probe_library.h"

#include <fmt/format.h>

#include <charconv>

#include "properties/process/child.h"
#include "properties/subject/loader.h"
#include "reducer/base/check.h"

namespace lockstep::properties {
namespace {

// The child's messages: first that the library is open, then one of the other two. A claim has the
// bits of the capabilities, a space, and the scale.
constexpr char kOpened = 'o';
constexpr char kClaims = 'c';
constexpr char kRefused = 'r';

void probe(const std::string& path, ChildLine& line) {
  const Result<LoadedSubject> loaded =
      load_subject(path, [&line] { line.send(std::string(1, kOpened)); });
  line.send(loaded ? fmt::format("{}{} {}", kClaims, loaded->capabilities.bits(), loaded->scale)
                   : kRefused + loaded.error().failure().detail);
}

tl::unexpected<Status> not_usable(std::string what) {
  return failed(Status(Code::kInvalidArgument, std::move(what)));
}

}  // namespace

Result<LoadedSubject> probe_library(const std::string& path, std::chrono::milliseconds limit) {
  Child child;
  if (const Status status = child.start([&path](ChildLine& line) { probe(path, line); });
      !status.ok())
    return failed(status);
  const char* stage = "while its constructors ran (dlopen),";
  std::string text;
  while (true) {
    switch (child.receive(text, limit)) {
      case Child::Received::kNothing:
        return not_usable(
            fmt::format("the subject '{}' cannot be used: {} it did not return within {} s", path,
                        stage, static_cast<double>(limit.count()) / 1000));
      case Child::Received::kFinished:
      case Child::Received::kLost:
        return not_usable(
            fmt::format("the subject '{}' cannot be used: {} the process that opened it {}", path,
                        stage, child.how_lost()));
      case Child::Received::kMessage:
        break;
    }
    if (text.starts_with(kRefused)) return not_usable(text.substr(1));
    if (text.starts_with(kClaims)) break;
    stage = "in " LOCKSTEP_ENTRY "()";
  }
  std::uint64_t bits = 0;
  const char* end = std::from_chars(text.data() + 1, text.data() + text.size(), bits).ptr;
  LOCKSTEP_CHECK_LT(end, text.data() + text.size());
  return LoadedSubject{nullptr, Capabilities::from_bits(bits), std::string(end + 1)};
}

}  // namespace lockstep::properties
