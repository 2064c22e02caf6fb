// Account: what one rank tells of itself when something went wrong: the last collectives that it
// started (contract T1), how far its pass got, which parameters its next bucket lacks, and the
// failure that it holds. Reducer::account() makes one; diagnosis.h joins those of all ranks.
//
// Plain data, and the same for every build of the library, so that a rank can write it to a file or
// a store and anybody can read it. As text it is a few lines of words with a space between them;
// what is not a printable character of ASCII, and the space, is written %20 and the like.
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
  std::uint64_t count = 0;  // of all

  void add(const std::string& name);
  bool empty() const { return count == 0; }
  std::string to_string() const;  // "p q", "p q ... and 30 more"
  bool operator==(const Names&) const = default;
};

struct RecordedCollective {
  enum class What : std::uint8_t { kBucket, kUsageMap, kOrder, kState, kJoin };
  enum class State : std::uint8_t { kInFlight, kCompleted, kFailed };
  std::int64_t sequence = 0;
  std::int64_t pass = 0;
  What what = What::kBucket;
  std::string op;  // "all_reduce", ...
  DType dtype = DType::kFloat32;
  State state = State::kInFlight;
  int bucket = kNone;
  std::int64_t count = 0;         // elements
  std::uint64_t layout_hash = 0;  // of the layout that `bucket` belongs to
  std::int64_t launched_us = 0;   // on the rank's own clock
  std::int64_t completed_us = 0;
  Names parameters;  // of the bucket, unless its layout is gone

  // What ranks have to agree on (F6).
  bool same_as(const RecordedCollective& other) const;
  std::string to_string() const;  // "pass 1, all_reduce of bucket 0 (p q), 18 float32"
};

struct FlightRecord {
  enum class Doing : std::uint8_t {
    kIdle,       // no pass is open: before a synced forward, or after the backward of it
    kArmed,      // a synced forward has run, no backward has begun
    kBackward,   // runs
    kBetween,    // one has ended, and has left parameters to a further one
    kFinishing,  // all parameters are there, and the sums are waited for
  };
  int rank = 0;
  int size = 1;
  std::int64_t reducer_id = 0;  // of its collectives: tells several reducers on one group apart
  std::int64_t pass = 0;        // the one that is open, or would be the next
  Doing doing = Doing::kIdle;
  int next_bucket = kNone;  // kNone: no pass is open, or all buckets were launched
  Names missing;            // what it lacks
  std::optional<Failure> failure;
  std::vector<RecordedCollective> collectives;  // the last ones, oldest first, without a gap
  std::int64_t next_sequence = 0;               // of the collective that it would start next

  const RecordedCollective* find(std::int64_t sequence) const;
};

const char* name_of(RecordedCollective::What what);
const char* name_of(RecordedCollective::State state);
const char* name_of(FlightRecord::Doing doing);

std::string to_text(const FlightRecord& record);
// kInvalidArgument names the line that is wrong.
Result<FlightRecord> read_flight_record(std::string_view text);

}  // namespace lockstep
