// Status reports an expected failure. A Status is ok or holds one Failure, which says what
// happened, on which rank, in which pass, bucket and collective, which parameter is to blame, and
// which peer is suspected (contract F2). The first cause stays the Failure; what followed from it
// is attached to `later`.
//
// Threads: a Status is a value; different objects may be used from different threads.
// Cost: an ok Status is one null pointer, so passing it through a hook costs nothing.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace lockstep {

enum class Code : std::uint8_t {
  kOk,
  kInvalidArgument,  // An argument or an option is wrong; nothing was changed (B5, ...).
  kDisagreement,     // Ranks were constructed with different parameters or options (B4).
  kIncomplete,       // A backward ended with parameters missing (P5).
  kReadyTwice,       // A parameter's hook fired twice in one pass (P6).
  kUsageChanged,     // A pass used a parameter that static mode takes for unused (P11).
  kRequiresGrad,     // A gradient to be reduced requires a gradient itself (P16).
  kUnevenInputs,     // A rank is out of inputs before another, which the options forbid (S2).
  kSecondBackward,   // A second backward of a complete pass was refused (P7).
  kGraphFreed,       // A backward reached a graph whose buffers were freed (E).
  kUserFailure,      // A node or a hook of the user threw or failed (P12).
  kMismatch,         // Ranks entered different collectives (F6).
  kPeerLost,         // A peer closed its connection or exited.
  kTimeout,          // A deadline passed (F1).
  kTransport,        // The transport failed in another way.
  kAborted,          // The process group was aborted, here or by a peer.
  kPoisoned,         // The call was refused: an earlier failure has to be reset first (P12).
  kCorrupted,        // A checksum did not match (F3).
  kOutOfMemory,      // Memory was refused, here or in a user's node or hook (F1).
  kInternal,         // An invariant of the library does not hold; this is a bug of ours.
};

const char* name_of(Code code);

constexpr int kNone = -1;  // Means "not known" or "does not apply" in the integer fields below.

struct Failure {
  Code code = Code::kInternal;
  int rank = kNone;           // The rank where the first cause arose.
  int reported_by = kNone;    // The rank that holds this object.
  std::int64_t pass = kNone;  // The number of the synced pass, from 0.
  int bucket = kNone;
  // The user of the process group that the bucket belongs to (F7).
  std::int64_t reducer_id = kNone;
  // The sequence number of the collective on its process group, from 0.
  std::int64_t sequence = kNone;
  int suspect = kNone;  // The rank in the group that is suspected: a peer, or this rank itself.
  // True if the cause is known (an error of the rank's own), and not inferred from a peer's
  // silence.
  bool definite = false;
  std::string collective;  // "all_reduce", "broadcast", ...; empty when no collective is concerned.
  // All offending or missing parameters, the first one first. A text names at most 16 of them.
  std::vector<std::string> parameters;
  std::string detail;              // One sentence for a person.
  std::vector<std::string> later;  // What followed from the first cause, one line each.

  std::string to_string() const;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Failure failure) : failure_(std::make_unique<Failure>(std::move(failure))) {}  // NOLINT
  // Refused memory is always a known cause; for the other codes the caller says so.
  Status(Code code, std::string detail);
  Status(const Status& other)
      : failure_(other.failure_ ? std::make_unique<Failure>(*other.failure_) : nullptr) {}
  Status(Status&&) noexcept = default;
  Status& operator=(const Status& other) {
    if (this != &other)
      failure_ = other.failure_ ? std::make_unique<Failure>(*other.failure_) : nullptr;
    return *this;
  }
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return failure_ ? failure_->code : Code::kOk; }
  const Failure& failure() const { return *failure_; }  // Requires !ok().
  Failure& failure() { return *failure_; }              // Requires !ok().
  std::string to_string() const { return failure_ ? failure_->to_string() : "ok"; }
  void ignore() const {}  // Says on purpose that the outcome does not matter here.

 private:
  std::unique_ptr<Failure> failure_;
};

template <typename T>
using Result = tl::expected<T, Status>;

// The Status that a catch of std::bad_alloc returns where exceptions must not pass.
Status out_of_memory();

inline tl::unexpected<Status> failed(Status status) {
  return tl::unexpected<Status>(std::move(status));
}

// Encodes a Failure as bytes for the store. Of more than 4096 parameters it encodes the first 4096.
// With a limit, which must be at least kLeastEncoded bytes, it shortens texts and lists until the
// result is no longer than the limit.
constexpr std::size_t kLeastEncoded = 256;
std::string encode(const Failure& failure);
std::string encode(Failure failure, std::size_t limit);

// Decodes a Failure. read_failure() returns nothing if the bytes are not those of a failure in a
// group of `size` ranks: if they are cut off, come from another version, or have numbers that no
// such failure has. decode_failure() then returns a kInternal failure, which says so.
constexpr int kAnySize = std::numeric_limits<int>::max();
std::optional<Failure> read_failure(std::string_view bytes, int size = kAnySize);
Failure decode_failure(std::string_view bytes, int size = kAnySize);

// Whether a failure with this code is one of the group itself. The group is dead after such a
// failure, whether or not a pass had launched anything.
bool concerns_group(Code code);
// Whether a collective of the group failed. Such a failure names the rank that is its cause, or
// none where the group does not know it; it is not the fault of the rank that noticed it.
bool is_of_group(const Failure& failure);

// Whether all ranks in it are ranks of a group of `size`, and no number is below kNone.
bool is_possible(const Failure& failure, int size);

}  // namespace lockstep

#define LOCKSTEP_RETURN_IF_ERROR(expression)                                        \
  do {                                                                              \
    if (::lockstep::Status lockstep_status_ = (expression); !lockstep_status_.ok()) \
      return lockstep_status_;                                                      \
  } while (false)
