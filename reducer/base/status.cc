#include "reducer/base/status.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "reducer/base/check.h"

namespace lockstep {

void check_failed(const char* file, int line, const char* expression, const std::string& values) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s%s\n", file, line, expression,
               values.empty() ? "" : " (", values.c_str(), values.empty() ? "" : ")");
  std::abort();
}

const char* name_of(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kDisagreement: return "ranks disagree";
    case Code::kIncomplete: return "incomplete pass";
    case Code::kReadyTwice: return "ready twice";
    case Code::kRequiresGrad: return "gradient requires grad";
    case Code::kUsageChanged: return "usage changed";
    case Code::kUnevenInputs: return "uneven inputs";
    case Code::kSecondBackward: return "second backward";
    case Code::kGraphFreed: return "graph freed";
    case Code::kUserFailure: return "user failure";
    case Code::kMismatch: return "collective mismatch";
    case Code::kPeerLost: return "peer lost";
    case Code::kTimeout: return "timeout";
    case Code::kTransport: return "transport failure";
    case Code::kAborted: return "aborted";
    case Code::kPoisoned: return "poisoned";
    case Code::kCorrupted: return "corrupted data";
    case Code::kOutOfMemory: return "out of memory";
    case Code::kInternal: return "internal error";
  }
  return "unknown";
}

Status::Status(Code code, std::string detail) : failure_(std::make_unique<Failure>()) {
  LOCKSTEP_CHECK(code != Code::kOk);
  failure_->code = code;
  failure_->definite = code == Code::kOutOfMemory;
  failure_->detail = std::move(detail);
}

Status out_of_memory() { return Status(Code::kOutOfMemory, "there was no memory left"); }

namespace {

// A model may have 100,000 parameters, and a name may have any length, but a text is for a person.
constexpr std::size_t kNamesInText = 16;
constexpr std::size_t kNameInText = 200;  // In characters.

std::string short_name(const std::string& name) {
  return name.size() <= kNameInText ? name : name.substr(0, kNameInText) + "...";
}

std::string list_of(const std::vector<std::string>& names) {
  LOCKSTEP_CHECK(!names.empty());
  std::string out;
  const std::size_t count = std::min(names.size(), kNamesInText);
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += ' ';
    out += short_name(names[i]);
  }
  if (names.size() > count) out += " and " + std::to_string(names.size() - count) + " more";
  return out;
}

}  // namespace

std::string Failure::to_string() const {
  std::string out = name_of(code);
  const auto field = [&out](const char* label, std::int64_t value) {
    if (value != kNone) out += std::string(", ") + label + " " + std::to_string(value);
  };
  field("rank", rank);
  field("pass", pass);
  field("bucket", bucket);
  if (!collective.empty()) out += ", " + short_name(collective);
  field("sequence", sequence);
  field("suspected peer", suspect);
  if (!parameters.empty()) {
    out += parameters.size() == 1 ? ", parameter " : ", parameters ";
    out += list_of(parameters);
  }
  if (!detail.empty()) out += ": " + detail;
  for (const std::string& line : later) out += "\n  then: " + line;
  return out;
}

