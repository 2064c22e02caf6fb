// AllowedOutcomes: the set of results that a call of a rank may have: success, or an error. Which
// results belong to it follows from what the model expects of the program, and from the faults that
// fired; outcomes.h computes the set, and errors.cc asks whether what a rank did is a member of it.
//
// The set is written as requirements. An error is a member if it meets every requirement on all
// errors, and every requirement of at least one cause. A requirement is a list of patterns, and an
// error meets it if it matches one of them. A pattern may say that something is unspecified, and
// why: it then matches, and membership counts the reason (unspecified.h). Nothing else excuses an
// error.
//
// Plain data and pure functions; any thread. Patterns refer to the case and its expectation, which
// must outlive the set.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "properties/observe/observation.h"
#include "properties/oracle/unspecified.h"
#include "reference/expectation.h"

namespace lockstep::properties {

// A set of small numbers, such as ranks and passes; kNone, which is -1, may belong to it. Numbers
// outside of -1 to 125 are all in the set, or none of them is.
class Among {
 public:
  constexpr Among() = default;  // all numbers
  static constexpr Among none() { return {0, 0}; }
  static constexpr Among of(std::initializer_list<std::int64_t> numbers) {
    Among among = none();
    for (const std::int64_t number : numbers) among.add(number);
    return among;
  }
  static constexpr Among of(std::initializer_list<Code> codes) {
    Among among = none();
    for (const Code code : codes) among.add(static_cast<std::int64_t>(code));
    return among;
  }

  constexpr void add(std::int64_t number) { word(number) |= bit(number); }
  constexpr bool has(std::int64_t number) const {
    return ((is_high(number) ? high_ : low_) & bit(number)) != 0;
  }
  constexpr bool has(Code code) const { return has(static_cast<std::int64_t>(code)); }
  constexpr bool is_empty() const { return (low_ | high_) == 0; }
  constexpr bool is_all() const { return (low_ & high_) == ~std::uint64_t{0}; }
  constexpr Among operator~() const { return {~low_, ~high_}; }
  constexpr Among operator&(Among other) const { return {low_ & other.low_, high_ & other.high_}; }
  constexpr Among operator|(Among other) const { return {low_ | other.low_, high_ | other.high_}; }
  constexpr bool operator==(const Among&) const = default;

 private:
  constexpr Among(std::uint64_t low, std::uint64_t high) : low_(low), high_(high) {}
  // The last bit stands for all numbers that have no bit of their own.
  static constexpr std::uint64_t index_of(std::int64_t number) {
    return number < -1 || number > 125 ? 127 : static_cast<std::uint64_t>(number + 1);
  }
  static constexpr bool is_high(std::int64_t number) { return index_of(number) >= 64; }
  static constexpr std::uint64_t bit(std::int64_t number) {
    return std::uint64_t{1} << (index_of(number) & 63u);
  }
  constexpr std::uint64_t& word(std::int64_t number) { return is_high(number) ? high_ : low_; }

  std::uint64_t low_ = ~std::uint64_t{0};
  std::uint64_t high_ = ~std::uint64_t{0};
};

// The errors that a rank raises by itself, and not because of a peer or the group.
constexpr Among kOwnErrors =
    Among::of({Code::kIncomplete, Code::kReadyTwice, Code::kSecondBackward, Code::kUsageChanged,
               Code::kRequiresGrad, Code::kUnevenInputs, Code::kUserFailure, Code::kInvalidArgument,
               Code::kOutOfMemory});

// A set of reasons why something is unspecified.
class Reasons {
 public:
  constexpr Reasons() = default;
  constexpr Reasons(Unspecified reason)  // NOLINT
      : bits_(std::uint64_t{1} << static_cast<unsigned>(reason)) {}
  constexpr Reasons operator|(Reasons other) const { return Reasons(bits_ | other.bits_); }
  constexpr bool has(Unspecified reason) const { return (bits_ & Reasons(reason).bits_) != 0; }
  constexpr int count() const { return std::popcount(bits_); }
  void note_in(UnspecifiedCounts& counts) const;
  constexpr bool operator==(const Reasons&) const = default;

