// Status: how an expected failure is reported. A Status is ok or holds one Failure, which says what
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
  kInvalidArgument,  // a wrong argument or option: nothing was changed (B5, ...)
  kDisagreement,     // ranks were constructed with different parameters or options (B4)
  kIncomplete,       // backward ended with parameters missing (P5)
  kReadyTwice,       // a parameter's hook fired twice in one pass (P6)
  kUsageChanged,     // a parameter is used that static mode takes for unused (P11)
  kRequiresGrad,     // a gradient to be reduced requires a gradient itself (P16)
  kUnevenInputs,     // a rank is out of inputs before another, and must not be (S2)
  kSecondBackward,   // a second backward of a pass that is complete (P7)
  kGraphFreed,       // backward through a graph whose buffers are gone (E)
  kUserFailure,      // a node or a hook of the user threw or failed (P12)
  kMismatch,         // ranks entered different collectives (F6)
  kPeerLost,         // a peer closed its connection or exited
  kTimeout,          // a deadline passed (F1)
  kTransport,        // the transport failed in another way
  kAborted,          // the process group was aborted here or by a peer
  kPoisoned,         // refused: an earlier failure has to be reset first (P12)
  kCorrupted,        // a checksum did not match (F3)
  kOutOfMemory,      // memory was refused, here or in what a user's node or hook did (F1)
  kInternal,         // an invariant of the library does not hold: a bug of ours
};

const char* name_of(Code code);

constexpr int kNone = -1;  // "not known" or "does not apply" in the integer fields below

struct Failure {
  Code code = Code::kInternal;
  int rank = kNone;           // the rank where the first cause arose
  int reported_by = kNone;    // the rank that holds this object
  std::int64_t pass = kNone;  // number of the synced pass, from 0
  int bucket = kNone;
  std::int64_t reducer_id = kNone;  // which user of its process group the bucket is one of (F7)
  std::int64_t sequence = kNone;    // of the collective on its process group, from 0
  int suspect = kNone;              // the peer that is suspected, a rank of the group
  bool definite = false;   // the cause is known (an own error), not inferred from a peer's silence
  std::string collective;  // "all_reduce", "broadcast", ...; empty when none is concerned
  // The first offending or missing parameter comes first. All of them are here; a text names 16.
  std::vector<std::string> parameters;
  std::string detail;              // one sentence for a person
  std::vector<std::string> later;  // what followed from it, one line each

  std::string to_string() const;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Failure failure) : failure_(std::make_unique<Failure>(std::move(failure))) {}  // NOLINT
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
  const Failure& failure() const { return *failure_; }  // requires !ok()
  Failure& failure() { return *failure_; }              // requires !ok()
  std::string to_string() const { return failure_ ? failure_->to_string() : "ok"; }
  void ignore() const {}  // says on purpose that the outcome does not matter here

 private:
  std::unique_ptr<Failure> failure_;
};

template <typename T>
using Result = tl::expected<T, Status>;

// For where exceptions end (catch std::bad_alloc).
Status out_of_memory();

inline tl::unexpected<Status> failed(Status status) {
  return tl::unexpected<Status>(std::move(status));
}

// A Failure as bytes for the store, and back; of more than 4096 parameters the first ones. With a
// limit, which must be kLeastEncoded or more: texts and lists are shortened until it has no more
// bytes than that.
constexpr std::size_t kLeastEncoded = 256;
std::string encode(const Failure& failure);
std::string encode(Failure failure, std::size_t limit);

// Nothing for bytes that are not those of a failure in a group of `size` ranks: cut off, of another
// version, or with numbers that none has. decode_failure() gives a kInternal failure then, which
// says so.
constexpr int kAnySize = std::numeric_limits<int>::max();
std::optional<Failure> read_failure(std::string_view bytes, int size = kAnySize);
Failure decode_failure(std::string_view bytes, int size = kAnySize);

// Whether ranks are of a group of `size`, and no number is below kNone.
bool is_possible(const Failure& failure, int size);

}  // namespace lockstep

#define LOCKSTEP_RETURN_IF_ERROR(expression)                                        \
  do {                                                                              \
    if (::lockstep::Status lockstep_status_ = (expression); !lockstep_status_.ok()) \
      return lockstep_status_;                                                      \
  } while (false)