namespace {

constexpr std::uint32_t kFailureFormat = 3;
// The limit of each list. A report has to be small, and readable on the other rank; the first
// parameters say the most.
constexpr std::size_t kMaxStrings = 4096;

void put(std::string& out, std::int64_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void put(std::string& out, std::string_view text) {
  put(out, static_cast<std::int64_t>(text.size()));
  out.append(text);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  std::int64_t integer() {
    std::int64_t value = 0;
    if (rest_.size() < sizeof value) {
      good_ = false;
      return 0;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  int small_integer() {
    const std::int64_t value = integer();
    good_ = good_ && value == static_cast<int>(value);
    return static_cast<int>(value);
  }
  std::string text() {
    const std::int64_t length = integer();
    if (length < 0 || static_cast<std::uint64_t>(length) > rest_.size()) {
      good_ = false;
      return {};
    }
    std::string out(rest_.substr(0, static_cast<std::size_t>(length)));
    rest_.remove_prefix(static_cast<std::size_t>(length));
    return out;
  }
  std::vector<std::string> texts() {
    const std::int64_t count = integer();
    if (count < 0 || static_cast<std::uint64_t>(count) > kMaxStrings) good_ = false;
    std::vector<std::string> out;
    for (std::int64_t i = 0; good_ && i < count; ++i) out.push_back(text());
    return out;
  }
  bool good() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace

std::string encode(const Failure& failure) {
  LOCKSTEP_CHECK(failure.code != Code::kOk);  // read_failure() would refuse it.
  std::string out;
  put(out, kFailureFormat);
  put(out, static_cast<std::int64_t>(failure.code));
  for (const std::int64_t value :
       {std::int64_t{failure.rank}, std::int64_t{failure.reported_by}, failure.pass,
        std::int64_t{failure.bucket}, failure.reducer_id, failure.sequence,
        std::int64_t{failure.suspect}, std::int64_t{failure.definite}})
    put(out, value);
  put(out, failure.collective);
  put(out, failure.detail);
  for (const auto* list : {&failure.parameters, &failure.later}) {
    const std::size_t count = std::min(list->size(), kMaxStrings);
    put(out, static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) put(out, (*list)[i]);
  }
  return out;
}

std::string encode(Failure failure, std::size_t limit) {
  LOCKSTEP_CHECK_GE(limit, kLeastEncoded);
  failure.later.clear();
  std::string bytes = encode(failure);
  if (bytes.size() <= limit) return bytes;
  const auto cut = [](std::string& text, std::size_t size) {
    if (text.size() > size) text.resize(size);
  };
  if (failure.parameters.size() > 1) failure.parameters.resize(1);
  for (std::string& name : failure.parameters) cut(name, limit / 4);
  cut(failure.collective, limit / 8);
  bytes = encode(failure);
  if (bytes.size() <= limit) return bytes;
  cut(failure.detail,
      failure.detail.size() - std::min(failure.detail.size(), bytes.size() - limit));
  bytes = encode(failure);
  LOCKSTEP_CHECK_LE(bytes.size(), limit);
  return bytes;
}

bool is_possible(const Failure& failure, int size) {
  for (const int rank : {failure.rank, failure.reported_by, failure.suspect})
    if (rank < kNone || rank >= size) return false;
  return failure.pass >= kNone && failure.bucket >= kNone && failure.reducer_id >= kNone &&
         failure.sequence >= kNone;
}

std::optional<Failure> read_failure(std::string_view bytes, int size) {
  LOCKSTEP_CHECK_LT(0, size);
  Reader reader(bytes);
  Failure failure;
  const std::int64_t format = reader.integer();
  const std::int64_t code = reader.integer();
  failure.rank = reader.small_integer();
  failure.reported_by = reader.small_integer();
  failure.pass = reader.integer();
  failure.bucket = reader.small_integer();
  failure.reducer_id = reader.integer();
  failure.sequence = reader.integer();
  failure.suspect = reader.small_integer();
  failure.definite = reader.integer() != 0;
  failure.collective = reader.text();
  failure.detail = reader.text();
  failure.parameters = reader.texts();
  failure.later = reader.texts();
  const bool known =
      format == kFailureFormat && code > 0 && code <= static_cast<std::int64_t>(Code::kInternal);
  if (!reader.good() || !known || !is_possible(failure, size)) return std::nullopt;
  failure.code = static_cast<Code>(code);
  return failure;
}

Failure decode_failure(std::string_view bytes, int size) {
  std::optional<Failure> failure = read_failure(bytes, size);
  if (failure) return *std::move(failure);
  Failure unreadable;
  unreadable.code = Code::kInternal;
  unreadable.detail =
      "a report of a failure could not be read: it is damaged, or of another version of the "
      "library";
  return unreadable;
}

bool concerns_group(Code code) {
  switch (code) {
    case Code::kMismatch:
    case Code::kPeerLost:
    case Code::kTimeout:
    case Code::kTransport:
    case Code::kAborted:
    case Code::kCorrupted: return true;
    default: return false;
  }
}

bool is_of_group(const Failure& failure) {
  return concerns_group(failure.code) && !failure.collective.empty();
}

}  // namespace lockstep
