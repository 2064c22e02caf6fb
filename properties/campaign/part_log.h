// PartLog: what one part has done, as lines of JSON that are appended to a file, in order:
//
//   header   which part this is; the first line
//   start    a process has begun to run the part
//   block    a range of cases has run: what they covered
//   failure  a case has failed
//   shrunk   that case was made small, or does not fail again
//   end      the process has ended in order
//
// A block is written when it is done, so a process that is killed loses the block that it was in,
// and the part runs these cases again. A failure is written at once. A line that is not whole, as
// a crash or a full disk leaves, is dropped; the cases of a dropped block run again. A case counts
// once, whatever the log has twice.
//
// Positions are counted within the part: its case at position p has the index s + p * n.
//
// These are pure functions of their arguments; part_files.h has the files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "properties/campaign/part.h"
#include "properties/report/failure_report.h"
#include "properties/shrink/size.h"

namespace lockstep::properties {

struct StartRecord {
  std::int64_t at = 0;  // seconds since 1970
  std::string host;
  std::int64_t process = 0;
  int jobs = 1;
  std::uint64_t cases = 0;  // of the whole campaign; 0: until a time is over
};

// The smallest case that had a feature.
struct SmallCase {
  std::uint64_t index = 0;
  Size size;
};

struct BlockRecord {
  std::uint64_t begin = 0;  // positions
  std::uint64_t end = 0;
  std::int64_t at = 0;  // when it was done
  RunReport run;        // of these cases, without failures
  // By feature, of those in which the block has a smaller case than all blocks before it.
  std::map<std::string, SmallCase> smallest;
};

struct FailureRecord {
  std::uint64_t index = 0;
  std::int64_t at = 0;
  Failing failing = Failing::kNothing;
  std::string oracle;
  std::string message;
  std::vector<std::string> fired;  // kinds of faults
  bool might_succeed = false;      // as in Verdict
};

// Returns the verdict that the shrinker compares a smaller case with.
Verdict verdict_of(const FailureRecord& failure);

struct ShrunkRecord {
  std::uint64_t index = 0;
  bool reproduced = false;
  std::string case_file;  // relative to the campaign's folder
};

struct EndRecord {
  std::int64_t at = 0;
  std::string why;
};

// What a log says.
struct PartHistory {
  CampaignPart part;
  std::vector<StartRecord> starts;
  std::vector<BlockRecord> blocks;                  // ascending by position; none overlaps another
  std::map<std::uint64_t, FailureRecord> failures;  // by index
  std::map<std::uint64_t, ShrunkRecord> shrunk;     // by index
  std::optional<EndRecord> end;                     // of the last process, if it has ended
  std::vector<std::size_t> dropped_lines;           // their numbers, from 1
  std::uint64_t repeated_cases = 0;  // cases of blocks that overlap another, which do not count
};

std::string to_line(const CampaignPart& part);  // the header
std::string to_line(const StartRecord& record);
std::string to_line(const BlockRecord& record);
std::string to_line(const FailureRecord& record);
std::string to_line(const ShrunkRecord& record);
std::string to_line(const EndRecord& record);

// `source` names the text in errors. Fails if the text is not the log of a part; a text without a
// whole line is a log without anything in it. `whole_bytes` is what comes before a torn last line.
Result<PartHistory> history_of(const std::string& text, const std::string& source,
                               std::size_t& whole_bytes);

// The first range of positions without a block: from `begin` up to `end`, or, without a value, on.
struct OpenRange {
  std::uint64_t begin = 0;
  std::optional<std::uint64_t> end;
};
OpenRange first_open_range(const std::vector<BlockRecord>& blocks);

// How many of the first `cases` indices of the campaign belong to the part.
std::uint64_t positions_of(const CampaignPart& part, std::uint64_t cases);

}  // namespace lockstep::properties