 private:
  constexpr explicit Reasons(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_ = 0;
};
static_assert(kUnspecifiedReasons <= 64);

// What holds of an error, or does not.
enum Fact : std::uint32_t {
  kIsOwn = 1u << 0,            // the rank that reports it is its cause
  kHadLaunched = 1u << 1,      // the rank had started a collective of the pass
  kRefusesWork = 1u << 2,      // the reducer refuses work until it is reset
  kNamesCollective = 1u << 3,  // it names a collective
  kKnowsCollective = 1u << 4,  // ... that exists
  kNamesSequence = 1u << 5,    // it names the sequence number of a collective
  kNamesBucket = 1u << 6,      // it names a bucket
  kNamesParameters = 1u << 7,  // it names parameters
  kMentionsDepartedRank = 1u << 8,  // its texts say that a rank left
  kHasTextOfHook = 1u << 9,    // it keeps the text of the communication hook that failed
  kSaysWhatItSaw = 1u << 10,   // it says what the rank that reports it saw itself
  kIsCertain = 1u << 11,       // it says that its cause is certain
  kHasTextOfAbort = 1u << 12,  // it keeps the text of the user who has given up
};

// A call that raised an error.
struct RaisedError {
  const reference::Program& program;
  const Failure& failure;
  std::int32_t call = kNone;  // as ObservedStep::failed_call
  std::uint32_t facts = 0;
};
RaisedError raised_in(const reference::Program& program, const ObservedStep& step);
// Of a call outside of the steps: nothing is known of the state after it.
RaisedError raised_in_join(const reference::Program& program, const Failure& failure);

enum class Names : std::uint8_t {
  kAnything,
  kExactly,  // all of the list and no other
  kOneOf,    // one of the list
};

// Errors that have all that is set here.
struct ErrorPattern {
  Among codes = {};
  Among causes = {};          // Failure::rank
  Among suspects = {};        // Failure::suspect
  Among reporters = {};       // Failure::reported_by
  Among passes = {};          // Failure::pass
  Among calls = {};           // RaisedError::call
  std::uint32_t with = 0;     // the facts that hold
  std::uint32_t without = 0;  // the facts that do not
  Names names = Names::kAnything;
  const std::vector<std::uint32_t>* parameters = nullptr;  // of Names
  // The buckets of which one is named: with all of its parameters, and for errors that a rank makes
  // by itself, with one of them.
  const std::vector<reference::ExpectedBucket>* layout = nullptr;
  Reasons open = {};  // what nobody can tell of such an error

  bool matches(const RaisedError& error) const;
  bool is_possible() const;  // whether there is an error that matches
  std::string to_string() const;
};

// What a requirement is about.
enum class Must : std::uint8_t {
  kWait,     // nothing is started before the backward ends
  kState,    // what the reducer does after the error
  kForm,     // it names an existing collective, with its sequence number
  kOwnView,  // beside the error of a peer: what the rank saw itself
  kCode,
  kReporter,
  kCall,
  kPass,
  kRank,   // any rank
  kPlace,  // a bucket or a collective
  kParameters,
  kBucket,
  kCause,
  kChange,  // that a payload was changed
  kSender,
  kThrowPass,  // the pass whose node threw
  kHook,
  kAbort,  // the abort of the user: its code, its rank, and that it is certain
  kNobodyLeft,
  kSuspect,
};
const char* name_of(Must must);   // "code"
const char* describe(Must must);  // "name the pass"

// A list of requirements. The patterns of one requirement follow each other.
class Requirements {
 public:
  // Adds a pattern to the last requirement if that is about the same thing; begins one otherwise.
  void allow(Must must, const ErrorPattern& pattern) {
    if (patterns_.empty()) patterns_.reserve(16);
    patterns_.push_back({must, pattern});
  }

  struct Result {
    bool is_met = false;
    Must unmet = Must::kCode;  // the first one that is not met
    std::size_t met = 0;       // how many are met before that one
    Reasons open = {};
  };
  Result check(const RaisedError& error) const;
  bool is_empty() const { return patterns_.empty(); }
  // One requirement: its patterns in words. With a code, only the patterns that an error with this
  // code can match, or all of them if it can match none.
  std::string to_string(Must must, std::optional<Code> code = {}) const;
  std::string to_string() const;

 private:
  struct Each {
    Must must;
    ErrorPattern pattern;
  };
  std::vector<Each> patterns_;
};

// The errors that one cause allows.
struct AllowedError {
  const char* because = "";
  std::vector<faults::Fault> faults = {};  // if they are the cause
  Requirements requirements = {};

  std::string cause() const;  // "rank 2 is at fault (rank_exit)"
};

struct AllowedOutcomes {
  bool is_anything = false;  // nobody can tell, as `open` says
  std::string must_fail;     // why success does not belong to it; empty if it does
  Reasons open = {};         // of every outcome
  Requirements of_all_errors;
  std::vector<AllowedError> errors;

  bool may_succeed() const { return must_fail.empty(); }
  // The set in words, without what is required of all errors.
  std::string to_string() const;
};

// Whether an error belongs to a set, and if so, what is left open; if not, what it lacks.
struct Membership {
  bool is_member = false;
  Reasons open = {};
  Must unmet = Must::kCode;               // the requirement that the error does not meet
  const Requirements* closest = nullptr;  // in which it lies; nullptr if the set has no errors
};
// Of several ways in which an error can belong to the set, takes the one that leaves least open.
Membership membership_of(const RaisedError& error, const AllowedOutcomes& allowed);
// What a rank did that does not belong to the set, what is wrong with it, and the set, in words: of
// an error, and of a success.
std::string describe(const Status& error, const Membership& found, const AllowedOutcomes& allowed);
std::string describe_success(const AllowedOutcomes& allowed);

}  // namespace lockstep::properties
