// FlightRecord is what one rank reports about itself when something went wrong: the last
// collectives that it started (contract T1), how far its pass got, which parameters its next bucket
// lacks, and the failure that it holds. Reducer::flight_record() makes one; diagnosis.h joins those
// of all ranks.
//
// It is plain data, and the same for every build of the library, so that a rank can write it to a
// file or a store and any program can read it. As text it is a few lines of words with a space
// between them. The text escapes spaces, and everything that is not a printable ASCII character, as
// %20 and the like.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reducer/base/dtype.h"
#include "reducer/base/status.h"

namespace lockstep {

// The first names of a list that may be long.
struct Names {
  static constexpr std::size_t kKept = 16;
  std::vector<std::string> first;
  std::uint64_t count = 0;  // The number of all names.

  void add(const std::string& name);
  bool empty() const { return count == 0; }
  std::string to_string() const;  // Formats the names: "p q", "p q ... and 30 more".
  bool operator==(const Names&) const = default;
};

struct RecordedCollective {
  // kState is a broadcast of the values of parameters, or of buffers (S3). kJoin is the exchange of
  // who still trains (S2).
  enum class What : std::uint8_t { kBucket, kUsageMap, kOrder, kState, kJoin };
  enum class State : std::uint8_t { kInFlight, kCompleted, kFailed };
  std::int64_t sequence = 0;    // Counts the collectives of the reducer, without a gap.
  std::int64_t number = kNone;  // The sequence number on its group, as errors have it, if known.
  std::int64_t pass = 0;
  What what = What::kBucket;
  std::string op;                 // "all_reduce" and the like.
  std::string dtype = "float32";  // As name_of(DType) has it, or one of another writer.
  State state = State::kInFlight;
  int bucket = kNone;
  std::int64_t count = 0;         // In elements.
  std::uint64_t layout_hash = 0;  // The hash of the layout that `bucket` belongs to.
  std::int64_t launched_us = 0;   // Times are on the rank's own clock.
  std::int64_t completed_us = 0;
  // The parameters of the bucket; empty if the layout of the bucket no longer exists.
  Names parameters;

  // The number by which texts call the collective.
  std::int64_t shown_number() const { return number == kNone ? sequence : number; }
  // Compares the fields that ranks must agree on (F6).
  bool same_as(const RecordedCollective& other) const;
  // Returns "bucket 0", "usage map" and the like; "values" if a bucket has no number.
  std::string name() const;
  // Formats the collective: "pass 1, all_reduce of bucket 0 (p q), 18 float32".
  std::string to_string() const;
};

struct FlightRecord {
  enum class Doing : std::uint8_t {
    kIdle,       // No pass is open: the rank is before a synced forward, or after its backward.
    kArmed,      // A synced forward has run, and no backward has begun.
    kBackward,   // A backward runs.
    kBetween,    // A backward has ended, and has left parameters to a later one.
    kFinishing,  // All parameters are ready, and the rank waits for the sums.
  };
  int rank = 0;
  int size = 1;
  // Identifies the reducer whose collectives these are, among several on one group.
  std::int64_t reducer_id = 0;
  std::int64_t pass = 0;  // The pass that is open, or the number of the next one.
  Doing doing = Doing::kIdle;
  int next_bucket = kNone;  // kNone if no pass is open, or if all buckets were launched.
  Names missing;            // The parameters that the next bucket still lacks.
  std::optional<Failure> failure;
  // The last collectives, oldest first, without a gap.
  std::vector<RecordedCollective> collectives;
  // The sequence number of the collective that the rank would start next.
  std::int64_t next_sequence = 0;

  const RecordedCollective* find(std::int64_t sequence) const;
};

const char* name_of(RecordedCollective::What what);
const char* name_of(RecordedCollective::State state);
const char* name_of(FlightRecord::Doing doing);

std::string to_text(const FlightRecord& record);
// The beginning of a text of others, as it may be printed: in quotes, and with what is not a
// printable ASCII character as %1b and the like.
std::string quoted(std::string_view text, std::size_t longest);
// Parses what to_text() wrote. kInvalidArgument names the line that is wrong.
Result<FlightRecord> read_flight_record(std::string_view text);

}  // namespace lockstep
